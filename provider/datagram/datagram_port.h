// SPDX-License-Identifier: MIT
// A UDP port of this process, as one context uses it. It sends for the queue pairs of the context whose numbers contain
// the port, and delivers each datagram that arrives to its destination, which may be any queue pair of the process. A
// DatagramPort has a number in the table of queue pair numbers, by which the context's engine (progress/engine.h) finds
// it. A context that uses multicast has one more DatagramPort for that, which delivers a datagram to all queue pairs of
// the context that are attached to the datagram's group.
//
// Thread-safe. Lock order: receive_mutex_, members_mutex_, then the receiver's lock of a queue pair, which deliver()
// takes; targets_mutex_ before the sender's lock of a queue pair, which may_send() takes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "provider/connect/numbered.h"
#include "provider/datagram/datagram_socket.h"
#include "provider/datagram/datagram_target.h"
#include "provider/progress/driven.h"
#include "provider/progress/engine.h"

namespace uiw::provider {

class DatagramPort final : public Numbered, public Driven {
 public:
  // Opens UDP port `port`, which the process has reserved for queue pairs. All queue pairs of a context whose numbers
  // contain the port share one object. Null with errno. Throws std::bad_alloc. The engine must remain live as long as
  // the port.
  static std::shared_ptr<DatagramPort> open(Engine& engine, std::uint16_t port);
  // Opens the port for multicast, which all queue pairs of a context share. `ifindex` is the interface of the context's
  // device.
  static std::shared_ptr<DatagramPort> open_multicast(Engine& engine, unsigned ifindex);
  ~DatagramPort() override;

  // After join(), until leave() has returned, the port calls may_send() of the queue pair once the socket has room
  // again after a send() that has not accepted all datagrams. The callers must not hold the sender's lock of that queue
  // pair.
  void join(DatagramTarget& target);
  void leave(DatagramTarget& target);

  // After attach(), until detach() has returned, the port delivers the datagrams for the group to the queue pair.
  // Returns 0, or an errno of change_membership(). Only for the multicast port; throws std::bad_alloc.
  int attach(DatagramTarget& target, const Gid& group);
  void detach(DatagramTarget& target, const Gid& group);

  // As send_datagrams(). If not all datagrams were accepted, may_send() of the queue pairs is called later.
  std::size_t send(std::span<const OutgoingDatagram> datagrams);
  // For a thread that has no memory for its buffers (io_scratch.h): makes the thread "uiw-progress" of the context call
  // may_send(), which sends instead of the caller.
  void take_over();

  Driven* driven() override { return this; }
  void after_fork_in_child() override;
  std::uint32_t number() const override { return number_; }
  bool progress(Driver driver) noexcept override;
  void no_memory() noexcept override {}

 private:
  // `multicast`: the interface index if this is the multicast port, else 0.
  DatagramPort(Engine& engine, int fd, unsigned multicast);
  static std::shared_ptr<DatagramPort> open(Engine& engine, std::uint16_t port, unsigned multicast);
  void hand_over(const IncomingDatagram& datagram);
  bool receive(Driver driver);
  void send_what_waits();
  void count_sent(std::span<const OutgoingDatagram> sent);
  void count_received(std::span<const IncomingPiece> received) UIW_REQUIRES(receive_mutex_);
  void drop(DatagramDrop why);

  Engine& engine_;
  const int fd_;
  const unsigned generation_;
  const unsigned multicast_;
  std::uint32_t number_ = 0;
  Mutex receive_mutex_;
  Mutex targets_mutex_;
  std::vector<DatagramTarget*> targets_ UIW_GUARDED_BY(targets_mutex_);
  struct Member {
    Gid group;
    DatagramTarget* target;
  };
  Mutex members_mutex_;
  std::vector<Member> members_ UIW_GUARDED_BY(members_mutex_);
  std::atomic<bool> blocked_{false};  // may_send() is due: the socket had no room, or take_over() was called
  std::atomic<bool> joins_;           // see send_datagrams()
};

// Take and release the lock of the table of ports before and after a fork. In the child, forget_datagram_ports() drops
// the parent's ports and releases the lock.
void lock_datagram_ports();
void unlock_datagram_ports();
void forget_datagram_ports();

}  // namespace uiw::provider
