// SPDX-License-Identifier: MIT
#include "provider/connect/listener.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <compare>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <optional>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/stream/tcp_stream.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/connect/socket_owner.h"
#include "provider/connect/startup/incoming_call.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"
#include "provider/process/log.h"

namespace uiw::provider {

namespace {

constexpr char kPurpose[] = "a connection that a peer asks for";

class ListenerImpl final : public Listener,
                           public CmLoop::Handler,
                           public CmLoop::TimedTask,
                           public std::enable_shared_from_this<ListenerImpl> {
 public:
  ListenerImpl(TcpStream&& socket, std::weak_ptr<ListenObserver> observer)
      : socket_(std::move(socket)), observer_(std::move(observer)) {}
  ~ListenerImpl() override {
    CmLoop::instance().unwatch(socket_.fd());
    ::shutdown(socket_.fd(), SHUT_RDWR);
  }
  int descriptor() const override { return socket_.fd(); }

  int start(int backlog) {
    most_ = static_cast<std::size_t>(std::clamp(backlog, kLeastCalls, kMostCalls));
    // The observer applies the program's backlog, which counts MPA requests. The backlog of TCP is at least kMostCalls,
    // since many callers may connect at the same time.
    if (::listen(socket_.fd(), std::max(backlog, kMostCalls)) != 0) return errno;
    return CmLoop::instance().watch(socket_.fd(), EPOLLIN, weak_from_this());
  }

  void ready(std::uint32_t) override {
    try {
      take_calls();
    } catch (const std::exception&) {  // no memory
      pause();
    }
  }
  // Called by the timer that look_again() has started.
  void run() override {
    timer_runs_ = false;
    report_waiting();
    CmLoop::instance().change(socket_.fd(), EPOLLIN);
  }

 private:
  static constexpr int kLeastCalls = 16, kMostCalls = 1024;
  static constexpr std::size_t kMostAtOnce = 64;  // TCP connections accepted in one call of ready()
  // If too many calls are pending, a call may be closed in favour of a new one: after kTimeToSpeak if no octet of its
  // MPA request has arrived, after kTimeToFinish if the request is incomplete. Usually only lost segments delay a
  // request that has begun, and TCP retransmits them within kTimeToFinish. If no call can be closed, the listener
  // accepts none for kPause.
  static constexpr std::chrono::milliseconds kTimeToSpeak{100}, kTimeToFinish{1000}, kPause{20};
  // Limits for a program that takes requests more slowly than they come. If the observer has had no room after
  // kMostInVain pauses (kPause) in a row, the waiting requests are passed to the observer all the same, and it refuses
  // them. At most kMostWaiting * most_ requests wait; a further request is passed to the observer at once.
  static constexpr unsigned kMostInVain = 10;
  static constexpr std::size_t kMostWaiting = 16;

  // The origin of a call: a user of this host, or the address of another host (of an IPv6 address the /64 prefix). If
  // there is no room for a new call, the origin with the most calls loses one, so that one origin cannot keep others
  // out.
  struct Source {
    Gid address{};
    std::optional<uid_t> user;

    auto operator<=>(const Source&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };
  struct Pending {
    std::shared_ptr<IncomingCall> call;
    CmLoop::Clock::time_point since;
    std::optional<Source> source;  // empty until it is determined

    bool may_give_way(CmLoop::Clock::time_point now) const {
      return now - since >= (call->is_begun() ? kTimeToFinish : kTimeToSpeak);
    }
  };
  struct Request {
    std::shared_ptr<Call> call;
    CallParameters peer;
  };

  // Accepts a TCP connection. Returns the descriptor of its socket, or -1 with errno.
  int accept() const {
    if (!may_take_descriptor(kPurpose)) return -1;
    DescriptorChange change;
    const int fd = sys::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return fd >= 0 || errno == EMFILE || errno == ENFILE ? change.take(fd, kPurpose) : fd;
  }

  void take_calls() {
    for (std::size_t taken = 0; taken < kMostAtOnce; ++taken) {
      while (calls_.size() >= most_) {
        if (!give_way()) return pause();
      }
      const int fd = accept();
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
        // There is no descriptor or no memory. If another caller waits, an older call may be ended in its favour.
        if (events_of(socket_.fd(), POLLIN) == 0) return;
        if (give_way()) continue;
        return pause();
      }
      TcpStream socket(fd);
      TcpStream::set_options(fd);
      auto call = take_call(
          std::move(socket),
          [weak = weak_from_this()](std::shared_ptr<Call> asking, const CallParameters& peer) {
            if (const auto self = weak.lock()) self->requested(std::move(asking), peer);
          },
          [weak = weak_from_this()](const Call* failed) {
            if (const auto self = weak.lock()) self->forget(failed);
          });
      // Most callers have sent their request by now. Calls without a complete request are kept in calls_.
      if (call != nullptr && !call->read()) calls_.push_back({std::move(call), CmLoop::Clock::now(), {}});
    }
  }

  static Source source_of(const Call& call) {
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

  // Stops watching the socket for kPause. Otherwise CmLoop would call ready() again and again, although no call can be
  // accepted now.
  void pause() {
    CmLoop::instance().change(socket_.fd(), 0);
    look_again();
  }
  void look_again() {
    if (!std::exchange(timer_runs_, true)) CmLoop::instance().after(kPause, shared_from_this());
  }

  // Makes room by closing one call without an answer: the oldest call of the Source with the most calls. Calls that
  // have sent nothing are chosen first, then those that have sent a part of their request. The socket of the chosen
  // call is read once more: the call stays open if its request is now complete, or has only now begun. False if the
  // chosen call is not old enough (may_give_way()).
  bool give_way() {
    const auto now = CmLoop::Clock::now();
    std::map<Source, std::size_t> counts;
    for (const bool begun : {false, true}) {
      const auto counted = [&](const Pending& one) { return one.call->is_begun() == begun; };
      if (std::none_of(calls_.begin(), calls_.end(),
                       [&](const Pending& one) { return counted(one) && one.may_give_way(now); }))
        continue;
      counts.clear();
      auto chosen = calls_.end();
      for (Pending& one : calls_) {
        if (!counted(one)) continue;
        if (!one.source) one.source = source_of(one.call->connection());
        ++counts[*one.source];
      }
      for (auto one = calls_.begin(); one != calls_.end(); ++one) {
        if (!counted(*one)) continue;
        if (chosen == calls_.end() || counts[*one->source] > counts[*chosen->source]) chosen = one;
      }
      if (!chosen->may_give_way(now)) continue;
      const std::shared_ptr<IncomingCall> call = chosen->call;
      const bool complete = call->read();
      if (!complete && call->is_begun() == begun) {
        log_event(LogLevel::error, "call of %s gives way to the next one: it has sent %s request",
                  AddressText(call->connection().remote_address()).c_str(), begun ? "a part of its" : "no");
      }
      if (complete || call->is_begun() == begun) forget(&call->connection());
      return true;
    }
    return false;
  }

  // Called when the whole request of `call` has arrived.
  void requested(std::shared_ptr<Call> call, const CallParameters& peer) {
    forget(call.get());
    const auto observer = observer_.lock();
    if (observer == nullptr) return;
    const bool waits = !waiting_.empty() || !observer->has_room();
    if (!waits || waiting_.size() >= kMostWaiting * most_) return observer->requested(std::move(call), peer);
    waiting_.push_back({std::move(call), peer});
    look_again();
  }

  // Passes waiting requests to the observer while it has room. After kMostInVain calls of this function without room,
  // all of them are passed on, and the observer refuses them.
  void report_waiting() {
    const auto observer = observer_.lock();
    if (observer == nullptr) return waiting_.clear();
    in_vain_ = observer->has_room() ? 0 : in_vain_ + 1;
    while (!waiting_.empty() && (observer->has_room() || in_vain_ >= kMostInVain)) {
      const Request next = std::move(waiting_.front());
      waiting_.pop_front();
      observer->requested(next.call, next.peer);
    }
    if (waiting_.empty()) {
      in_vain_ = 0;
    } else {
      look_again();
    }
  }

  void forget(const Call* connection) {
    std::erase_if(calls_, [&](const Pending& one) { return &one.call->connection() == connection; });
  }

  const TcpStream socket_;
  const std::weak_ptr<ListenObserver> observer_;
  std::size_t most_ = 0;
  std::list<Pending> calls_;     // calls without a complete request, the oldest first
  std::deque<Request> waiting_;  // complete requests that wait until the observer has room
  unsigned in_vain_ = 0;         // pauses in a row after which there was no room
  bool timer_runs_ = false;
};

}  // namespace

int listen(int socket, int backlog, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener) {
  TcpStream owned(socket);
  auto made = std::make_shared<ListenerImpl>(std::move(owned), std::move(observer));
  if (const int error = made->start(backlog); error != 0) return error;
  listener = std::move(made);
  return 0;
}

}  // namespace uiw::provider
