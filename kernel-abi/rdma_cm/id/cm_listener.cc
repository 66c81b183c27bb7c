// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "kernel-abi/rdma_cm/id/cm_connection.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/lookup/lookup.h"
#include "provider/process/cm_loop.h"

namespace uiw::kernel_abi {

int CmListener::listen(int backlog) {
  if (!id_.exchange_state(CmState::addr_bound, CmState::listen)) {
    if (const int error = id_.bind(wildcard_of(AF_INET)); error != 0) return error;
    if (!id_.exchange_state(CmState::addr_bound, CmState::listen)) return EINVAL;
  }
  {
    const LockGuard lock(g_registry_lock);
    backlog_ = backlog;
  }
  CmRoute& route = id_.route();
  if (const int error = route.claim_to_listen(); error != 0) {
    id_.exchange_state(CmState::listen, CmState::addr_bound);
    return error;
  }
  if ((!route.uses_tcp() && !looks_up(route)) || route.source().ss_family == AF_IB)
    return 0;  // no peer can call such an id

  int error = 0;
  std::shared_ptr<provider::Listener> listener;
  try {
    error = route.take_number();
    if (error == 0) error = listen_on(route.take_socket(), backlog, listener);
    // EADDRINUSE: since the bind, another socket has begun to listen on the port.
    if (error == EADDRINUSE && route.give_way() == 0) error = listen_on(route.take_socket(), backlog, listener);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  const LockGuard lock(g_registry_lock);
  if (error == 0)
    listener_ = std::move(listener);
  else
    id_.set_state(CmState::addr_bound);
  return error;
}

int CmListener::move() {
  int backlog;
  {
    const LockGuard lock(g_registry_lock);
    backlog = std::max(backlog_, 1);
  }
  std::shared_ptr<provider::Listener> listener;
  if (const int error = listen_on(id_.route().take_socket(), backlog, listener); error != 0) return error;
  {
    const LockGuard lock(g_registry_lock);
    std::swap(listener_, listener);
  }
  return 0;  // here the former listener closes its socket, without the registry's lock
}

// Waits for the first peer to connect to an inherited socket, and makes the channel readable. When the program then
// uses the channel, this process takes over the ids of its parent, and go_on() listens on the socket, which still has
// the connection in its queue. All functions except ready() are called with the registry's lock held.
class CmListener::CallerWatch final : public provider::CmLoop::Handler {
 public:
  CallerWatch(int socket, std::weak_ptr<CmChannel> channel) : socket_(socket), channel_(std::move(channel)) {}
  void ready(std::uint32_t) override {
    const LockGuard lock(g_registry_lock);
    if (!watched_) return;
    stop();
    if (const auto channel = channel_.lock()) channel->announce_caller();
  }
  // From here on the socket may be watched by another handler.
  void stop() {
    if (std::exchange(watched_, false)) provider::CmLoop::instance().unwatch(socket_);
  }

 private:
  const int socket_;
  const std::weak_ptr<CmChannel> channel_;
  bool watched_ = true;
};

CmListener::Detached CmListener::detach() {
  if (caller_watch_ != nullptr) caller_watch_->stop();
  caller_watch_.reset();
  return {std::move(listener_), std::exchange(inherited_socket_, -1)};
}

// In the child of a fork: drops a CallerWatch, which belongs to the parent's thread.
std::shared_ptr<provider::Listener> CmListener::inherit() {
  caller_watch_.reset();
  if (listener_ != nullptr) inherited_socket_ = listener_->descriptor();
  inherited_socket_ = DescriptorChange().guard(inherited_socket_);
  return std::move(listener_);
}

void CmListener::watch_for_caller() {
  if (inherited_socket_ < 0 || caller_watch_ != nullptr) return;
  auto watch = std::make_shared<CallerWatch>(inherited_socket_, id_.events().channel());
  if (provider::CmLoop::instance().watch(inherited_socket_, EPOLLIN, watch) == 0) caller_watch_ = std::move(watch);
}

int CmListener::go_on() {
  int socket, backlog;
  {
    const LockGuard lock(g_registry_lock);
    if (caller_watch_ != nullptr) caller_watch_->stop();
    caller_watch_.reset();
    socket = std::exchange(inherited_socket_, -1);
    backlog = std::max(backlog_, 1);
  }
  if (socket < 0) return 0;
  // Since the fork the parent may have destroyed its listener, or the program may have closed the descriptor. In the
  // second case another file may have the descriptor's number by now, so the descriptor is not closed here.
  int listens = 0;
  socklen_t size = sizeof listens;
  const bool stream = !looks_up(id_.route());
  if (::getsockopt(socket, SOL_SOCKET, stream ? SO_ACCEPTCONN : SO_DOMAIN, &listens, &size) != 0 || listens == 0)
    return EBADF;
  std::shared_ptr<provider::Listener> listener;
  try {
    if (const int error = listen_on(socket, backlog, listener); error != 0) return error;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const LockGuard lock(g_registry_lock);
  listener_ = std::move(listener);
  return 0;
}

// `socket` may be a negative errno, which is then returned as a positive one.
int CmListener::listen_on(int socket, int backlog, std::shared_ptr<provider::Listener>& listener) {
  if (socket < 0) return -socket;
  const std::shared_ptr<provider::ListenObserver> observer(id_.shared_from_this(), this);
  if (looks_up(id_.route())) return provider::listen_for_lookups(socket, observer, listener);
  return provider::listen(socket, backlog, observer, listener);
}

// Whether there is room for another CONNECT_REQUEST in the backlog. True also if a request will be refused for another
// reason.
bool CmListener::has_room() {
  const LockGuard lock(g_registry_lock);
  return backlog_ > 0 || id_.state() != CmState::listen || id_.is_removed();
}

void CmListener::requested(std::shared_ptr<provider::Call> call, const provider::CallParameters& peer) {
  bool adopted = false;
  try {
    const sockaddr_storage local = unmapped(call->local_address());
    const provider::DeviceInfo device = provider::device_of(generic(local));
    if (!device.name.empty()) {
      CmEvents event(1);
      CmRegistry& registry = CmRegistry::instance();
      std::shared_ptr<CmId> child;  // declared before the lock is taken, so it is destroyed without the lock
      const LockGuard lock(g_registry_lock);
      if (id_.state() == CmState::listen && !id_.is_removed() && backlog_ > 0) {
        child = registry.create_id_locked(id_.events().channel(), {0, id_.route().port_space(), id_.route().qp_type()});
        try {
          adopt(child, call, local, device, peer, event);
          adopted = true;
        } catch (const std::bad_alloc&) {
          registry.remove_id_locked(*child);
        }
      }
    }
  } catch (const std::bad_alloc&) {  // no memory: the call is rejected
  }
  if (!adopted) call->reject({});
}

void CmListener::adopt(const std::shared_ptr<CmId>& child, const std::shared_ptr<provider::Call>& call,
                       const sockaddr_storage& local, const provider::DeviceInfo& device,
                       const provider::CallParameters& peer, CmEvents& event) {
  sockaddr_storage called = local;
  set_port(called, port_of(id_.route().source()));  // the local port may be a substitute (provider/connect/rdma_port.h)
  child->route().adopt(id_.route(), called, unmapped(call->remote_address()), device);
  child->set_state(CmState::connect);
  if (looks_up(child->route())) {
    child->connection().begin_requested(call, {});
    id_.events().post_request(id_.shared_from_this(), child, child->number(),
                              datagram_parameters(peer, kSidrReqPrivateData), event);
    --backlog_;
    return;
  }
  rdma_ucm_conn_param request = event_parameters(peer);
  if (child->route().is_roce()) fill_message(kReqPrivateData, peer.retries, request);
  child->connection().begin_requested(call, request);
  id_.events().post_request(id_.shared_from_this(), child, child->number(), request, event);
  --backlog_;
}

}  // namespace uiw::kernel_abi
