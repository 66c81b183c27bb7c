// SPDX-License-Identifier: MIT
// How do the two processes of a moment connect? Either of them may die at any step, and then the other one gives up in
// bounded time.
#pragma once

#include <sys/socket.h>

#include "tests/apps/endurance/moments_work.h"

namespace apps::moments {

enum class Kind : std::uint8_t { by_hand, cm_called, cm_calls };  // of the survivor
inline constexpr unsigned kKinds = 3;

// What uiw may take to find that a peer is dead while it connects: UIW_STARTUP_TIMEOUT, which moments.py sets, and some
// more. Both are long, since a host may not run these processes for many seconds.
inline constexpr std::chrono::seconds kConnecting{44};

// Octets beside RDMA, which end with the other process.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { ::close(fd_); }

  template <typename T>
  bool say(const T& value) const {
    return ::send(fd_, &value, sizeof value, MSG_NOSIGNAL) == ssize_t{sizeof value};
  }
  template <typename T>
  bool hear(T& value) const {
    return ::recv(fd_, &value, sizeof value, MSG_WAITALL) == ssize_t{sizeof value};
  }
  bool ended() const {
    char octet;
    return ::recv(fd_, &octet, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

 private:
  const int fd_;
};

// A channel of rdma_cm, and what is heard on it.
class Events {
 public:
  Events() : channel_(made("rdma_create_event_channel", rdma_create_event_channel())) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() { rdma_destroy_event_channel(channel_); }

  rdma_event_channel* channel() const { return channel_; }

  struct Event {
    rdma_cm_event_type type;
    rdma_cm_id* id;
    std::uint64_t name = 0;  // of a request: the private data
  };
  std::optional<Event> next(std::chrono::milliseconds patience) const;
  rdma_cm_event_type await(rdma_cm_id* id, std::chrono::milliseconds patience) const;

 private:
  rdma_event_channel* channel_;
};

// One end of a connection to another process.
class Link {
 public:
  Link(const std::string& host, Kind kind, bool survives) : host_(host), kind_(kind), survives_(survives) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  // Connects, once; `name` tells this connection from those of other moments. False where the other process has died.
  bool connect(const Line& line, std::uint64_t name);
  // Until the other process has died.
  void run(std::atomic<std::uint64_t>& done, Clock::duration patience);
  // Everything is flushed; of a connection of rdma_cm that was established, DISCONNECTED has come.
  void finish();
  // Whether rdma_cm has told of a connection, which the other process may not have lived to use.
  bool was_established() const { return established_; }
  // What has ended the connection, or the attempt to connect, in words.
  std::string why() const { return !why_.empty() || work_ == nullptr ? why_ : work_->why(); }

 private:
  bool connect_by_hand(const Line& line);
  bool call(const Line& line, std::uint64_t name);
  bool be_called(const Line& line, std::uint64_t name);
  rdma_cm_id* request(const Line& line, std::uint64_t name);
  bool exchange(const Line& line, Introduction mine);
  void make_cm_qp(rdma_cm_id* id);
  bool await_established();

  const std::string host_;
  const Kind kind_;
  const bool survives_;
  std::unique_ptr<Rnic> rnic_;
  std::unique_ptr<Events> events_;
  std::unique_ptr<Work> work_;
  rdma_cm_id *listener_ = nullptr, *id_ = nullptr;
  ibv_qp* qp_ = nullptr;
  bool established_ = false;
  std::string why_;
  Introduction peer_;
};

}  // namespace apps::moments
