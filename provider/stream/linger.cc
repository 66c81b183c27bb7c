// SPDX-License-Identifier: MIT
#include "provider/stream/linger.h"

#include <linux/sockios.h>
#include <linux/tcp.h>  // glibc's header has not all of struct tcp_info
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "mpa/descriptor.h"
#include "provider/process/cm_loop.h"
#include "provider/stream/movement.h"

namespace uiw::provider {

namespace {

// A peer that takes octets gets more time, up to this.
constexpr std::chrono::seconds kLongest{60};
constexpr int kTurns = 16;
constexpr unsigned kMostRejected = 256;
std::atomic<unsigned> lingering_now{0};

// What has been sent and not been acknowledged, with FIN.
int unacknowledged(int fd) {
  int octets = 0;
  return ::ioctl(fd, SIOCOUTQ, &octets) == 0 ? octets : 0;
}

// What has not been sent, since the peer does not read. (valgrind does not know SIOCOUTQNSD.)
std::uint32_t unsent(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_notsent_bytes : 0;
}

class Lingering final : public CmLoop::Handler, public std::enable_shared_from_this<Lingering> {
 public:
  explicit Lingering(int fd) : fd_(fd) { lingering_now.fetch_add(1, std::memory_order_relaxed); }
  // The timer keeps the object alive. Must be called before the socket is watched. Throws std::bad_alloc.
  void start() {
    movement_.begin(counters());
    start_timer();
  }
  ~Lingering() override {
    end();
    lingering_now.fetch_sub(1, std::memory_order_relaxed);
  }

  void ready(std::uint32_t) override {
    std::array<char, 65536> dropped;
    for (int turns = 0;; ++turns) {
      if (turns == kTurns) return;  // the thread "uiw-cm" has other work, too; CmLoop calls again
      const ssize_t n = ::recv(fd_, dropped.data(), dropped.size(), MSG_DONTWAIT);
      if (n > 0 || (n < 0 && errno == EINTR)) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0 || unsent(fd_) == 0) return end();
      // The peer has closed its half only. The end of what it sends stays readable, so only changes are reported now.
      if (!std::exchange(peer_closed_, true)) CmLoop::instance().change(fd_, EPOLLET);
      return;
    }
  }
  bool keeps_process() const override { return unacknowledged(fd_) > 0; }
  void end() {
    if (fd_ < 0) return;
    CmLoop::instance().unwatch(fd_);
    mpa::close_descriptor(fd_);
    fd_ = -1;
    CmLoop::instance().cancel(timer_);
  }

 private:
  void start_timer() {
    timer_ = CmLoop::instance().after(Movement::kLook, [self = shared_from_this()] { self->look(); });
  }
  Movement::Counters counters() const { return {static_cast<std::uint64_t>(unacknowledged(fd_)), 0}; }
  void look() {
    if (fd_ < 0 || (peer_closed_ && unsent(fd_) == 0)) return end();
    if (!movement_.goes_on(counters()) || ++looks_ >= kLongest / Movement::kLook) return give_up();
    try {
      start_timer();
    } catch (const std::exception&) {
      give_up();
    }
  }
  // The kernel would offer the rest to a peer that does not read for minutes.
  void give_up() {
    const linger reset{1, 0};
    if (unacknowledged(fd_) > 0) ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    end();
  }

  int fd_;  // once the socket is watched, only the thread "uiw-cm" uses it
  Movement movement_;
  unsigned looks_ = 0;
  bool peer_closed_ = false;
  CmLoop::Timer timer_;
};

}  // namespace

void linger_and_close(int fd) {
  ::shutdown(fd, SHUT_WR);
  // In the usual case the peer has closed already and nothing is left to read or to send, so nothing is waited for.
  char octet;
  if (::syscall(SYS_recvfrom, fd, &octet, 1, MSG_DONTWAIT | MSG_PEEK, nullptr, nullptr) == 0 && unsent(fd) == 0) {
    mpa::close_descriptor(fd);
    return;
  }
  std::shared_ptr<Lingering> lingering;
  try {
    lingering = std::make_shared<Lingering>(fd);
    lingering->start();
    if (CmLoop::instance().watch(fd, EPOLLIN | EPOLLRDHUP, lingering) != 0) lingering->end();
  } catch (const std::exception&) {  // no memory; `lingering` closes the socket if it exists
    if (!lingering) mpa::close_descriptor(fd);
  }
}

void linger_and_close_rejected(int fd) {
  if (lingering_now.load(std::memory_order_relaxed) < kMostRejected) return linger_and_close(fd);
  mpa::close_descriptor(fd);
}

}  // namespace uiw::provider
