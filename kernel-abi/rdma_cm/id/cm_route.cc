// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_route.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/local_address.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/connect/neighbour.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"

namespace uiw::kernel_abi {
namespace {

// The range from which the kernel chooses ports by default.
constexpr std::uint16_t kFirstAnyPort = 32768;
constexpr std::uint16_t kLastAnyPort = 60999;

}  // namespace

bool CmRoute::is_reliable() const {
  return qp_type_ == IBV_QPT_RC || qp_type_ == IBV_QPT_XRC_SEND || qp_type_ == IBV_QPT_XRC_RECV;
}

bool CmRoute::uses_tcp() const { return port_space_ == RDMA_PS_TCP || (port_space_ == RDMA_PS_IB && is_reliable()); }

bool looks_up(const CmRoute& route) {
  return route.port_space() == RDMA_PS_UDP && provider::settings().values.transport == provider::Transport::roce;
}

namespace {

provider::PortSpace number_space(const CmRoute& route) {
  return looks_up(route) ? provider::PortSpace::udp : provider::PortSpace::tcp;
}

int bind_socket(const CmRoute& route, sockaddr_storage& address, bool v6only) {
  return looks_up(route) ? provider::bind_lookup_socket(address, v6only) : provider::bind_socket(address, v6only);
}

}  // namespace

bool CmRoute::is_roce() const { return device_ && device_->transport == provider::Transport::roce; }

RocePath CmRoute::make_path(const provider::DeviceInfo& device) const {
  const sockaddr_storage source = unmapped(source_), destination = unmapped(destination_);
  const auto traffic_class = static_cast<std::uint8_t>(type_of_service_ < 0 ? 0 : type_of_service_);
  return kernel_abi::make_path(device, generic(source), generic(destination), traffic_class, ack_timeout_.value_or(0));
}

int CmRoute::acquire_device(const sockaddr_storage& local) {
  const sockaddr_storage plain = unmapped(local);
  const provider::DeviceInfo device = provider::device_of(generic(plain));
  if (device.name.empty()) return ENODEV;
  if (port_space_ == RDMA_PS_IPOIB) return EINVAL;  // this port space needs an InfiniBand interface
  device_ = {device.guid, device.ifindex, device.transport, &provider::port_counters(device.name)};
  return 0;
}

int CmRoute::make_socket(const sockaddr_storage& address) {
  sockaddr_storage bound = address;
  const bool v6only = family_only_.value_or(false);
  const int fd = bind_socket(*this, bound, v6only);
  if (fd == -EADDRINUSE && port_of(address) != 0) return make_substitute_socket(address);
  if (fd < 0) return -fd;
  socket_ = fd;
  const LockGuard lock(g_registry_lock);
  if (binding_) binding_->address = bound;
  set_port(source_, port_of(bound));
  return 0;
}

// Binds a socket to a substitute port (provider/connect/rdma_port.h). The port in the source address stays the RDMA
// port number.
int CmRoute::make_substitute_socket(const sockaddr_storage& address) {
  const bool v6only = family_only_.value_or(false);
  for (unsigned substitute = 1; substitute <= provider::kSubstitutePorts; ++substitute) {
    const std::uint16_t number = port_of(address), port = provider::substitute_port(number, substitute);
    sockaddr_storage bound = address;
    set_port(bound, port);
    const int fd = bind_socket(*this, bound, v6only);
    if (fd == -EADDRINUSE) continue;
    if (fd < 0) return -fd;
    const int error = provider::take_rdma_port(address, v6only, substitute, rdma_port_, number_space(*this));
    if (error != 0) {
      close_descriptor(fd);
      return error;
    }
    socket_ = fd;
    substitute_ = substitute;
    provider::log_event(provider::LogLevel::info,
                        "rdma_cm: %s port %u belongs to another socket, so RDMA port %u is %s port %u",
                        uses_tcp() ? "TCP" : "UDP", number, number, uses_tcp() ? "TCP" : "UDP", port);
    return 0;
  }
  return EADDRINUSE;
}

// Reserves the port for this id. Two ids of one process may share a port of an address only if both have
// RDMA_OPTION_ID_REUSEADDR (CmRegistry::check_port()). The kernel does not check this, since all TCP sockets of ids
// have SO_REUSEADDR.
int CmRoute::claim(const CmBinding& binding) {
  CmRegistry& registry = CmRegistry::instance();
  const LockGuard lock(g_registry_lock);
  const int error = port_of(binding.address) != 0 ? registry.check_port(*this, binding) : 0;
  if (error == 0) binding_ = binding;
  return error;
}

int CmRoute::claim_to_listen() {
  if (!reuse_address_) return 0;
  CmBinding alone;
  {
    const LockGuard lock(g_registry_lock);
    if (!binding_) return 0;
    alone = *binding_;
  }
  alone.reuse = false;
  const int error = claim(alone);
  if (error == 0) reuse_address_ = false;
  return error;
}

int CmRoute::claim_pseudo_port(sockaddr_storage& address) {
  const bool any = port_of(address) == 0;
  std::uint16_t port = any ? kFirstAnyPort : port_of(address);
  for (;; ++port) {
    set_port(address, port);
    const int error = claim({address, reuse_address_, family_only_.value_or(false)});
    if (error == 0 || !any) return error;
    if (port == kLastAnyPort) return EADDRNOTAVAIL;
  }
}

// Binds to an AF_IB address. The wildcard is accepted on any host; librdmacm binds to it to find out whether the kernel
// supports the family. A concrete GID would need an InfiniBand port.
int CmRoute::bind_ib(sockaddr_storage& address) {
  constexpr std::uint64_t kSpaceMask = 0xffff'ffff'ffff'0000U;
  if (!is_wildcard(address)) return ENODEV;
  sockaddr_ib ib;
  std::memcpy(&ib, &address, sizeof ib);
  const std::uint64_t mask = be64toh(ib.sib_sid_mask) & kSpaceMask;
  const std::uint64_t asked = be64toh(ib.sib_sid) & mask;
  std::uint64_t space = 0;
  for (const std::uint64_t candidate : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP}) {
    if (port_space_ != RDMA_PS_IB && port_space_ != candidate) continue;
    if (asked != (candidate << 16 & mask)) continue;
    space = candidate << 16;
    break;
  }
  if (space == 0) return EPROTONOSUPPORT;
  const std::uint16_t port = port_of(address);
  ib.sib_sid = htobe64(space | port);
  ib.sib_sid_mask = htobe64(kSpaceMask | be64toh(ib.sib_sid_mask));
  std::memcpy(&address, &ib, sizeof ib);
  return claim_pseudo_port(address);
}

int CmRoute::bind_ip(sockaddr_storage& address) {
  if (!is_wildcard(address)) {
    // In cma.c an id that is bound to a loopback address gets no device. Here such an id gets one unless the port is 0:
    // some servers look at the device after they have bound to a port, and programs bind to port 0 to learn which
    // devices there are.
    const bool loopback = is_loopback(address);
    int error = loopback && port_of(address) == 0 ? 0 : acquire_device(address);
    if (error == ENODEV) {
      sockaddr_storage probe = address;
      set_port(probe, 0);
      const int fd = provider::bind_socket(probe, false);
      if (fd < 0) return -fd;  // the address does not belong to this host
      close_descriptor(fd);
      if (loopback) error = 0;
    }
    if (error != 0) return error;
  }
  if (!uses_tcp() && !looks_up(*this)) return claim_pseudo_port(address);
  if (const int error = claim({address, reuse_address_, family_only_.value_or(false)}); error != 0) return error;
  source_ = address;
  int error = make_socket(address);
  if (error == 0 && port_of(address) != 0) error = hold_number();
  if (error != 0) {
    if (socket_ >= 0) close_descriptor(std::exchange(socket_, -1));
    return error;
  }
  address = source_;
  return 0;
}

// Takes the RDMA port number, so that no other id of any process can bind to it. An id with RDMA_OPTION_ID_REUSEADDR
// only checks that the number is free, and takes it when it listens. Not called for a port that the kernel has chosen:
// hardly anybody else binds to such a port, and the number would cost each active id a descriptor. If the thread
// "uiw-cm" cannot be started (EAGAIN), which take_rdma_port() needs, the id is bound but cannot listen.
int CmRoute::hold_number() {
  if (!reuse_address_) {
    const int error = take_number();
    return error == EAGAIN ? 0 : error;
  }
  return provider::check_rdma_port(source_, family_only_.value_or(false), number_space(*this));
}

int CmRoute::bind_locally(sockaddr_storage address) {
  if (lacks_scope(address)) return EINVAL;
  const int error = address.ss_family == AF_IB ? bind_ib(address) : bind_ip(address);
  if (error != 0) return error;
  source_ = address;
  destination_ = {};
  destination_.ss_family = address.ss_family;
  return 0;
}

int CmRoute::bind(const sockaddr_storage& address) {
  int error;
  try {
    error = bind_locally(address);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    source_ = {};
    device_.reset();
    rdma_port_.reset();
  }
  return error;
}

int CmRoute::resolve(const sockaddr_storage& destination, int& reported) {
  reported = 0;
  if (source_.ss_family != destination.ss_family) return EINVAL;
  if (destination.ss_family == AF_IB) return ENODEV;

  const sockaddr_storage target =
      is_wildcard(destination) ? loopback_of(destination.ss_family, port_of(destination)) : destination;
  const bool chosen_by_program = !is_wildcard(source_);
  sockaddr_storage local = {};
  const int unreachable =
      provider::choose_source(generic(target), chosen_by_program ? generic(source_) : nullptr, local);
  if (unreachable != 0) return unreachable;

  // The errors from here on go into `reported`, since the kernel reports them by an event, too.
  if (!chosen_by_program) set_port(local, port_of(source_));
  if (!chosen_by_program || !device_) reported = acquire_device(chosen_by_program ? source_ : local);
  if (reported == 0) {
    if (!chosen_by_program) source_ = local;
    destination_ = destination;
  }
  return 0;
}

void CmRoute::set_ends(const Ends& ends) {
  source_ = ends.source;
  destination_ = ends.destination;
  device_ = ends.device;
}

int CmRoute::look_at_neighbour() const {
  if (is_wildcard(destination_)) return 0;
  return provider::look_at_neighbour(unmapped(source_), unmapped(destination_));
}

int CmRoute::find_path(std::optional<RocePath>& path) const {
  if (!is_roce()) return 0;
  const sockaddr_storage local = unmapped(source_);
  const provider::DeviceInfo device = provider::device_of(generic(local));
  if (device.name.empty()) return ENODEV;
  path = make_path(device);
  return 0;
}

void CmRoute::settle_destination() {
  if (is_wildcard(destination_)) destination_ = loopback_of(destination_.ss_family, port_of(destination_));
}

void CmRoute::adopt(const CmRoute& listener, const sockaddr_storage& local, const sockaddr_storage& remote,
                    const provider::DeviceInfo& device) {
  source_ = local;
  destination_ = remote;
  device_ = {device.guid, device.ifindex, device.transport, &provider::port_counters(device.name)};
  type_of_service_ = listener.type_of_service_;
  ack_timeout_ = listener.ack_timeout_;
  if (is_roce()) path_ = make_path(device);
}

int CmRoute::take_socket() {
  if (socket_ < 0) {
    if (const int error = make_socket(source_); error != 0) return -error;
  }
  return std::exchange(socket_, -1);
}

// Takes the RDMA port number, unless this id has it already, or the parent of this process has it: renew() takes it
// when the parent has ended.
int CmRoute::take_number() {
  if (rdma_port_ != nullptr || lacks_number_) return 0;
  return provider::take_rdma_port(source_, family_only_.value_or(false), 0, rdma_port_, number_space(*this));
}

int CmRoute::give_way() {
  if ((!uses_tcp() && !looks_up(*this)) || substitute_ != 0) return EINVAL;
  // The RDMA port number is free only until make_substitute_socket() takes it again, for the substitute port.
  const bool listens = rdma_port_ != nullptr;
  rdma_port_.reset();
  const int before = std::exchange(socket_, -1);
  const int error = make_substitute_socket(source_);
  if (error != 0) {
    socket_ = before;
    if (listens) take_number();
    return error;
  }
  if (before >= 0) close_descriptor(before);
  return 0;
}

void CmRoute::inherit() {
  socket_ = DescriptorChange().guard(socket_);
  if (rdma_port_ == nullptr) return;
  rdma_port_->abandon();
  rdma_port_.reset();
  lacks_number_ = true;
}

// Tries a thousand times, with pauses of a millisecond: the kernel closes the descriptors of an ended process one after
// the other, so the parent may keep the number a little longer.
int CmRoute::renew() {
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr int kMostPauses = 1000;
  if (rdma_port_ != nullptr) lacks_number_ = false;  // give_way() has taken the number meanwhile
  if (!lacks_number_) return 0;
  int error = 0;
  const auto is_taken = [&error] { return error == EADDRINUSE || error == EADDRNOTAVAIL; };
  for (int pauses = 0; pauses < kMostPauses; ++pauses) {
    error =
        provider::take_rdma_port(source_, family_only_.value_or(false), substitute_, rdma_port_, number_space(*this));
    if (!is_taken()) break;
    std::this_thread::sleep_for(kPause);
  }
  // Another child of the same parent may have taken the number. If it uses the same substitute port, it listens on the
  // socket that both children have inherited: peers that look up the number reach this socket, so this is no error.
  if (is_taken() && has_substitute()) {
    const std::uint16_t number = port_of(source_);
    const sockaddr_storage called = is_wildcard(source_) ? loopback_of(source_.ss_family, number) : source_;
    const auto port = ntohs(provider::listening_port(called, number_space(*this)));
    if (port == provider::substitute_port(number, substitute_)) error = 0;
  }
  lacks_number_ = error != 0;
  return error;
}

int CmRoute::set_ack_timeout(std::uint8_t value) {
  if (!is_reliable()) return EINVAL;
  ack_timeout_ = value;
  return 0;
}

int CmRoute::set_family_only(bool value) {
  const bool before = family_only_.value_or(false);
  family_only_ = value;
  if (socket_ < 0 || source_.ss_family != AF_INET6 || before == value) return 0;
  // The kernel accepts IPV6_V6ONLY only before bind(), so a new socket is made.
  close_descriptor(std::exchange(socket_, -1));
  const bool held = rdma_port_ != nullptr;
  rdma_port_.reset();
  substitute_ = 0;
  const int error = make_socket(source_);
  return error == 0 && held ? hold_number() : error;
}

void CmRoute::set_reuse_address(bool value) {
  reuse_address_ = value;
  if (binding_) binding_->reuse = value;
}

void CmRoute::set_binding_v6only(bool value) {
  if (binding_) binding_->v6only = value;
}

CmRoute::Detached CmRoute::detach() {
  binding_.reset();
  return {std::exchange(socket_, -1), std::move(rdma_port_)};
}

}  // namespace uiw::kernel_abi
