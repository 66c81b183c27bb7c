// SPDX-License-Identifier: MIT
// The calling side of a look-up (lookup.h).
#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/random.h"
#include "base/stream/tcp_stream.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/lookup/lookup_format.h"
#include "provider/connect/lookup/lookup_socket.h"
#include "provider/connect/mapper/port_mapper_query.h"
#include "provider/connect/rdma_port.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

// A request is repeated after pauses that double from kFirstPause to kLongestPause. It fails only after kPatience,
// since the program of a service may be slow. The kernel's rdma_cm waits for a SIDR_REP for about this time, too.
constexpr std::chrono::milliseconds kFirstPause{250}, kLongestPause{4000}, kPatience{60'000};

class LookupCall final : public Call,
                         public CmLoop::Handler,
                         public CmLoop::TimedTask,
                         public std::enable_shared_from_this<LookupCall> {
 public:
  LookupCall(int fd, std::weak_ptr<CallObserver> observer) : socket_(fd), observer_(std::move(observer)) {}
  ~LookupCall() override { CmLoop::instance().unwatch(socket_.fd()); }

  int start(const sockaddr_storage& remote, const CallParameters& own, int tos) {
    if (own.private_data.size() > kMostLookupData) return EINVAL;
    if (!fill_random(&number_, sizeof number_)) return EAGAIN;
    const bool v6 = remote.ss_family == AF_INET6;
    if (tos >= 0) {
      ::setsockopt(socket_.fd(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &tos, sizeof tos);
    }
    remote_ = remote;
    request_ = encode({LookupKind::request, number_, 0, 0, own.private_data});
    if (const int error = aim(listening_port(remote, PortSpace::udp)); error != 0) return error;
    if (const int error = CmLoop::instance().watch(socket_.fd(), EPOLLIN, weak_from_this()); error != 0) return error;
    CmLoop::instance().after(std::chrono::milliseconds{0}, shared_from_this());
    return 0;
  }

  // Called by the timer and by mapper_answered(): sends the request, for the first time or again. The first call asks
  // the port mapper instead, if there may be one; mapper_answered() then calls this function again. After kPatience the
  // request fails.
  void run() override {
    if (over_) return;
    if (waited_ >= kPatience) return fail(ETIMEDOUT);
    if (!std::exchange(mapper_asked_, true) && ask_mapper()) return;
    // Finds the port again: the service may have started meanwhile, or its port may have gone to another socket.
    int error = mapped_ ? 0 : aim(listening_port(remote_, PortSpace::udp));
    if (error == 0) error = socket_.send(request_.octets());
    if (error == ECONNREFUSED) return fail(error);
    CmLoop::instance().after(pause_, shared_from_this());
    waited_ += pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }

  void ready(std::uint32_t) override {
    std::array<std::byte, kMostLookupSize> room;
    sockaddr_storage from, to;
    while (!over_) {
      const long size = socket_.receive(room, from, to);
      if (size == -EAGAIN) return;
      if (size == -ECONNREFUSED) return fail(ECONNREFUSED);
      if (size < 0 || static_cast<std::size_t>(size) > room.size()) continue;
      const auto answer = decode_lookup(Octets(room).first(static_cast<std::size_t>(size)));
      if (!answer || answer->request != number_ || answer->kind == LookupKind::request) continue;
      try {
        conclude(*answer);
      } catch (const std::exception&) {
        fail(ENOMEM);
      }
    }
  }

  int accept(const CallParameters&, std::weak_ptr<CallObserver>) override { return EINVAL; }
  int reject(const std::vector<std::byte>&) override { return EINVAL; }
  int disconnect() override { return 0; }
  sockaddr_storage local_address() const override {
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    ::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&local), &size);
    return local;
  }
  sockaddr_storage remote_address() const override { return remote_; }

 private:
  // Connects the socket to this port of the service. A connected socket receives only from this port, and the kernel
  // reports if no process has the port.
  int aim(in_port_t port) {
    if (port == aimed_at_) return 0;
    sockaddr_storage service = remote_;
    port_of(service) = port;
    if (::connect(socket_.fd(), generic(service), size_of(service)) != 0) return errno;
    aimed_at_ = port;
    return 0;
  }
  // Asks the port mapper of the service's host for the UDP port. True if a query was sent; its answer, or its timeout,
  // leads to a call of mapper_answered(). False if there is no port mapper to ask (ask_port_mapper()).
  bool ask_mapper() {
    try {
      const auto answered = [weak = weak_from_this()](in_port_t port) {
        if (const auto self = weak.lock()) self->mapper_answered(port);
      };
      query_ = ask_port_mapper(remote_, local_address(), answered, PortSpace::udp);
    } catch (const std::exception&) {  // no memory: as if there were no mapper
    }
    return query_ != nullptr;
  }
  void mapper_answered(in_port_t port) {
    query_.reset();
    if (over_) return;
    mapped_ = port != port_of(remote_);
    if (const int error = aim(port); error != 0) return fail(error);
    run();
  }
  void end() {
    over_ = true;
    query_.reset();
    CmLoop::instance().unwatch(socket_.fd());
    CmLoop::instance().cancel(*this);
  }
  void fail(int error, const CallParameters* peer = nullptr) {
    end();
    if (const auto observer = observer_.lock()) observer->failed(error, peer);
  }
  void conclude(const LookupMessage& answer) {
    CallParameters peer;
    peer.private_data.assign(answer.private_data.begin(), answer.private_data.end());
    if (answer.kind == LookupKind::rejection) return fail(ECONNREFUSED, &peer);
    peer.qp_num = answer.qp_number;
    peer.qkey = answer.qkey;
    end();
    if (const auto observer = observer_.lock()) observer->established(peer);
  }

  const LookupSocket socket_;
  const std::weak_ptr<CallObserver> observer_;
  sockaddr_storage remote_{};
  std::uint64_t number_ = 0;
  EncodedLookup request_;
  // After start() the following members are used only on the thread "uiw-cm" (provider/process/cm_loop.h).
  std::shared_ptr<PortMapperQuery> query_;
  bool mapper_asked_ = false;
  bool mapped_ = false;     // the port mapper has named a UDP port other than the service's RDMA port number
  in_port_t aimed_at_ = 0;  // the port of the service that the socket is connected to
  bool over_ = false;
  std::chrono::milliseconds pause_ = kFirstPause, waited_{0};
};

}  // namespace

int look_up(int socket, const sockaddr_storage& remote, const CallParameters& own, int tos,
            std::weak_ptr<CallObserver> observer, std::shared_ptr<Call>& request) {
  TcpStream owned(socket);  // closes the descriptor if there is no memory
  auto made = std::make_shared<LookupCall>(socket, std::move(observer));
  owned.release();
  if (const int error = made->start(remote, own, tos); error != 0) return error;
  request = std::move(made);
  return 0;
}

}  // namespace uiw::provider
