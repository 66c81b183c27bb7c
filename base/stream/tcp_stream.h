// SPDX-License-Identifier: MIT
// The TCP socket below MPA. All calls are non-blocking. A TcpStream owns its descriptor, and its tap if it has one: an
// observer of the octets (stream_tap.h). Threads: one sender and one receiver at a time; the caller provides the locks.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/stream/byte_stream.h"
#include "base/stream/stream_tap.h"

namespace uiw {

class TcpStream final : public ByteStream {
 public:
  TcpStream() = default;
  explicit TcpStream(int fd) : fd_(fd) {}
  ~TcpStream() override;
  TcpStream(TcpStream&& other) noexcept : fd_(std::exchange(other.fd_, -1)), tap_(std::move(other.tap_)) {}
  TcpStream& operator=(TcpStream&& other) noexcept;
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  // Opens a socket: close-on-exec, non-blocking, with the options of set_options(), and taken by
  // DescriptorChange::take() (descriptor.h). Returns the descriptor, which the caller owns, or a negative errno.
  static int open(int family);
  // Sets TCP_NODELAY and keepalive. open() calls this function; for a socket from accept() the caller calls it.
  static void set_options(int fd);

  int fd() const { return fd_; }
  // The tap observes the octets from here on until the socket is closed or released.
  void set_tap(std::unique_ptr<StreamTap> tap) { tap_ = std::move(tap); }
  StreamTap* tap() const { return tap_.get(); }
  // Gives up the descriptor: the caller owns it, and this object is closed.
  int release();
  bool is_open() const { return fd_ >= 0; }

  // Return the number of octets sent or received, or a negative errno: -EAGAIN if the socket would block. receive()
  // returns 0 when the peer has closed in order.
  ssize_t send(std::span<iovec> vectors) override;
  ssize_t receive(MutableOctets to);
  ssize_t receive(std::span<iovec> to);
  // As send() and receive(), for octets that do not belong to MPA: the tap does not see them.
  ssize_t send_untapped(std::span<iovec> vectors);
  ssize_t receive_untapped(MutableOctets to);

  // await_room() and await_octets() have nothing to do, since an edge-triggered epoll set reports new room and new
  // octets of a socket in any case.
  bool await_room() override { return true; }
  ssize_t receive(MutableOctets wanted, MutableOctets staging, Octets& rest) override;
  void used() override {}
  bool await_octets(bool) override { return true; }
  bool short_receive_is_last() const override { return true; }
  bool is_shared() const override { return false; }
  std::size_t octets_in_one_send() const override { return 1024 * 1024; }

  // Sends FIN after the last octet; receiving goes on.
  void shutdown_send() override;
  // Sends FIN as shutdown_send() does, and ends receiving, too.
  void shutdown();
  // Closes both directions; the peer gets RST.
  void abort();
  void close();

  // The effective maximum segment size towards the peer (RFC 5044 section 4.5: EMSS); 536 if TCP does not report it.
  std::size_t segment_size() const;
  StreamTraffic traffic() const override;
  std::optional<PeerSigns> peer_signs() const override;

 private:
  ssize_t received(std::span<const iovec> to, ssize_t result);
  void tell_received(std::span<const iovec> to, ssize_t result);

  int fd_ = -1;
  std::unique_ptr<StreamTap> tap_;
};

}  // namespace uiw
