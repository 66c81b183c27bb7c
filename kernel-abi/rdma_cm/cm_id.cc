// SPDX-License-Identifier: MIT
// How does an id get its address, its device and its port, and how does it end? (cma.c: rdma_bind_addr,
// rdma_resolve_addr, rdma_resolve_route, the options.)
#include "kernel-abi/rdma_cm/cm_id.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "mpa/descriptor.h"
#include "provider/connect/local_address.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {
namespace {

// The ports that the kernel gives to who asks for any.
constexpr std::uint16_t kFirstAnyPort = 32768;
constexpr std::uint16_t kLastAnyPort = 60999;

}  // namespace

CmId::CmId(std::uint32_t number, std::shared_ptr<CmChannel> channel, const CmIdParameters& parameters)
    : number_(number),
      port_space_(parameters.port_space),
      qp_type_(parameters.qp_type),
      channel_(std::move(channel)),
      uid_(parameters.uid) {}

CmId::~CmId() = default;

bool CmId::exchange_state(CmState from, CmState to) {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (state_ != from) return false;
  state_ = to;
  return true;
}

bool CmId::is_reliable() const { return qp_type_ == IBV_QPT_RC; }

// An iWARP connection is a TCP connection; the other port spaces exist, and have nothing on the wire.
bool CmId::uses_tcp() const {
  return port_space_ == RDMA_PS_TCP || (port_space_ == RDMA_PS_IB && is_reliable());
}

bool CmId::is_roce() const { return device_ && device_->transport == provider::Transport::roce; }

RocePath CmId::make_path(const provider::DeviceInfo& device) const {
  const sockaddr_storage source = unmapped(source_), destination = unmapped(destination_);
  const auto traffic_class = static_cast<std::uint8_t>(type_of_service_ < 0 ? 0 : type_of_service_);
  return kernel_abi::make_path(device, generic(source), generic(destination), traffic_class,
                               ack_timeout_.value_or(0));
}

int CmId::acquire_device(const sockaddr_storage& local) {
  const sockaddr_storage plain = unmapped(local);
  const provider::DeviceInfo device = provider::device_of(generic(plain));
  if (device.name.empty()) return ENODEV;
  if (port_space_ == RDMA_PS_IPOIB) return EINVAL;  // needs an InfiniBand interface
  device_ = {device.guid, device.ifindex, device.transport};
  return 0;
}

int CmId::make_socket(const sockaddr_storage& address) {
  sockaddr_storage bound = address;
  const int fd = provider::bind_socket(bound, family_only_.value_or(false));
  if (fd < 0) return -fd;
  socket_ = fd;
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (binding_) binding_->address = bound;
  set_port(source_, port_of(bound));
  return 0;
}

// Two ids of one process do not share a port, although their sockets, which all have SO_REUSEADDR, could.
int CmId::claim(const CmBinding& binding) {
  CmRegistry& registry = CmRegistry::instance();
  const std::lock_guard lock(registry.mutex());
  if (port_of(binding.address) != 0 && registry.port_is_taken(*this, binding)) return EADDRINUSE;
  binding_ = binding;
  return 0;
}

int CmId::claim_pseudo_port(sockaddr_storage& address) {
  const bool any = port_of(address) == 0;
  std::uint16_t port = any ? kFirstAnyPort : port_of(address);
  for (;; ++port) {
    set_port(address, port);
    const int error = claim({address, reuse_address_, family_only_.value_or(false)});
    if (error == 0 || !any) return error;
    if (port == kLastAnyPort) return EADDRNOTAVAIL;
  }
}

// AF_IB: the wildcard is good for any host, which is how librdmacm finds out that the kernel knows the
// family. A concrete GID would need an InfiniBand port.
int CmId::bind_ib(sockaddr_storage& address) {
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

int CmId::bind_ip(sockaddr_storage& address) {
  if (!is_wildcard(address)) {
    const int error = acquire_device(address);
    if (error == ENODEV) {
      sockaddr_storage probe = address;
      set_port(probe, 0);
      const int fd = provider::bind_socket(probe, false);
      if (fd < 0) return -fd;  // the address is not this host's
      mpa::close_descriptor(fd);
    }
    if (error != 0) return error;
  }
  if (!uses_tcp()) return claim_pseudo_port(address);
  if (const int error = claim({address, reuse_address_, family_only_.value_or(false)}); error != 0)
    return error;
  source_ = address;
  if (const int error = make_socket(address); error != 0) return error;
  address = source_;
  return 0;
}

int CmId::bind_locally(sockaddr_storage address) {
  if (lacks_scope(address)) return EINVAL;
  const int error = address.ss_family == AF_IB ? bind_ib(address) : bind_ip(address);
  if (error != 0) return error;
  source_ = address;
  destination_ = {};
  destination_.ss_family = address.ss_family;
  return 0;
}

int CmId::bind(const sockaddr_storage& address) {
  if (address_size(address.ss_family) == 0) return EAFNOSUPPORT;
  if (!exchange_state(CmState::idle, CmState::addr_bound)) return EINVAL;
  int error;
  try {
    error = bind_locally(address);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    source_ = {};
    device_.reset();
    const std::lock_guard lock(CmRegistry::instance().mutex());
    binding_.reset();
    state_ = CmState::idle;
  }
  return error;
}

int CmId::resolve_addr(const sockaddr_storage& source, const sockaddr_storage& destination) {
  CmState state;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    state = state_;
    provide_events(1);
  }
  if (state == CmState::idle) {
    const sockaddr_storage local = source.ss_family != 0 ? source : wildcard_of(destination.ss_family);
    if (const int error = bind(local); error != 0) return error;
  } else if (state != CmState::addr_bound) {
    return EINVAL;
  }
  if (source_.ss_family != destination.ss_family) return EINVAL;
  if (destination.ss_family == AF_IB) return ENODEV;

  const sockaddr_storage target =
      is_wildcard(destination) ? loopback_of(destination.ss_family, port_of(destination)) : destination;
  const bool chosen_by_program = !is_wildcard(source_);
  sockaddr_storage local = {};
  const int unreachable =
      provider::choose_source(generic(target), chosen_by_program ? generic(source_) : nullptr, local);
  if (unreachable != 0) return unreachable;

  // From here on the kernel answers by an event.
  int error = 0;
  if (!chosen_by_program) {
    set_port(local, port_of(source_));
    error = acquire_device(local);
  }
  if (error == 0) {
    if (!chosen_by_program) source_ = local;
    destination_ = destination;
  }
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (error == 0) state_ = CmState::addr_resolved;
  post(error == 0 ? CmEventType::addr_resolved : CmEventType::addr_error, -error);
  return 0;
}

int CmId::resolve_route() {
  if (!has_device()) return EINVAL;
  std::optional<RocePath> path;
  if (is_roce()) {
    const sockaddr_storage local = unmapped(source_);
    const provider::DeviceInfo device = provider::device_of(generic(local));
    if (device.name.empty()) return ENODEV;
    path = make_path(device);
  }
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (state_ != CmState::addr_resolved) return EINVAL;
  provide_events(1);
  path_ = path;
  state_ = CmState::route_resolved;
  post(CmEventType::route_resolved, 0);
  return 0;
}

int CmId::set_type_of_service(std::uint8_t value) {
  type_of_service_ = value;
  return 0;
}

int CmId::set_reuse_address(bool value) {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (state_ != CmState::idle && (!value || state_ == CmState::listen)) return EINVAL;
  reuse_address_ = value;
  if (binding_) binding_->reuse = value;
  return 0;
}

int CmId::set_address_family_only(bool value) {
  CmState state;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    state = state_;
    if (binding_) binding_->v6only = value;
  }
  if (state != CmState::idle && state != CmState::addr_bound) return EINVAL;
  const bool before = family_only_.value_or(false);
  family_only_ = value;
  if (socket_ < 0 || source_.ss_family != AF_INET6 || before == value) return 0;
  // TCP takes the option only before a bind.
  mpa::close_descriptor(std::exchange(socket_, -1));
  return make_socket(source_);
}

int CmId::set_ack_timeout(std::uint8_t value) {
  if (!is_reliable()) return EINVAL;
  ack_timeout_ = value;
  return 0;
}

// A program may bring the path itself. On Ethernet there is only one, the host's, so that one it is.
int CmId::set_ib_path(const std::vector<std::uint8_t>& records) {
  if (!is_roce() || records.size() % sizeof(ib_path_rec_data) != 0) return EINVAL;
  for (std::size_t at = 0; at < records.size(); at += sizeof(ib_path_rec_data)) {
    ib_path_rec_data record;
    std::memcpy(&record, records.data() + at, sizeof record);
    if (record.flags == (IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL)) return resolve_route();
  }
  return EINVAL;
}

int CmId::join_multicast() {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (!has_device() || (state_ != CmState::addr_bound && state_ != CmState::addr_resolved)) return EINVAL;
  if (qp_type_ != IBV_QPT_UD) return EINVAL;
  return ENOSYS;  // iWARP has no multicast
}

int CmId::resolve_ib_service() {
  const std::lock_guard lock(CmRegistry::instance().mutex());
  if (!has_device() || state_ != CmState::addr_bound) return EINVAL;
  return EOPNOTSUPP;  // iWARP has no subnet administrator
}

CmRemains CmId::destroy() {
  state_ = CmState::destroyed;
  return let_go();
}

CmRemains CmId::let_go() {
  binding_.reset();
  return {std::move(listener_), std::move(connection_), std::exchange(stream_, StreamState::ended),
          std::exchange(socket_, -1), events_reported_};
}

// An unanswered call is rejected and an established connection ends, as when the kernel's id goes.
void CmId::bury(CmRemains remains) {
  remains.listener.reset();
  if (remains.connection != nullptr) {
    if (remains.stream == StreamState::requested) remains.connection->reject({});
    if (remains.stream == StreamState::established) remains.connection->disconnect();
    remains.connection.reset();
  }
  if (remains.socket >= 0) mpa::close_descriptor(remains.socket);
}

// As ucma.c and cma.c do it: the event, then the end of all that the id stood for.
void CmId::interface_removed(unsigned ifindex) {
  const std::lock_guard command(command_mutex_);
  if (!device_ || device_->ifindex != ifindex) return;
  CmRemains remains;
  {
    const std::lock_guard lock(CmRegistry::instance().mutex());
    if (is_destroyed() || removed_) return;
    post(CmEventType::device_removal, 0);
    removed_ = true;
    remains = let_go();
  }
  bury(std::move(remains));
}

void CmId::abandon() {
  if (socket_ >= 0) mpa::close_descriptor(std::exchange(socket_, -1));
}

}  // namespace uiw::kernel_abi
