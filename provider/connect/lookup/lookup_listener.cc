// SPDX-License-Identifier: MIT
// The called side of a look-up (lookup.h).
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/stream/tcp_stream.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/lookup/lookup_format.h"
#include "provider/connect/lookup/lookup_socket.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"

namespace uiw::provider {

namespace {

// A request of a caller. It keeps the socket, and with it the port, until the program has answered, since the program
// may destroy the listener earlier.
class LookupRequest final : public Call {
 public:
  LookupRequest(std::shared_ptr<const LookupSocket> socket, const sockaddr_storage& local,
                const sockaddr_storage& remote, std::uint64_t number)
      : socket_(std::move(socket)), local_(local), remote_(remote), number_(number) {}

  int accept(const CallParameters& own, std::weak_ptr<CallObserver>) override {
    if (own.private_data.size() > kMostLookupData) return EINVAL;
    return answer({LookupKind::reply, number_, own.qp_num, own.qkey, own.private_data});
  }
  int reject(const std::vector<std::byte>& private_data) override {
    if (private_data.size() > kMostLookupData) return EINVAL;
    return answer({LookupKind::rejection, number_, 0, 0, private_data});
  }
  int disconnect() override { return 0; }
  sockaddr_storage local_address() const override { return local_; }
  sockaddr_storage remote_address() const override { return remote_; }

  // The caller has repeated its request: sends the answer again, if there is one.
  void repeat(const LookupSocket& socket) {
    const LockGuard lock(mutex_);
    if (answer_) socket.send(answer_->octets(), local_, remote_);
  }

 private:
  int answer(const LookupMessage& message) {
    const LockGuard lock(mutex_);
    if (answer_) return EINVAL;
    answer_ = encode(message);
    const auto socket = std::exchange(socket_, nullptr);
    socket->send(answer_->octets(), local_, remote_);  // if it is lost, the caller asks again
    return 0;
  }

  Mutex mutex_;
  std::shared_ptr<const LookupSocket> socket_ UIW_GUARDED_BY(mutex_);
  const sockaddr_storage local_, remote_;
  const std::uint64_t number_;
  std::optional<EncodedLookup> answer_ UIW_GUARDED_BY(mutex_);
};

class LookupListener final : public Listener,
                             public CmLoop::Handler,
                             public std::enable_shared_from_this<LookupListener> {
 public:
  LookupListener(int fd, std::weak_ptr<ListenObserver> observer)
      : socket_(std::make_shared<const LookupSocket>(fd)), observer_(std::move(observer)) {}
  ~LookupListener() override { CmLoop::instance().unwatch(socket_->fd()); }

  int descriptor() const override { return socket_->fd(); }
  int start() { return CmLoop::instance().watch(socket_->fd(), EPOLLIN, weak_from_this()); }

  void ready(std::uint32_t) override {
    std::array<std::byte, kMostLookupSize> room;
    sockaddr_storage from, to;
    for (unsigned i = 0; i < kMostAtATime; ++i) {  // epoll reports the socket again while datagrams are left
      const long size = socket_->receive(room, from, to);
      if (size == -EAGAIN) return;
      if (size < 0 || static_cast<std::size_t>(size) > room.size()) continue;
      const auto message = decode_lookup(Octets(room).first(static_cast<std::size_t>(size)));
      if (!message || message->kind != LookupKind::request) continue;
      try {
        take(*message, to, from);
      } catch (const std::exception&) {  // no memory: the caller asks again
      }
    }
  }

 private:
  static constexpr unsigned kMostAtATime = 64;
  // The last kRemembered requests are remembered even after the program has released them, in case the answers were
  // lost.
  static constexpr std::size_t kRemembered = 64;

  struct Source {
    Gid address{};
    std::uint16_t port = 0;
    std::uint64_t number = 0;
    auto operator<=>(const Source&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };

  void take(const LookupMessage& message, const sockaddr_storage& to, const sockaddr_storage& from) {
    sockaddr_storage remote = from;
    const Source source{gid_of(generic(from)), port_of(remote), message.request};
    if (const auto found = known_.find(source); found != known_.end()) {
      if (const auto request = found->second.lock()) return request->repeat(*socket_);
    }
    const auto observer = observer_.lock();
    if (observer == nullptr) return;
    if (known_.size() >= 2 * live_ + kRemembered) forget();
    auto request = std::make_shared<LookupRequest>(socket_, to, from, message.request);
    known_[source] = request;
    recent_[next_recent_++ % kRemembered] = request;
    CallParameters peer;
    peer.private_data.assign(message.private_data.begin(), message.private_data.end());
    observer->requested(std::move(request), peer);
  }

  void forget() {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    live_ = known_.size();
  }

  const std::shared_ptr<const LookupSocket> socket_;
  const std::weak_ptr<ListenObserver> observer_;
  // The following members are used only on the thread "uiw-cm" (CmLoop).
  std::map<Source, std::weak_ptr<LookupRequest>> known_;
  std::size_t live_ = 0;  // entries of `known_` that were left by the last forget()
  std::array<std::shared_ptr<LookupRequest>, kRemembered> recent_;
  std::size_t next_recent_ = 0;
};

}  // namespace

int listen_for_lookups(int socket, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener) {
  TcpStream owned(socket);  // closes the descriptor if there is no memory
  auto made = std::make_shared<LookupListener>(socket, std::move(observer));
  owned.release();
  if (const int error = made->start(); error != 0) return error;
  listener = std::move(made);
  return 0;
}

}  // namespace uiw::provider
