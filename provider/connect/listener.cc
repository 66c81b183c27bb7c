// SPDX-License-Identifier: MIT
#include "provider/connect/listener.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <compare>
#include <exception>
#include <list>
#include <map>
#include <optional>

#include "mpa/descriptor.h"
#include "mpa/stream/tcp_stream.h"
#include "provider/connect/local_address.h"
#include "provider/connect/socket_owner.h"
#include "provider/connect/startup/incoming_call.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"

namespace uiw::provider {

namespace {

constexpr char kPurpose[] = "a connection that a peer asks for";

class ListenerImpl final : public Listener,
                           public CmLoop::Handler,
                           public CmLoop::TimedTask,
                           public std::enable_shared_from_this<ListenerImpl> {
 public:
  ListenerImpl(mpa::TcpStream&& socket, std::weak_ptr<ListenObserver> observer)
      : socket_(std::move(socket)), observer_(std::move(observer)) {}
  ~ListenerImpl() override { CmLoop::instance().unwatch(socket_.fd()); }

  int start(int backlog) {
    most_ = static_cast<std::size_t>(std::clamp(backlog, kLeastCalls, kMostCalls));
    if (::listen(socket_.fd(), backlog) != 0) return errno;
    return CmLoop::instance().watch(socket_.fd(), EPOLLIN, weak_from_this());
  }

  void ready(std::uint32_t) override {
    try {
      take_calls();
    } catch (const std::exception&) {  // no memory
      pause();
    }
  }
  // Called at the end of pause().
  void run() override { CmLoop::instance().change(socket_.fd(), EPOLLIN); }

 private:
  static constexpr int kLeastCalls = 16, kMostCalls = 1024;
  // Many callers may come at a time; each gets this time to send its request before it may have to give way.
  static constexpr std::chrono::milliseconds kTimeToSpeak{100}, kPause{20};

  // The origin of a call: a user of this host, or another address. Calls are limited by origin, so that one origin
  // cannot keep others out.
  struct Source {
    Gid address{};
    std::optional<uid_t> user;

    auto operator<=>(const Source&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };
  struct Call {
    std::shared_ptr<Connection> connection;
    CmLoop::Clock::time_point since;
    std::optional<Source> source;  // empty until it is determined
  };

  // The descriptor of a call, or -1 with errno.
  int accept() const {
    if (!mpa::may_take_descriptor(kPurpose)) return -1;
    mpa::DescriptorChange change;
    const int fd = ::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd >= 0 || errno == EMFILE || errno == ENFILE ? change.take(fd, kPurpose) : fd;
  }

  void take_calls() {
    for (;;) {
      if (calls_.size() >= most_ && !give_way()) return pause();
      const int fd = accept();
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
        // A caller that has sent nothing gives way if another one waits.
        pollfd waiting{socket_.fd(), POLLIN, 0};
        if (::poll(&waiting, 1, 0) != 1) return;
        if (give_way()) continue;
        return pause();
      }
      mpa::TcpStream taken(fd);
      mpa::TcpStream::set_options(fd);
      // Kept in calls_ until the request is complete; used on the loop's thread only.
      auto call = take_call(
          std::move(taken),
          [weak = weak_from_this()](std::shared_ptr<Connection> waiting, const ConnectionParameters& peer) {
            if (const auto self = weak.lock()) self->requested(std::move(waiting), peer);
          },
          [weak = weak_from_this()](const Connection* waiting) {
            if (const auto self = weak.lock()) self->forget(waiting);
          });
      if (call != nullptr) calls_.push_back({std::move(call), CmLoop::Clock::now(), {}});
    }
  }

  static Source source_of(const Connection& call) {
    const sockaddr_storage remote = call.remote_address();
    Source source;
    if (is_local_address(remote).value_or(true)) {
      source.user = owner_of_connection(remote, call.local_address());
    } else {
      source.address = gid_of(generic(remote));
      if (!is_ipv4(source.address))
        std::fill(source.address.begin() + 8, source.address.end(), std::uint8_t{0});  // only the /64 prefix counts
    }
    return source;
  }

  // Stops watching for a while: accept() fails now, and would be tried again without end.
  void pause() {
    CmLoop::instance().change(socket_.fd(), 0);
    CmLoop::instance().after(kPause, shared_from_this());
  }

  // Ends the oldest call of the source with the most calls, without an answer; if several sources have as many, the one
  // whose call is the oldest. False if no call is old enough.
  bool give_way() {
    if (calls_.empty() || CmLoop::Clock::now() - calls_.front().since < kTimeToSpeak) return false;
    std::map<Source, std::size_t> counts;
    for (Call& call : calls_) {
      if (!call.source) call.source = source_of(*call.connection);
      ++counts[*call.source];
    }
    const auto oldest = std::max_element(calls_.begin(), calls_.end(), [&](const Call& a, const Call& b) {
      return counts[*a.source] < counts[*b.source];  // the first of equal ones
    });
    if (CmLoop::Clock::now() - oldest->since < kTimeToSpeak) return false;
    calls_.erase(oldest);
    return true;
  }

  void requested(std::shared_ptr<Connection> call, const ConnectionParameters& peer) {
    forget(call.get());
    if (const auto observer = observer_.lock()) observer->requested(std::move(call), peer);
  }
  void forget(const Connection* connection) {
    std::erase_if(calls_, [&](const Call& call) { return call.connection.get() == connection; });
  }

  const mpa::TcpStream socket_;
  const std::weak_ptr<ListenObserver> observer_;
  std::size_t most_ = 0;
  std::list<Call> calls_;  // calls whose requests are incomplete, the oldest first
};

}  // namespace

int listen(int socket, int backlog, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener) {
  mpa::TcpStream owned(socket);
  auto made = std::make_shared<ListenerImpl>(std::move(owned), std::move(observer));
  if (const int error = made->start(backlog); error != 0) return error;
  listener = std::move(made);
  return 0;
}

}  // namespace uiw::provider
