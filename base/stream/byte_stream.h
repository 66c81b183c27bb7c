// SPDX-License-Identifier: MIT
// The stream of octets below MPA, in both directions: a TCP connection (tcp_stream.h), or rings in memory that two
// processes share (shared_stream.h). The layers above use either by this interface. No function blocks. Threads: one
// sender and one receiver at a time; the caller provides the locks.
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

// Counters of what a stream has moved. Octets are those of MPA. Segments are those of TCP; in shared memory each write
// or read counts as one segment.
struct StreamTraffic {
  std::uint64_t octets_sent = 0;    // including retransmissions
  std::uint64_t octets_unsent = 0;  // accepted by TCP, not yet sent
  std::uint64_t octets_received = 0;
  std::uint64_t segments_sent = 0, segments_received = 0, retransmitted = 0;
};

// Signs that the peer is alive.
struct PeerSigns {
  // `taken`: octets that the peer's TCP has acknowledged, or in shared memory the peer's process has read. `come`:
  // octets received from the peer.
  std::uint64_t taken = 0, come = 0;
  // Everything that was sent reaches the peer even if this process ends now: the peer's TCP has acknowledged it, or it
  // is in shared memory.
  bool all_taken = false;
  // `sent_again`: TCP has retransmitted, and no acknowledgement has come since. `silent`: the time since the last
  // acknowledgement.
  bool sent_again = false;
  std::chrono::milliseconds silent{0};
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Returns the number of octets that were accepted, from the first one on, or a negative errno, among others -EAGAIN
  // if none is accepted now, and -EFAULT if the memory of the first octets is not accessible.
  virtual ssize_t send(std::span<iovec> vectors) = 0;
  // To be called if the socket or ring is full. True if an epoll event will report room; false if send() is to be
  // called again now, since there is room or the stream has an error.
  virtual bool await_room() = 0;

  // Fills `wanted` first. `rest` is set to the octets that follow. They are in `staging`, which must not be empty, or
  // in the stream's own memory, and stay valid until the next call of receive() or used(). Returns the number of octets
  // in `wanted` and `rest` together; 0 when the peer has closed in order; or a negative errno, -EAGAIN if there are no
  // octets. If is_shared(), the peer may change the octets of `rest` at any time.
  virtual ssize_t receive(MutableOctets wanted, MutableOctets staging, Octets& rest) = 0;
  // To be called when the caller no longer needs the octets of the last receive(): a ring then reuses their memory.
  virtual void used() = 0;
  // To be called after receive() has returned -EAGAIN. True if an epoll event will report octets or the end of the
  // stream; false if octets or the end are there by now. `look_for_end` may be false if no epoll event has reported an
  // end of the socket, which saves a system call.
  virtual bool await_octets(bool look_for_end) = 0;
  // True if a receive() that returns fewer octets than it had room for has emptied the stream, so that an epoll event
  // reports the next octets.
  virtual bool short_receive_is_last() const = 0;
  virtual bool is_shared() const = 0;
  // Up to this size, one call of send() is faster than several.
  virtual std::size_t octets_in_one_send() const = 0;

  // Ends the sending direction: the peer receives what was sent before, and then the end. Receiving goes on.
  virtual void shutdown_send() = 0;

  // Counters that TCP does not report are zero; once the socket is closed, TCP reports none.
  virtual StreamTraffic traffic() const = 0;
  // No value if the socket is closed or TCP does not report its state.
  virtual std::optional<PeerSigns> peer_signs() const = 0;

 protected:
  ByteStream() = default;
  ByteStream(const ByteStream&) = default;
  ByteStream& operator=(const ByteStream&) = default;
};

}  // namespace uiw
