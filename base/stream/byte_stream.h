// SPDX-License-Identifier: MIT
// The stream of octets below MPA, in both directions: a TCP connection (tcp_stream.h), or rings in memory that two
// processes share (shared_stream.h). The layers above see no difference. Nothing blocks. Threads: one sender and one
// receiver at a time; the caller provides the locks.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"

namespace uiw {

// What a stream has moved so far. Octets are those of MPA. Segments are those of TCP; in shared memory, what was
// written or taken at a time.
struct StreamTraffic {
  std::uint64_t octets_sent = 0;  // those that TCP has sent again count again
  std::uint64_t octets_unsent = 0;
  std::uint64_t octets_received = 0;
  std::uint64_t segments_sent = 0, segments_received = 0, retransmitted = 0;
};

// Signs that the peer is alive.
struct PeerSigns {
  // Octets that its end has taken (its TCP, or its process where that shares memory), and that have come from there.
  std::uint64_t taken = 0, come = 0;
  // Everything that was sent reaches it, also if this process ends now: its TCP has taken it, or it is in shared
  // memory.
  bool all_taken = false;
  // TCP has sent octets again; and it has heard nothing for so long.
  bool sent_again = false;
  std::chrono::milliseconds silent{0};
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // The number of octets that were taken, from the first one on, or a negative errno: -EAGAIN if none is taken now,
  // -EFAULT if the memory of the next octet is not accessible.
  virtual ssize_t send(std::span<iovec> vectors) = 0;
  // The socket, or what stands for it, is full. True if an event follows when it has room again; false if it has room
  // by now.
  virtual bool await_room() = 0;

  // Fills `wanted` first. What follows is in `rest`: in `staging`, which must not be empty, or in memory of the
  // stream's own. The number of octets in both; 0 when the peer has closed in order; or a negative errno, -EAGAIN if
  // none are there. `rest` is valid until the next call of a receiving function. Where is_shared(), the peer may change
  // its octets at any time.
  virtual ssize_t receive(MutableOctets wanted, MutableOctets staging, Octets& rest) = 0;
  // The caller has used what receive() has returned.
  virtual void used() = 0;
  // receive() has returned -EAGAIN. True if an event follows when there is something to receive, the end among it;
  // false if there is something by now. `look_for_end`: false saves a system call, where the events of the socket have
  // not reported an end so far.
  virtual bool await_octets(bool look_for_end) = 0;
  // True if a receive() that returns fewer octets than it had room for has found all that there was, so that an event
  // follows for the next ones (epoll(7)).
  virtual bool short_receive_is_last() const = 0;
  virtual bool is_shared() const = 0;
  // So many octets go faster by one call of send() than by several; beyond that it makes no difference.
  virtual std::size_t octets_in_one_send() const = 0;

  // Octets of the peer's end follow, and then its end; the other direction goes on.
  virtual void shutdown_send() = 0;

  // All zero if the stream is closed or TCP does not report it.
  virtual StreamTraffic traffic() const = 0;
  // Nothing if the stream is closed.
  virtual std::optional<PeerSigns> peer_signs() const = 0;

 protected:
  ByteStream() = default;
  ByteStream(const ByteStream&) = default;
  ByteStream& operator=(const ByteStream&) = default;
};

}  // namespace uiw
