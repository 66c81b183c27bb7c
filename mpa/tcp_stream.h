// SPDX-License-Identifier: MIT
// The TCP socket below MPA: the only file of the protocol layers that does I/O. Non-blocking throughout; thread
// safety is the caller's (one sender and one receiver at a time).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "mpa/bytes.h"

namespace uiw::mpa {

class TcpStream {
 public:
  TcpStream() = default;
  explicit TcpStream(int fd) : fd_(fd) {}
  ~TcpStream();
  TcpStream(TcpStream&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  TcpStream& operator=(TcpStream&& other) noexcept;
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  // A new socket, close-on-exec and non-blocking, with the options below, taken as descriptor.h says; negative errno on
  // failure.
  static int open(int family);
  // TCP_NODELAY and keepalive; done by open(), and to be done to a socket from accept().
  static void set_options(int fd);

  int fd() const { return fd_; }
  int release();
  bool is_open() const { return fd_ >= 0; }

  // Octets taken or delivered; 0 from receive() is the peer's orderly end; a negative errno otherwise, -EAGAIN
  // where the socket cannot now.
  ssize_t send(std::span<iovec> vectors);
  ssize_t receive(MutableOctets to);
  ssize_t receive(std::span<iovec> to);

  // No more will be sent; the peer sees the end after the last octet.
  void shutdown_send();
  // Both directions at once; the peer sees a reset.
  void abort();
  void close();

  // The effective maximum segment size towards the peer; 536 where TCP does not say.
  std::size_t segment_size() const;

 private:
  int fd_ = -1;
};

}  // namespace uiw::mpa
