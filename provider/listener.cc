// SPDX-License-Identifier: MIT
// Who calls: a listening socket, and the calls on it whose requests are not whole yet.
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>

#include "mpa/tcp_stream.h"
#include "provider/cm_loop.h"
#include "provider/connection.h"
#include "provider/incoming_call.h"

namespace uiw::provider {

namespace {

class ListenerImpl final : public Listener, public CmLoop::Handler, public std::enable_shared_from_this<ListenerImpl> {
 public:
  ListenerImpl(int fd, std::weak_ptr<ListenObserver> observer) : fd_(fd), observer_(std::move(observer)) {}
  ~ListenerImpl() override {
    CmLoop::instance().unwatch(fd_);
    ::close(fd_);
  }

  int start(int backlog) {
    if (::listen(fd_, backlog) != 0) return errno;
    return CmLoop::instance().watch(fd_, EPOLLIN, weak_from_this());
  }

  void ready(std::uint32_t) override {
    for (;;) {
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
        // Out of descriptors: not to spin on it, the queue is looked at again in a while.
        CmLoop::instance().change(fd_, 0);
        CmLoop::instance().after(std::chrono::milliseconds(100), [weak = weak_from_this()] {
          if (const auto self = weak.lock()) CmLoop::instance().change(self->fd_, EPOLLIN);
        });
        return;
      }
      mpa::TcpStream::set_options(fd);
      // Held here until the request is whole; on the loop's thread alone.
      calls_.insert(take_call(
          fd,
          [weak = weak_from_this()](std::shared_ptr<Connection> call, const ConnectionParameters& peer) {
            if (const auto self = weak.lock()) self->requested(std::move(call), peer);
          },
          [weak = weak_from_this()](const Connection* call) {
            if (const auto self = weak.lock()) {
              std::erase_if(self->calls_, [&](const auto& held) { return held.get() == call; });
            }
          }));
    }
  }

 private:
  void requested(std::shared_ptr<Connection> call, const ConnectionParameters& peer) {
    calls_.erase(call);
    if (const auto observer = observer_.lock()) observer->requested(std::move(call), peer);
  }

  const int fd_;
  const std::weak_ptr<ListenObserver> observer_;
  std::set<std::shared_ptr<Connection>> calls_;
};

}  // namespace

int listen(int socket, int backlog, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener) {
  auto made = std::make_shared<ListenerImpl>(socket, std::move(observer));
  if (const int error = made->start(backlog); error != 0) return error;
  listener = std::move(made);
  return 0;
}

}  // namespace uiw::provider
