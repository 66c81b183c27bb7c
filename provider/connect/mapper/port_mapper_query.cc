// SPDX-License-Identifier: MIT
#include "provider/connect/mapper/port_mapper_query.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/random.h"
#include "base/stream/tcp_stream.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/lookup/lookup_socket.h"
#include "provider/connect/mapper/port_mapper_format.h"
#include "provider/connect/socket_owner.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"
#include "provider/process/log.h"

namespace uiw::provider {

namespace {

using std::chrono::milliseconds;

// The request is sent at once, and again after each of these pauses except the last. After the last pause the query
// ends.
constexpr std::array<milliseconds, 4> kPauses{milliseconds{50}, milliseconds{100}, milliseconds{200},
                                              milliseconds{150}};
static_assert(std::accumulate(kPauses.begin(), kPauses.end(), milliseconds{0}) == kMapperPatience);

// How long this process remembers that a host has refused a query, or has not answered one. A query that is sent sooner
// after a refusal would get no answer, since Linux sends a host only about one ICMP error a second. After 30 s a host
// that was silent may have started a mapper or changed its firewall.
constexpr milliseconds kRefusalStands{1000}, kSilenceStands{30'000};

// Hosts without a mapper. If the table is full, a new host replaces the one that would be forgotten next.
class Absent {
 public:
  static Absent& instance() {
    static auto* const table = new Absent;
    return *table;
  }
  bool has(const sockaddr_storage& host, PortSpace space) {
    const LockGuard lock(mutex_);
    const auto found = find(host, space);
    return found != hosts_.end() && CmLoop::Clock::now() < found->until;
  }
  void add(const sockaddr_storage& host, PortSpace space, milliseconds time) {
    const LockGuard lock(mutex_);
    auto entry = find(host, space);
    if (entry == hosts_.end()) {
      entry = std::min_element(hosts_.begin(), hosts_.end(),
                               [](const Host& one, const Host& other) { return one.until < other.until; });
    }
    *entry = {gid_of(generic(host)), scope_of(host), space, CmLoop::Clock::now() + time};
  }

 private:
  struct Host {
    Gid address{};
    std::uint32_t scope = 0;
    PortSpace space = PortSpace::tcp;  // a mapper may know only one port space
    CmLoop::Clock::time_point until{};
  };
  static constexpr std::size_t kHosts = 64;

  static std::uint32_t scope_of(const sockaddr_storage& host) {
    return host.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(host).sin6_scope_id : 0;
  }
  std::array<Host, kHosts>::iterator find(const sockaddr_storage& host, PortSpace space) UIW_REQUIRES(mutex_) {
    const Gid address = gid_of(generic(host));
    return std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& one) {
      return one.address == address && one.scope == scope_of(host) && one.space == space;
    });
  }

  Mutex mutex_;
  std::array<Host, kHosts> hosts_ UIW_GUARDED_BY(mutex_){};
};

class PortMapperQueryImpl final : public PortMapperQuery,
                                  public CmLoop::Handler,
                                  public CmLoop::TimedTask,
                                  public std::enable_shared_from_this<PortMapperQueryImpl> {
 public:
  // `caller` is the local address to which the socket `fd` is bound.
  PortMapperQueryImpl(int fd, const sockaddr_storage& caller, const sockaddr_storage& called,
                      std::function<void(in_port_t)> answered, PortSpace space)
      : socket_(fd), mapper_(called), answered_(std::move(answered)) {
    port_of(mapper_) = htons(kPortMapperPort);
    message_.space = space;
    message_.called = called;
    message_.caller = caller;
    port_of(message_.caller) = 0;  // TCP chooses the port when it connects
    message_.mapped_caller = message_.caller;
  }
  ~PortMapperQueryImpl() override { CmLoop::instance().unwatch(socket_.fd()); }

  bool start() {
    // want_errors() makes the kernel report that no process on the called host has the mapper's port. The socket is not
    // connected, since iwpmd answers from the address that its host's routing chooses. An answer from another address
    // is used if no answer comes from the address that was asked. Such an answer is trusted because it contains the
    // association of the request, a random number.
    if (const int error = socket_.want_errors(); error != 0) return false;
    if (!fill_random(&message_.association, sizeof message_.association)) return false;
    send();
    return CmLoop::instance().watch(socket_.fd(), EPOLLIN, weak_from_this()) == 0;
  }

  void run() override {
    if (answered_ == nullptr) return;
    if (sent_ < kPauses.size()) return send();
    if (elsewhere_) return accept(elsewhere_->answer, elsewhere_->from);
    Absent::instance().add(message_.called, message_.space, kSilenceStands);
    end(number());
  }

  void ready(std::uint32_t) override {
    std::array<std::byte, kPortMapperRequestSize> room;
    sockaddr_storage from, to;
    while (answered_ != nullptr) {
      const long size = socket_.receive(room, from, to);
      if (size == -EAGAIN) return;
      if (size == -EINTR) continue;
      if (size < 0) {
        Absent::instance().add(message_.called, message_.space, kRefusalStands);
        return end(number());
      }
      if (static_cast<std::size_t>(size) <= room.size()) take(Octets(room).first(static_cast<std::size_t>(size)), from);
    }
  }

 private:
  in_port_t number() { return port_of(message_.called); }

  void send() {
    socket_.send(encode(message_).octets(), message_.caller, mapper_);  // ready() sees ICMP errors; others are ignored
    CmLoop::instance().after(kPauses[sent_++], shared_from_this());
  }

  void take(Octets octets, sockaddr_storage from) {
    const auto answer = decode_port_mapper(octets);
    if (!answer || answer->association != message_.association || answer->space != message_.space) return;
    if (answer->called.ss_family != message_.called.ss_family) return;
    if (port_of(from) != htons(kPortMapperPort)) return;
    if (gid_of(generic(answer->caller)) != gid_of(generic(message_.caller))) return;
    if (answer->kind != PortMapperKind::rejection && answer->kind != PortMapperKind::accept) return;
    if (gid_of(generic(from)) == gid_of(generic(message_.called))) return accept(*answer, from);
    if (!elsewhere_) elsewhere_ = {*answer, from};
  }

  void accept(PortMapperMessage answer, const sockaddr_storage& from) {
    if (answer.kind == PortMapperKind::rejection) return end(number());
    const in_port_t port = port_of(answer.called);
    answer.kind = PortMapperKind::acknowledgement;
    socket_.send(encode(answer).octets(), message_.caller, from);
    // A mapper may name ports only of its own host.
    const bool same = gid_of(generic(answer.called)) == gid_of(generic(message_.called));
    if (!same || port == 0) return end(number());
    log_event(LogLevel::info, "port mapper: RDMA port of %s is %s port %u", AddressText(message_.called).c_str(),
              message_.space == PortSpace::tcp ? "TCP" : "UDP", ntohs(port));
    end(port);
  }

  void end(in_port_t port) {
    CmLoop::instance().unwatch(socket_.fd());
    CmLoop::instance().cancel(*this);
    std::exchange(answered_, nullptr)(port);
  }

  const LookupSocket socket_;
  sockaddr_storage mapper_;
  // Used only on the thread of CmLoop once the socket is watched or the timer is set.
  std::function<void(in_port_t)> answered_;  // empty after it was called
  PortMapperMessage message_;
  std::size_t sent_ = 0;
  struct Elsewhere {
    PortMapperMessage answer;
    sockaddr_storage from;
  };
  std::optional<Elsewhere> elsewhere_;  // the first answer from an address that was not asked
};

bool is_any(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
}

}  // namespace

std::shared_ptr<PortMapperQuery> ask_port_mapper(const sockaddr_storage& called, const sockaddr_storage& source,
                                                 std::function<void(in_port_t)> answered, PortSpace space) {
  const sockaddr_storage remote = plain_address(called);
  if (remote.ss_family != AF_INET && remote.ss_family != AF_INET6) return nullptr;
  if (is_any(remote) || Absent::instance().has(remote, space) || is_local_address(remote).value_or(true))
    return nullptr;
  sockaddr_storage local = plain_address(source);
  const bool concrete = local.ss_family == remote.ss_family && !is_any(local);
  if (choose_source(generic(remote), concrete ? generic(local) : nullptr, local) != 0) return nullptr;
  port_of(local) = 0;
  const int fd = bind_lookup_socket(local, true);
  if (fd < 0) return nullptr;
  TcpStream owned(fd);  // closes the descriptor if there is no memory
  auto made = std::make_shared<PortMapperQueryImpl>(fd, local, remote, std::move(answered), space);
  owned.release();
  return made->start() ? made : nullptr;
}

}  // namespace uiw::provider
