// SPDX-License-Identifier: MIT
#include "base/stream/tcp_stream.h"

#include <linux/tcp.h>  // glibc's header has not all of struct tcp_info
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/system_calls.h"

namespace uiw {

TcpStream::~TcpStream() { close(); }

TcpStream& TcpStream::operator=(TcpStream&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    tap_ = std::move(other.tap_);
  }
  return *this;
}

int TcpStream::open(int family) {
  const int fd =
      DescriptorChange().take(sys::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP), "a socket");
  if (fd < 0) return -errno;
  set_options(fd);
  return fd;
}

void TcpStream::set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Keepalive detects within a minute that the peer's host has died, also on an idle connection.
  const int idle_s = 20, interval_s = 5, probes = 6;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

int TcpStream::release() {
  tap_.reset();
  return std::exchange(fd_, -1);
}

// The functions below send and receive without libc. The functions of libc are cancellation points, and a thread of the
// program that is cancelled must not leave a post or a poll half done. ThreadSanitizer does not see these system calls.
// That is intended: they access memory as the DMA of an adapter does.

ssize_t TcpStream::send_untapped(std::span<iovec> vectors) {
  // A small message is one vector, for which sendto costs the kernel less.
  const bool one = vectors.size() == 1;
  const iovec& first = vectors.front();
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = vectors.size();
  for (;;) {
    constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
    const ssize_t n = one ? ::syscall(SYS_sendto, fd_, first.iov_base, first.iov_len, kFlags, nullptr, 0)
                          : ::syscall(SYS_sendmsg, fd_, &message, kFlags);
    if (n >= 0) return n;
    if (errno != EINTR) return -errno;
  }
}

ssize_t TcpStream::send(std::span<iovec> vectors) {
  const ssize_t n = send_untapped(vectors);
  if (tap_ != nullptr && n > 0) tap_->passed(StreamTap::Direction::sent, vectors, static_cast<std::size_t>(n));
  return n;
}

ssize_t TcpStream::receive_untapped(MutableOctets to) {
  for (;;) {
    const ssize_t n = ::syscall(SYS_recvfrom, fd_, to.data(), to.size(), MSG_DONTWAIT, nullptr, nullptr);
    if (n >= 0) return n;
    if (errno != EINTR) return -errno;
  }
}

ssize_t TcpStream::receive(MutableOctets to) {
  const iovec vector{to.data(), to.size()};
  return received({&vector, 1}, receive_untapped(to));
}

ssize_t TcpStream::receive(std::span<iovec> to) {
  msghdr message{};
  message.msg_iov = to.data();
  message.msg_iovlen = to.size();
  for (;;) {
    const ssize_t n = ::syscall(SYS_recvmsg, fd_, &message, MSG_DONTWAIT);
    if (n >= 0) return received(to, n);
    if (errno != EINTR) return received(to, -errno);
  }
}

ssize_t TcpStream::received(std::span<const iovec> to, ssize_t result) {
  if (tap_ != nullptr) tell_received(to, result);
  return result;
}

void TcpStream::tell_received(std::span<const iovec> to, ssize_t result) {
  if (result > 0) {
    tap_->passed(StreamTap::Direction::received, to, static_cast<std::size_t>(result));
  } else if (result == 0) {
    tap_->ended(StreamTap::Direction::received, StreamTap::End::fin);
  } else if (result != -EAGAIN) {
    tap_->ended(StreamTap::Direction::received, StreamTap::End::rst);
  }
}

ssize_t TcpStream::receive(MutableOctets wanted, MutableOctets staging, Octets& rest) {
  ssize_t n;
  if (wanted.empty()) {
    n = receive(staging);
  } else {
    std::array<iovec, 2> to = {{{wanted.data(), wanted.size()}, {staging.data(), staging.size()}}};
    n = receive(to);
  }
  rest = n > static_cast<ssize_t>(wanted.size()) ? Octets(staging).first(static_cast<std::size_t>(n) - wanted.size())
                                                 : Octets();
  return n;
}

void TcpStream::shutdown_send() {
  if (fd_ < 0) return;
  ::shutdown(fd_, SHUT_WR);
  if (tap_ != nullptr) tap_->ended(StreamTap::Direction::sent, StreamTap::End::fin);
}

void TcpStream::shutdown() {
  if (fd_ < 0) return;
  ::shutdown(fd_, SHUT_RDWR);
  if (tap_ != nullptr) tap_->ended(StreamTap::Direction::sent, StreamTap::End::fin);
}

void TcpStream::abort() {
  if (fd_ < 0) return;
  const linger reset{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  if (tap_ != nullptr) tap_->ended(StreamTap::Direction::sent, StreamTap::End::rst);
  close();
}

void TcpStream::close() {
  if (fd_ >= 0) close_descriptor(fd_);
  fd_ = -1;
  tap_.reset();
}

std::size_t TcpStream::segment_size() const {
  int size = 0;
  socklen_t length = sizeof size;
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &size, &length) != 0 || size <= 0) return 536;
  return static_cast<std::size_t>(size);
}

namespace {

// An older kernel fills in fewer members of tcp_info, and the others stay zero.
std::optional<tcp_info> info_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (fd < 0 || ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

}  // namespace

StreamTraffic TcpStream::traffic() const {
  StreamTraffic traffic;
  if (const auto info = info_of(fd_)) {
    traffic.octets_sent = info->tcpi_bytes_sent;
    traffic.octets_unsent = info->tcpi_notsent_bytes;
    traffic.octets_received = info->tcpi_bytes_received;
    traffic.segments_sent = info->tcpi_segs_out;
    traffic.segments_received = info->tcpi_segs_in;
    traffic.retransmitted = info->tcpi_total_retrans;
  }
  return traffic;
}

std::optional<PeerSigns> TcpStream::peer_signs() const {
  const auto info = info_of(fd_);
  if (!info) return std::nullopt;
  PeerSigns signs;
  signs.taken = info->tcpi_bytes_acked;
  signs.come = info->tcpi_bytes_received;
  signs.all_taken = info->tcpi_unacked == 0 && info->tcpi_notsent_bytes == 0;
  signs.sent_again = info->tcpi_retransmits > 0;
  signs.silent = std::chrono::milliseconds(info->tcpi_last_ack_recv);
  return signs;
}

}  // namespace uiw
