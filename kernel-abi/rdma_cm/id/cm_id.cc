// SPDX-License-Identifier: MIT
// The states of an id, its commands for addresses and options (cma.c: rdma_bind_addr, rdma_resolve_addr,
// rdma_resolve_route, the options), and its end.
#include "kernel-abi/rdma_cm/id/cm_id.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/neighbour.h"
#include "provider/process/cm_loop.h"
#include "provider/process/log.h"

namespace uiw::kernel_abi {

CmId::CmId(std::uint32_t number, std::shared_ptr<CmChannel> channel, const CmIdParameters& parameters)
    : number_(number),
      route_(parameters.port_space, parameters.qp_type),
      events_(number, std::move(channel), parameters.uid),
      connection_(*this),
      listener_(*this),
      groups_(*this) {}

CmId::~CmId() = default;

bool CmId::exchange_state(CmState from, CmState to) {
  const LockGuard lock(g_registry_lock);
  if (state_ != from) return false;
  state_ = to;
  return true;
}

void CmId::report(CmEventType event, int status, const CmEventParameters& parameters) {
  if (state_ == CmState::destroyed || removed_) return;
  events_.post(shared_from_this(), event, status, parameters);
}

int CmId::bind(const sockaddr_storage& address) {
  if (address_size(address.ss_family) == 0) return EAFNOSUPPORT;
  if (!exchange_state(CmState::idle, CmState::addr_bound)) return EINVAL;
  const int error = route_.bind(address);
  if (error != 0) {
    const LockGuard lock(g_registry_lock);
    route_.release_binding();
    state_ = CmState::idle;
  }
  return error;
}

// An address resolution that waits for the link-layer address of the next hop. A timer on the thread "uiw-cm" calls
// run(), which looks whether the kernel knows the address by now.
class CmId::Resolution final : public provider::CmLoop::TimedTask,
                               public std::enable_shared_from_this<CmId::Resolution> {
 public:
  using Clock = provider::CmLoop::Clock;

  Resolution(std::weak_ptr<CmId> id, const CmRoute::Ends& before_it, std::chrono::milliseconds patience)
      : before(before_it), end(Clock::now() + patience), id_(std::move(id)) {}
  void run() override {
    const std::shared_ptr<CmId> id = id_.lock();
    if (id != nullptr && id->resolution_goes_on(*this)) wait();
  }
  void wait() {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const auto pause = std::min(provider::neighbour_pause(asked_++), left);
    provider::CmLoop::instance().after(std::max(pause, std::chrono::milliseconds(0)), shared_from_this());
  }

  const CmRoute::Ends before;  // the route before the resolution
  const Clock::time_point end;

 private:
  const std::weak_ptr<CmId> id_;
  unsigned asked_ = 0;
};

int CmId::resolve_addr(const sockaddr_storage& source, const sockaddr_storage& destination,
                       std::chrono::milliseconds patience) {
  CmState state;
  {
    const LockGuard lock(g_registry_lock);
    state = state_;
    events_.reserve(1);
  }
  if (state == CmState::idle) {
    const sockaddr_storage local = source.ss_family != 0 ? source : wildcard_of(destination.ss_family);
    if (const int error = bind(local); error != 0) return error;
  } else if (state != CmState::addr_bound) {
    return EINVAL;
  }
  const CmRoute::Ends before = route_.ends();
  int reported;
  if (const int error = route_.resolve(destination, reported); error != 0) return error;
  if (reported == 0) {
    const int error = route_.look_at_neighbour();
    if (error == EINPROGRESS) return begin_resolution(before, patience);
    if (error != 0) {
      route_.set_ends(before);
      return error;
    }
  }
  const LockGuard lock(g_registry_lock);
  if (reported == 0) state_ = CmState::addr_resolved;
  report(reported == 0 ? CmEventType::addr_resolved : CmEventType::addr_error, -reported);
  return 0;
}

int CmId::begin_resolution(const CmRoute::Ends& before, std::chrono::milliseconds patience) {
  int error;
  try {
    resolution_ = std::make_shared<Resolution>(weak_from_this(), before, patience);
    error = provider::CmLoop::instance().start();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    route_.set_ends(before);
    return error;
  }
  {
    const LockGuard lock(g_registry_lock);
    state_ = CmState::addr_query;
  }
  resolution_->wait();
  return 0;
}

// Asks whether the link-layer address of the next hop is known now, as the kernel does (core/addr.c). True if the
// address is still unknown and the timeout of RESOLVE_ADDR has not passed. Otherwise reports the result by an event,
// unless this resolution is no longer the current one.
bool CmId::resolution_goes_on(Resolution& resolution) {
  const LockGuard command(command_mutex_);
  {
    const LockGuard lock(g_registry_lock);
    if (state_ != CmState::addr_query || removed_ || resolution_.get() != &resolution) return false;
  }
  int error = route_.look_at_neighbour();
  if (error == EINPROGRESS) {
    if (Resolution::Clock::now() < resolution.end) return true;
    error = ETIMEDOUT;
  }
  if (error != 0) route_.set_ends(resolution.before);
  const LockGuard lock(g_registry_lock);
  state_ = error == 0 ? CmState::addr_resolved : CmState::addr_bound;
  report(error == 0 ? CmEventType::addr_resolved : CmEventType::addr_error, -error);
  return false;
}

int CmId::resolve_route() {
  if (!route_.has_device()) return EINVAL;
  std::optional<RocePath> path;
  if (const int error = route_.find_path(path); error != 0) return error;
  const LockGuard lock(g_registry_lock);
  if (state_ != CmState::addr_resolved) return EINVAL;
  events_.reserve(1);
  route_.set_path(path);
  state_ = CmState::route_resolved;
  report(CmEventType::route_resolved, 0);
  return 0;
}

int CmId::set_reuse_address(bool value) {
  const LockGuard lock(g_registry_lock);
  if (state_ != CmState::idle && (!value || state_ == CmState::listen)) return EINVAL;
  route_.set_reuse_address(value);
  return 0;
}

int CmId::set_address_family_only(bool value) {
  {
    const LockGuard lock(g_registry_lock);
    if (state_ != CmState::idle && state_ != CmState::addr_bound) return EINVAL;
    route_.set_binding_v6only(value);
  }
  return route_.set_family_only(value);
}

// A program may set the path itself. On Ethernet there is only one path, which the host's routing determines. So this
// function sets that path, and not the one in `records`.
int CmId::set_ib_path(const std::vector<std::uint8_t>& records) {
  if (!route_.is_roce() || records.size() % sizeof(ib_path_rec_data) != 0) return EINVAL;
  for (std::size_t at = 0; at < records.size(); at += sizeof(ib_path_rec_data)) {
    ib_path_rec_data record;
    std::memcpy(&record, records.data() + at, sizeof record);
    if (record.flags == (IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL)) return resolve_route();
  }
  return EINVAL;
}

int CmId::give_way() {
  CmState state;
  {
    const LockGuard lock(g_registry_lock);
    state = state_;
  }
  if (state != CmState::addr_bound && state != CmState::listen) return EINVAL;
  if (const int error = route_.give_way(); error != 0) return error;
  return state == CmState::listen ? listener_.move() : 0;
}

int CmId::notify() {
  if (!route_.has_device()) return EINVAL;
  const LockGuard lock(g_registry_lock);
  if (!route_.is_roce()) return connection_.has_stream() || state_ == CmState::listen ? 0 : EINVAL;
  // The kernel's ib_cm takes the notice that a peer has begun to send, which replaces the peer's last message of the
  // connection set-up, only while that message is awaited.
  switch (connection_.phase()) {
    case ConnectionPhase::accepting: return 0;
    case ConnectionPhase::established: return EISCONN;
    default: return EINVAL;
  }
}

int CmId::resolve_ib_service() {
  const LockGuard lock(g_registry_lock);
  if (!route_.has_device() || state_ != CmState::addr_bound) return EINVAL;
  return EOPNOTSUPP;  // neither view of uiw has a subnet administrator
}

int CmId::write_event(std::uint32_t event, std::uint32_t status, std::uint64_t argument) {
  const auto type = static_cast<CmEventType>(event);
  if (type != CmEventType::user && type != CmEventType::internal) return EINVAL;
  rdma_ucm_event_resp response = {};
  response.event = event;
  response.status = status;
  std::memcpy(&response.param, &argument, sizeof argument);
  const LockGuard lock(g_registry_lock);
  events_.reserve(1);
  events_.post(shared_from_this(), response);
  return 0;
}

void CmId::count_reported(const CmEvent& event) {
  events_.count_reported();
  if (event.child != nullptr) listener_.count_reported();
  if (event.group != nullptr) ++event.group->events_reported;
}

CmId::Detached CmId::destroy() {
  state_ = CmState::destroyed;
  return detach();
}

CmId::Detached CmId::detach() {
  return {listener_.detach(), connection_.detach(), route_.detach(), events_.events_reported()};
}

// If a thread of the parent was executing a command on the id during the fork, the id may be half changed, so the child
// does not use the id.
void CmId::inherit(std::vector<std::shared_ptr<void>>& left) {
  left_to_parent_ = left_to_parent_ || command_mutex_.left_taken() || connection_.has_stream();
  left.push_back(connection_.leave_to_parent());
  left.push_back(listener_.inherit());
  if (left_to_parent_) {
    left.push_back(shared_from_this());
  } else {
    route_.inherit();
  }
}

void CmId::announce() {
  const LockGuard command(command_mutex_);
  {
    const LockGuard lock(g_registry_lock);
    if (is_destroyed() || left_to_parent_) return;
  }
  if (route_.has_substitute()) route_.renew();  // go_on() tries again if this fails
}

void CmId::go_on() {
  const LockGuard command(command_mutex_);
  bool resolves = false;
  {
    const LockGuard lock(g_registry_lock);
    if (is_destroyed() || left_to_parent_) return;
    resolves = state_ == CmState::addr_query;
  }
  int error = route_.renew();
  if (error == 0) error = listener_.go_on();
  if (error == 0 && resolves) {
    // The parent's timer does not run in this process, so a new timer is set for the rest of the timeout.
    const CmRoute::Ends before = resolution_->before;
    const auto left = resolution_->end - Resolution::Clock::now();
    error = begin_resolution(before, std::chrono::ceil<std::chrono::milliseconds>(left));
  }
  if (error == 0) return;
  provider::log_event(provider::LogLevel::error,
                      "rdma_cm: id %u of the parent process, which has ended, cannot be taken over: %s", number_,
                      error == EBADF ? "its socket does not listen any more" : provider::text_of_errno(error));
  Detached detached;
  {
    const LockGuard lock(g_registry_lock);
    left_to_parent_ = true;
    detached = detach();
  }
  tear_down(std::move(detached));
}

void CmId::tear_down(Detached detached) {
  detached.listener.listener.reset();
  if (detached.listener.inherited_socket >= 0) close_descriptor(detached.listener.inherited_socket);
  CmConnection::tear_down(std::move(detached.connection));
  if (detached.route.socket >= 0) close_descriptor(detached.route.socket);
}

// As in ucma.c and cma.c, the event is posted before the connection or the listener ends.
void CmId::interface_removed(unsigned ifindex) {
  const LockGuard command(command_mutex_);
  if (!route_.device() || route_.device()->ifindex != ifindex) return;
  Detached detached;
  {
    const LockGuard lock(g_registry_lock);
    if (is_destroyed() || removed_) return;
    report(CmEventType::device_removal, 0);
    removed_ = true;
    detached = detach();
  }
  tear_down(std::move(detached));
}

}  // namespace uiw::kernel_abi
