// SPDX-License-Identifier: MIT
#include "provider/connection/linger.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "provider/connection/movement.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

// The longest time that a socket lingers for a peer that goes on reading.
constexpr std::chrono::seconds kLongest{60};
constexpr int kTurns = 16;
constexpr unsigned kMostRejected = 256;
std::atomic<unsigned> lingering_now{0};

// Whether TCP has octets, or FIN, that it has not sent yet, for example because the peer does not read.
bool has_unsent(const TcpStream& socket) { return socket.traffic().octets_unsent > 0; }

class Lingering final : public CmLoop::Handler, public std::enable_shared_from_this<Lingering> {
 public:
  explicit Lingering(TcpStream&& socket) : socket_(std::move(socket)) {
    lingering_now.fetch_add(1, std::memory_order_relaxed);
  }
  // Starts the timer, which keeps the object alive. Must be called before the socket is watched. Throws std::bad_alloc.
  void start() {
    movement_.begin(counters());
    start_timer();
  }
  ~Lingering() override {
    end();
    lingering_now.fetch_sub(1, std::memory_order_relaxed);
  }

  void ready(std::uint32_t) override {
    std::array<std::byte, 65536> dropped;
    for (int turns = 0;; ++turns) {
      if (turns == kTurns) return;  // the thread "uiw-cm" has other work, too; CmLoop calls again
      const ssize_t n = socket_.receive(MutableOctets(dropped));
      if (n > 0) continue;
      if (n == -EAGAIN) return;
      if (n < 0 || !has_unsent(socket_)) return end();
      // The peer has closed its sending direction, and TCP still has octets to send. The peer's FIN keeps the socket
      // readable, so from here on epoll reports only EPOLLHUP and EPOLLERR, edge-triggered.
      if (!std::exchange(peer_closed_, true)) CmLoop::instance().change(socket_.fd(), EPOLLET);
      return;
    }
  }
  int fd() const { return socket_.fd(); }
  bool keeps_process() const override { return unacknowledged() > 0; }
  void end() {
    if (!socket_.is_open()) return;
    CmLoop::instance().unwatch(socket_.fd());
    socket_.close();
    CmLoop::instance().cancel(timer_);
  }

 private:
  void start_timer() {
    timer_ = CmLoop::instance().after(Movement::kLook, [self = shared_from_this()] { self->look(); });
  }
  // The number of octets, including FIN, that the peer has not acknowledged.
  int unacknowledged() const {
    int octets = 0;
    return ::ioctl(socket_.fd(), SIOCOUTQ, &octets) == 0 ? octets : 0;
  }
  Movement::Counters counters() const { return {static_cast<std::uint64_t>(unacknowledged()), 0}; }
  void look() {
    if (!socket_.is_open() || (peer_closed_ && !has_unsent(socket_))) return end();
    if (!movement_.goes_on(counters()) || ++looks_ >= kLongest / Movement::kLook) return give_up();
    try {
      start_timer();
    } catch (const std::exception&) {
      give_up();
    }
  }
  // Resets the connection, unless the peer has acknowledged everything: the kernel would offer the rest for minutes to
  // a peer that does not read.
  void give_up() {
    if (unacknowledged() == 0) return end();
    CmLoop::instance().unwatch(socket_.fd());
    socket_.abort();
    CmLoop::instance().cancel(timer_);
  }

  TcpStream socket_;  // once the socket is watched, only the thread "uiw-cm" uses it
  Movement movement_;
  unsigned looks_ = 0;
  bool peer_closed_ = false;
  CmLoop::Timer timer_;
};

}  // namespace

void linger_and_close(TcpStream&& socket) {
  socket.shutdown_send();
  // Usually the peer has closed already, and nothing is left to read or to send. Then the socket is closed at once.
  char octet;
  const long n = ::syscall(SYS_recvfrom, socket.fd(), &octet, 1, MSG_DONTWAIT | MSG_PEEK, nullptr, nullptr);
  if (n == 0 && !has_unsent(socket)) return socket.close();
  try {
    const auto lingering = std::make_shared<Lingering>(std::move(socket));
    lingering->start();
    if (CmLoop::instance().watch(lingering->fd(), EPOLLIN | EPOLLRDHUP, lingering) != 0) lingering->end();
  } catch (const std::exception&) {  // no memory; if `lingering` exists, it has closed the socket
    socket.close();
  }
}

void linger_and_close_rejected(TcpStream&& socket) {
  if (lingering_now.load(std::memory_order_relaxed) < kMostRejected) return linger_and_close(std::move(socket));
  socket.close();
}

}  // namespace uiw::provider
