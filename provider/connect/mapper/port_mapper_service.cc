// SPDX-License-Identifier: MIT
#include "provider/connect/mapper/port_mapper_service.h"

#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/lookup/lookup_socket.h"
#include "provider/connect/mapper/port_mapper_format.h"
#include "provider/connect/rdma_port.h"
#include "provider/connect/socket_owner.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"
#include "provider/process/log.h"

namespace uiw::provider {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kHolderName = "uiw-port-mapper";
constexpr milliseconds kTryAgain{500};

// Binds a Unix socket to the abstract name kHolderName. Only one process can have this name: the holder, which is the
// process that answers requests. Nobody connects to this socket. Returns the descriptor, or a negative errno:
// -EADDRINUSE if another process has the name.
int take_holder_name() {
  const int fd =
      DescriptorChange().take(sys::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "port mapper");
  if (fd < 0) return -errno;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, kHolderName.data(), kHolderName.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kHolderName.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0) return fd;
  const int error = errno;
  close_descriptor(fd);
  return -error;
}

// Binds a UDP socket to the mapper's port, for both address families, or for IPv4 if the host has no IPv6. Returns a
// descriptor or a negative errno.
int take_port() {
  int fd = -EAFNOSUPPORT;
  for (const sa_family_t family : {sa_family_t{AF_INET6}, sa_family_t{AF_INET}}) {
    sockaddr_storage any{};
    any.ss_family = family;
    port_of(any) = htons(kPortMapperPort);
    fd = bind_lookup_socket(any, false);
    if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) break;
  }
  return fd;
}

// Finds listeners for callers on other hosts, at a limited rate: each look-up connects to Unix sockets of the
// listener's process (rdma_port.h), and callers on this host need these sockets as well.
class Directory {
 public:
  // Calls find_rdma_listener() (rdma_port.h), which finds the RDMA listener with this address and number and its TCP or
  // UDP port, and returns its result. Also returns `busy` after too many look-ups, or if the address is not known to be
  // of this host. The last result is used again for kKnown.
  RdmaListener find(const sockaddr_storage& address, PortSpace space, std::uint16_t& port) {
    const CmLoop::Clock::time_point now = CmLoop::Clock::now();
    if (known_ && now - looked_up_ < kKnown && space_ == space &&
        std::memcmp(&address_, &address, sizeof address) == 0) {
      port = port_;
      return *known_;
    }
    refill(now);
    if (tokens_ == 0) return RdmaListener::busy;
    --tokens_;
    if (!is_local_address(address).value_or(false)) return RdmaListener::busy;  // for example a broadcast address
    known_ = find_rdma_listener(address, port, space);
    if (*known_ == RdmaListener::busy) known_.reset();
    looked_up_ = now;
    address_ = address;
    space_ = space;
    port_ = port;
    return known_.value_or(RdmaListener::busy);
  }

 private:
  static constexpr milliseconds kKnown{10};
  static constexpr std::int64_t kMostTokens = 64;  // a look-up takes one token; one is added each millisecond

  void refill(CmLoop::Clock::time_point now) {
    const std::int64_t passed = std::chrono::duration_cast<milliseconds>(now - refilled_).count();
    if (passed <= 0) return;
    tokens_ = std::min(kMostTokens, tokens_ + std::min(passed, kMostTokens));
    refilled_ = now;
  }

  std::optional<RdmaListener> known_;  // result of the last look-up
  sockaddr_storage address_{};
  PortSpace space_ = PortSpace::tcp;
  std::uint16_t port_ = 0;
  CmLoop::Clock::time_point looked_up_{}, refilled_ = CmLoop::Clock::now();
  std::int64_t tokens_ = kMostTokens;
};

class Service final : public PortMapperMember,
                      public CmLoop::Handler,
                      public CmLoop::TimedTask,
                      public std::enable_shared_from_this<Service> {
 public:
  ~Service() override {
    if (socket_) CmLoop::instance().unwatch(socket_->fd());
    close();
  }

  int start() {
    int error = take();
    // When the process that has the Unix name and the UDP port exits, the name may be free a moment before the port.
    for (unsigned i = 0; error == EADDRINUSE && i < kTriesAtStart; ++i) {
      ::usleep(kPauseAtStart);
      error = take();
    }
    if (error == EALREADY) {
      CmLoop::instance().after(kTryAgain, shared_from_this());
      error = CmLoop::instance().start();
    } else if (error == EADDRINUSE) {
      report_stranger();
    }
    return error;
  }
  bool is_of_this_process() const { return generation_ == fork_generation(); }

  // Called by the timer: tries again to become the holder, the process that answers requests.
  void run() override {
    if (socket_) return;
    const int error = take();
    if (error == 0) return;
    if (error == EADDRINUSE && !std::exchange(reported_, true)) report_stranger();
    CmLoop::instance().after(kTryAgain, shared_from_this());
  }

  void ready(std::uint32_t) override {
    std::array<std::byte, kPortMapperRequestSize> room;
    sockaddr_storage from, to;
    for (unsigned i = 0; i < kMostAtATime; ++i) {  // epoll reports the socket again while datagrams are left
      const long size = socket_->receive(room, from, to);
      if (size == -EAGAIN) return;
      if (size < 0 || static_cast<std::size_t>(size) > room.size()) continue;
      auto message = decode_port_mapper(Octets(room).first(static_cast<std::size_t>(size)));
      if (!message || message->kind != PortMapperKind::request) continue;
      if (answer(*message, to)) socket_->send(encode(*message).octets(), to, from);
    }
  }

  void abandon() override { close(); }

 private:
  static constexpr unsigned kMostAtATime = 16;
  static constexpr unsigned kTriesAtStart = 5;
  static constexpr useconds_t kPauseAtStart = 2000;

  // Tries to become the holder, the process that answers requests. 0 or an errno, among them EALREADY if another uiw
  // process is the holder, and EADDRINUSE if another program has the port. To tell these two apart, the Unix name is
  // taken before the port.
  int take() {
    const int name = take_holder_name();
    if (name < 0) return name == -EADDRINUSE ? EALREADY : -name;
    const int port = take_port();
    if (port < 0) {
      close_descriptor(name);
      return -port;
    }
    name_ = name;
    socket_.emplace(port);
    if (const int error = CmLoop::instance().watch(port, EPOLLIN, weak_from_this()); error != 0) {
      close();
      return error;
    }
    log_event(LogLevel::info, "port mapper: this process answers at UDP port %u", kPortMapperPort);
    return 0;
  }

  static void report_stranger() {
    log_event(LogLevel::error,
              "port mapper: UDP port %u belongs to another program (iwpmd?), so other hosts cannot learn which TCP "
              "port an RDMA listener has",
              kPortMapperPort);
  }

  // Turns a request into its answer. False if no answer is to be sent. A request is rejected if there is no such
  // listener, or if the request's `called` is not the address to which the datagram was sent.
  bool answer(PortMapperMessage& message, const sockaddr_storage& to) {
    const sockaddr_storage asked = plain_address(to);
    if (asked.ss_family != message.called.ss_family || gid_of(generic(asked)) != gid_of(generic(message.called))) {
      message.kind = PortMapperKind::rejection;
      return true;
    }
    sockaddr_storage address = asked;
    port_of(address) = port_of(message.called);
    std::uint16_t port = 0;
    switch (directory_.find(address, message.space, port)) {
      case RdmaListener::busy: return false;
      case RdmaListener::none: message.kind = PortMapperKind::rejection; return true;
      case RdmaListener::found: break;
    }
    message.kind = PortMapperKind::accept;
    port_of(message.called) = port;
    return true;
  }

  // Closes the port before the name, since a process that takes the name expects the port to be free, too.
  void close() {
    socket_.reset();
    if (name_ >= 0) close_descriptor(std::exchange(name_, -1));
  }

  const unsigned generation_ = fork_generation();
  std::optional<LookupSocket> socket_;  // present only in the holder; does not change while it is watched
  int name_ = -1;
  Directory directory_;
  bool reported_ = false;
};

struct Known {
  Mutex mutex;
  std::weak_ptr<Service> service UIW_GUARDED_BY(mutex);
};

}  // namespace

int join_port_mapper(std::shared_ptr<PortMapperMember>& member) {
  static auto* const known = new Known;
  const LockGuard lock(known->mutex);
  auto service = known->service.lock();
  if (service == nullptr || !service->is_of_this_process()) {
    service = std::make_shared<Service>();
    if (const int error = service->start(); error != 0) return error;
    known->service = service;
  }
  member = std::move(service);
  return 0;
}

}  // namespace uiw::provider
