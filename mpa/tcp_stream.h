// SPDX-License-Identifier: MIT
// The TCP socket below MPA; the only file of the protocol layers that does I/O. All calls are non-blocking. A TcpStream
// owns its descriptor. Threads: one sender and one receiver at a time; the caller provides the locks.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "mpa/bytes.h"

namespace uiw::mpa {

// What TCP has done for a connection so far. Octets are payload of TCP.
struct TcpTraffic {
  std::uint64_t octets_sent = 0;  // those that were sent again count again
  std::uint64_t octets_unsent = 0;
  std::uint64_t octets_received = 0;
  std::uint64_t segments_sent = 0, segments_received = 0, retransmitted = 0;
};

class TcpStream {
 public:
  TcpStream() = default;
  explicit TcpStream(int fd) : fd_(fd) {}
  ~TcpStream();
  TcpStream(TcpStream&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  TcpStream& operator=(TcpStream&& other) noexcept;
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  // Opens a socket: close-on-exec, non-blocking, with the options below, and taken as descriptor.h says. Returns the
  // descriptor, which the caller owns, or a negative errno.
  static int open(int family);
  // Sets TCP_NODELAY and keepalive. open() does it; the caller does it for a socket from accept().
  static void set_options(int fd);

  int fd() const { return fd_; }
  // Gives up the descriptor: the caller owns it, and this object is closed.
  int release();
  bool is_open() const { return fd_ >= 0; }

  // The number of octets sent or received. receive() returns 0 when the peer has closed in order. A negative errno for
  // errors; -EAGAIN if the socket would block.
  ssize_t send(std::span<iovec> vectors);
  ssize_t receive(MutableOctets to);
  ssize_t receive(std::span<iovec> to);

  // Sends FIN behind the last octet; receiving goes on.
  void shutdown_send();
  // Closes both directions; the peer gets RST.
  void abort();
  void close();

  // The effective maximum segment size towards the peer (RFC 5044 section 4.5: EMSS); 536 if TCP does not report it.
  std::size_t segment_size() const;
  // All zero if the socket is closed or TCP does not report it.
  TcpTraffic traffic() const;

 private:
  int fd_ = -1;
};

}  // namespace uiw::mpa
