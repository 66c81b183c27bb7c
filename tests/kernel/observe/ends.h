// SPDX-License-Identifier: MIT
// One end of a connection that rdma_cm makes with another process, which may run on another provider.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "tests/kernel/observe/observe.h"

namespace observe {

constexpr std::size_t kMemory = 4096;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;  // and atomics, where there are any

// What the called end says when it accepts.
using Told = std::array<std::byte, 16>;

class End {
 public:
  // Of the caller, and of the called end.
  explicit End(const Device& device);
  End(const Device& device, rdma_cm_id* requested);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // The caller's steps. False, or nothing, if they fail.
  bool resolve(const sockaddr_in& peer);
  std::optional<Told> connect(std::uint32_t number);
  // That of the called end; at most sizeof(Told) octets are told.
  bool accept(const void* told, std::size_t size);

  // The next completion, or nothing within some seconds. After the peer has ended the connection, so does this end.
  std::optional<ibv_wc> next();
  // Whether the peer has ended the connection, within some seconds.
  bool await_end();

  std::uint64_t address(std::size_t offset) const { return reinterpret_cast<std::uintptr_t>(memory_.data()) + offset; }
  // Of all the memory, as `region` is. It goes with the end, or by forget().
  ibv_mr* another_region(int access);
  void forget(ibv_mr* gone);

  rdma_cm_id* id = nullptr;
  ibv_mr* region = nullptr;  // with kAccess

 private:
  void make_queue_pair();
  rdma_cm_event* event(int milliseconds) const;
  bool await(rdma_cm_event_type type, Told* told = nullptr);
  bool look_for_end(int milliseconds);

  const Device& device_;
  rdma_event_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool ended_ = false;
  alignas(8) std::array<char, kMemory> memory_{};
  std::vector<ibv_mr*> others_;
};

class Listener {
 public:
  explicit Listener(const Device& device);  // at the device's address, port kPort
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The next that calls, with the number that it has given to connect(); null after some seconds.
  std::unique_ptr<End> next(std::uint32_t& number);

 private:
  const Device& device_;
  rdma_event_channel* channel_;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace observe
