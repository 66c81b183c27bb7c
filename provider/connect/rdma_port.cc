// SPDX-License-Identifier: MIT
#include "provider/connect/rdma_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/system_calls.h"
#include "base/text_file.h"
#include "provider/connect/local_address.h"
#include "provider/connect/mapper/port_mapper_service.h"
#include "provider/connect/socket_owner.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

constexpr char kPurpose[] = "the number of an RDMA listener";
constexpr int kBacklog = 128;
constexpr std::uint16_t kFirstUnprivileged = 1024;
// A listener uses a substitute port if another socket has the TCP or UDP port of its RDMA port number (rdma_port.h).
// Substitute ports are below the ephemeral ports of Linux, so that they are rarely in use.
constexpr unsigned kFirstSubstitute = 10000, kSubstituteRange = 10000, kStep = 1667;

std::uint16_t number_of(sockaddr_storage address) { return ntohs(port_of(address)); }

bool is_any(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

sockaddr_storage any_of(int family, std::uint16_t number) {
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  port_of(any) = htons(number);
  return any;
}

const char* prefix_of(PortSpace space) { return space == PortSpace::tcp ? "uiw-rdma-port" : "uiw-rdma-service"; }

// The abstract name of a Unix socket: "uiw-rdma-port/<number>/<address>", or "uiw-rdma-service/<number>/<address>" in
// port space UDP. If the listener uses a substitute port, it also has a second name, which ends in "/<substitute>" (a
// number from 1 on that says which substitute port it is). `substitute` is 0 for the first name.
class Name {
 public:
  Name(PortSpace space, const sockaddr_storage& address, unsigned substitute) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* octets = address.ss_family == AF_INET6
                             ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
                             : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    ::inet_ntop(address.ss_family, octets, text.data(), text.size());
    name_.sun_family = AF_UNIX;
    int length = std::snprintf(name_.sun_path + 1, sizeof name_.sun_path - 1, "%s/%u/%s", prefix_of(space),
                               number_of(address), text.data());
    if (substitute != 0) {
      length += std::snprintf(name_.sun_path + 1 + length, sizeof name_.sun_path - 1 - static_cast<std::size_t>(length),
                              "/%u", substitute);
    }
    size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&name_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un name_{};
  socklen_t size_;
};

int open_socket() { return sys::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// The process that has bound this name; empty if there is none, or if it cannot be determined. `busy` is set if the
// listen queue of that process is full.
std::optional<ucred> holder_of(const Name& name, bool* busy = nullptr) {
  const int fd = DescriptorChange().guard(open_socket());
  if (fd < 0) return std::nullopt;
  std::optional<ucred> holder;
  if (::connect(fd, name.address(), name.size()) == 0) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) holder = peer;
  } else if (errno == EAGAIN && busy != nullptr) {
    *busy = true;
  }
  close_descriptor(fd);
  return holder;
}

// A name that this process has. Callers connect to a name only to learn its owner, so their connections are closed at
// once.
class Held final : public CmLoop::Handler {
 public:
  Held() = default;
  ~Held() override { release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  static int take(const Name& name, std::shared_ptr<Held>& held) {
    auto made = std::make_shared<Held>();
    const int fd = DescriptorChange().take(open_socket(), kPurpose);
    if (fd < 0) return errno;
    {
      const LockGuard lock(made->mutex_);
      made->fd_ = fd;
    }
    if (::bind(fd, name.address(), name.size()) != 0 || ::listen(fd, kBacklog) != 0) return errno;
    if (const int error = CmLoop::instance().watch(fd, EPOLLIN, made); error != 0) return error;
    held = std::move(made);
    return 0;
  }
  // Another socket can take the name at once, even if the thread "uiw-cm" is in ready() and keeps the object alive.
  void release() {
    const int fd = [&] {
      const LockGuard lock(mutex_);
      return std::exchange(fd_, -1);
    }();
    if (fd < 0) return;
    CmLoop::instance().unwatch(fd);
    close_descriptor(fd);
  }
  void ready(std::uint32_t) override {
    for (;;) {
      const LockGuard lock(mutex_);
      if (fd_ < 0) return;
      const int fd = DescriptorChange().guard(sys::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd < 0) return;
      close_descriptor(fd);
    }
  }
  void abandon() override {
    const LockGuard lock(mutex_);
    if (fd_ >= 0) close_descriptor(std::exchange(fd_, -1));
  }

 private:
  Mutex mutex_;
  int fd_ UIW_GUARDED_BY(mutex_) = -1;
};

class RdmaPortImpl final : public RdmaPort {
 public:
  RdmaPortImpl() = default;
  ~RdmaPortImpl() override {
    for (const std::shared_ptr<Held>& held : names_) held->release();
  }
  RdmaPortImpl(const RdmaPortImpl&) = delete;
  RdmaPortImpl& operator=(const RdmaPortImpl&) = delete;

  int announce() { return join_port_mapper(member_); }
  int take(const Name& name) {
    std::shared_ptr<Held> held;
    const int error = Held::take(name, held);
    if (error == 0) names_.push_back(std::move(held));
    return error;
  }
  void abandon() override {
    for (const std::shared_ptr<Held>& held : names_) held->abandon();
    if (member_ != nullptr) member_->abandon();
  }

 private:
  std::shared_ptr<PortMapperMember> member_;
  std::vector<std::shared_ptr<Held>> names_;
};

bool is_held_by_another(const Name& name) {
  const auto holder = holder_of(name);
  return holder && holder->pid != ::getpid();
}

// Whether another process has taken the RDMA port number for a single address of this family, or for all of them.
bool is_taken_for_some_address(PortSpace space, int family, std::uint16_t number) {
  std::array<char, 64> wanted{};
  const int length = std::snprintf(wanted.data(), wanted.size(), "@%s/%u/", prefix_of(space), number);
  const TextFile file = open_text_file("/proc/net/unix");
  if (file == nullptr) return false;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    const char* found = std::strstr(line.data(), wanted.data());
    if (found == nullptr) continue;
    // In the name the address follows the number. If a slash follows the address, this is the second name of a listener
    // that uses a substitute port (rdma_port.h). It is skipped, since the first name of this listener is listed, too.
    std::array<char, INET6_ADDRSTRLEN> text{};
    found += length;
    const std::size_t size = std::strcspn(found, "/\n");
    if (size >= text.size() || found[size] == '/') continue;
    std::memcpy(text.data(), found, size);
    sockaddr_storage address = any_of(family, number);
    void* octets = family == AF_INET6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr)
                                      : &reinterpret_cast<sockaddr_in&>(address).sin_addr;
    if (::inet_pton(family, text.data(), octets) != 1) continue;
    if (is_held_by_another(Name(space, address, 0))) return true;
  }
  return false;
}

// The addresses for which a listener on `address` takes names: the IPv6 wildcard also stands for IPv4 unless `v6only`.
std::vector<sockaddr_storage> addresses_of(const sockaddr_storage& address, bool v6only) {
  std::vector<sockaddr_storage> addresses{plain_address(address)};
  if (address.ss_family == AF_INET6 && is_any(addresses.front()) && !v6only)
    addresses.push_back(any_of(AF_INET, number_of(address)));
  return addresses;
}

// Compares the users too, since processes of other PID namespaces all have the process id 0 here.
bool is_same(const ucred& one, const ucred& other) { return one.pid == other.pid && one.uid == other.uid; }

bool is_trusted(const ucred& holder) { return holder.uid == 0 || holder.uid == ::geteuid(); }

}  // namespace

std::uint16_t substitute_port(std::uint16_t number, unsigned substitute) {
  return static_cast<std::uint16_t>(kFirstSubstitute + (number + kStep * substitute) % kSubstituteRange);
}

int check_rdma_port(const sockaddr_storage& address, bool v6only, PortSpace space) {
  for (const sockaddr_storage& one : addresses_of(address, v6only)) {
    if (is_any(one)) {
      if (is_taken_for_some_address(space, one.ss_family, number_of(one))) return EADDRNOTAVAIL;
    } else {
      if (is_held_by_another(Name(space, any_of(one.ss_family, number_of(one)), 0))) return EADDRNOTAVAIL;
      if (is_held_by_another(Name(space, one, 0))) return EADDRINUSE;
    }
  }
  return 0;
}

int take_rdma_port(const sockaddr_storage& address, bool v6only, unsigned substitute, std::shared_ptr<RdmaPort>& taken,
                   PortSpace space) {
  if (const int error = check_rdma_port(address, v6only, space); error != 0) return error;
  auto made = std::make_shared<RdmaPortImpl>();
  for (const sockaddr_storage& one : addresses_of(address, v6only)) {
    const int error = made->take(Name(space, one, 0));
    if (error != 0) return error == EADDRINUSE && is_any(one) ? EADDRNOTAVAIL : error;
    if (substitute == 0) continue;
    if (const int failed = made->take(Name(space, one, substitute)); failed != 0) return failed;
  }
  if (substitute != 0 && !is_loopback(plain_address(address))) {
    if (const int error = made->announce(); error != 0) return error;
  }
  taken = std::move(made);
  return 0;
}

RdmaListener find_rdma_listener(const sockaddr_storage& address, std::uint16_t& port, PortSpace space) {
  sockaddr_storage called = plain_address(address);
  port = port_of(called);
  if (called.ss_family != AF_INET && called.ss_family != AF_INET6) return RdmaListener::none;
  const std::uint16_t number = ntohs(port);
  const sockaddr_storage any = any_of(called.ss_family, number);
  bool busy = false;
  const auto for_address = holder_of(Name(space, called, 0), &busy), for_any = holder_of(Name(space, any, 0), &busy);
  if (busy) return RdmaListener::busy;
  if ((!for_address && !for_any) || !is_local_address(called).value_or(true)) return RdmaListener::none;
  const bool contradict = for_address && for_any && for_address->uid != for_any->uid;
  const bool take_address = for_address && (!contradict || is_trusted(*for_address));
  const ucred holder = take_address ? *for_address : for_any.value_or(ucred{});
  if ((contradict || number < kFirstUnprivileged) && !is_trusted(holder)) return RdmaListener::none;
  for (unsigned substitute = 1; substitute <= kSubstitutePorts; ++substitute) {
    const auto same = holder_of(Name(space, take_address ? called : any, substitute), &busy);
    if (!same || !is_same(*same, holder)) continue;
    port = htons(substitute_port(number, substitute));
    return RdmaListener::found;
  }
  return busy ? RdmaListener::busy : RdmaListener::found;
}

std::uint16_t listening_port(const sockaddr_storage& address, PortSpace space) {
  std::uint16_t port = 0;
  find_rdma_listener(address, port, space);
  return port;
}

}  // namespace uiw::provider
