// SPDX-License-Identifier: MIT
// What has one thread of the soak at its end? Memory, and for connections of either kind a protection domain with its
// queues; the connections in their slots.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/apps/endurance/soak_plan.h"
#include "tests/apps/support/manual_end.h"

namespace apps::soak {

// For whatever is due: a run of the lowest priority may be kept from the processors for a long time.
inline constexpr std::chrono::seconds kLong{600};

// How many connections this process has.
class OpenCount {
 public:
  void add() {
    const unsigned now = now_.fetch_add(1) + 1;
    for (unsigned most = most_; most < now && !most_.compare_exchange_weak(most, now);) continue;
  }
  void remove() { --now_; }
  unsigned most() const { return most_; }

 private:
  std::atomic<unsigned> now_ = 0, most_ = 0;
};
inline OpenCount g_open;

// What leaves, what comes in, and the receives of a shared queue, one behind the other.
class Memory {
 public:
  static constexpr std::uint64_t kIn = kArena, kSharedAt = 2 * std::uint64_t{kArena};
  static constexpr std::uint32_t kReceives = kSlots * kMost;  // of a shared queue
  static constexpr std::uint64_t kSize = kSharedAt + std::uint64_t{kReceives} * kShared;

  unsigned char* at(std::uint64_t offset) { return octets_.data() + offset; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(octets_.data()); }

  void fill(std::uint64_t offset, std::uint64_t seed, std::uint32_t length);
  bool holds(std::uint64_t offset, std::uint64_t seed, std::uint32_t length) const;
  void put_word(std::uint64_t offset, std::uint64_t value) { std::memcpy(at(offset), &value, sizeof value); }
  std::uint64_t word(std::uint64_t offset) const {
    std::uint64_t value;
    std::memcpy(&value, octets_.data() + offset, sizeof value);
    return value;
  }

 private:
  std::vector<unsigned char> octets_ = std::vector<unsigned char>(kSize);
};

// The objects that connections of one kind share. `sleeps`: completions are slept for.
class Domain {
 public:
  Domain(ibv_context* context, Memory& memory, bool sleeps);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  ibv_srq* srq() const { return srq_; }
  ibv_mr* region() const { return region_; }
  ibv_comp_channel* channel() const { return channel_; }

  ibv_mr* reg() const;  // all of the memory, once more
  ibv_qp_init_attr attributes(bool shared) const;
  bool poll(ibv_wc& wc) const;
  void arm() const;
  void take_event() const;

 private:
  ibv_context* context_;
  Memory& memory_;
  ibv_pd* pd_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  ibv_srq* srq_;
  ibv_mr* region_;
};

// A connected queue pair, with a window for its peer.
struct Connection {
  Domain* domain = nullptr;
  rdma_cm_id* id = nullptr;  // of rdma_cm; otherwise the program has connected it
  ibv_qp* qp = nullptr;
  ibv_mw* window = nullptr;
  bool shared = false;
  std::uint64_t peer = 0;             // where its memory is
  std::uint32_t standing = 0;         // the key to all of it
  std::uint32_t key = 0;              // the key to it in this exchange
  std::uint32_t offered = 0;          // the key that the peer has in this exchange
  ibv_mr* fresh = nullptr;            // where that one is a region for this exchange
  bool bound = false;                 // where it is the window
  std::size_t sent = 0, arrived = 0;  // how far the requests of either end are in this exchange
};

// What an end says of a connection when it is made.
struct Introduction {
  Place place;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

// The connections of a thread, at one of the two ends.
class Connections {
 public:
  Connections(const std::string& host, bool calls, manual::Line& line, Memory& memory, bool sleeps);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  Connection& operator[](unsigned slot) { return slots_[slot]; }
  void connect(const Step& step);
  void end(const Step& step);
  // The next completion of either domain.
  ibv_wc next();

 private:
  void connect_by_cm(Connection& connection);
  void connect_by_hand(Connection& connection);
  Domain& domain_of(ibv_context* context);
  void introduce(Connection& connection);
  void drain(Connection& connection);
  bool poll(ibv_wc& wc);
  void sleep();

  const std::string host_;
  const bool calls_, sleeps_;
  manual::Line& line_;
  Memory& memory_;
  rdma_cm_id* listener_ = nullptr;
  std::string port_;
  Rnic rnic_;
  Domain by_hand_;
  std::unique_ptr<Domain> by_cm_;
  std::array<Connection, kSlots> slots_;
};

}  // namespace apps::soak
