// SPDX-License-Identifier: MIT
// One rdma_cm id. It has a state and these parts: the route, the connection or the listener, and the events. The states
// are a subset of those in drivers/infiniband/core/cma.c.
//
// CmRegistry (cm_registry.h), the table of all ids, owns an id until the id is destroyed. Events, commands in progress
// and the provider's callbacks keep the id alive as long as they need it.
//
// Commands return 0 or an errno and are called with command_lock() held. Callbacks of the provider about a connection
// or a listener come on the thread "uiw-cm", without command_lock(). State and events need the registry's lock
// (registry_lock.h); the commands take the registry's lock themselves.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then omits its own copy of the same types
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/id/cm_connection.h"
#include "kernel-abi/rdma_cm/id/cm_event_source.h"
#include "kernel-abi/rdma_cm/id/cm_groups.h"
#include "kernel-abi/rdma_cm/id/cm_listener.h"
#include "kernel-abi/rdma_cm/id/cm_route.h"
#include "kernel-abi/rdma_cm/registry_lock.h"

namespace uiw::kernel_abi {

enum class CmState { idle, addr_bound, addr_query, addr_resolved, route_resolved, connect, listen, destroyed };

struct CmIdParameters {
  std::uint64_t uid;         // the program's name for the id; 0 for an incoming call before ACCEPT
  std::uint16_t port_space;  // RDMA_PS_*
  std::uint8_t qp_type;
};

class CmId final : public std::enable_shared_from_this<CmId> {
 public:
  // What tear_down() needs to end an id without the registry's lock.
  struct Detached {
    CmListener::Detached listener;
    CmConnection::Detached connection;
    CmRoute::Detached route;
    std::uint32_t events_reported = 0;
  };

  CmId(std::uint32_t number, std::shared_ptr<CmChannel> channel, const CmIdParameters& parameters);
  ~CmId();

  std::uint32_t number() const { return number_; }
  Mutex& command_lock() { return command_mutex_; }

  // The parts of the id; the header of each part says which lock it needs.
  CmRoute& route() { return route_; }
  const CmRoute& route() const { return route_; }
  CmConnection& connection() { return connection_; }
  const CmConnection& connection() const { return connection_; }
  CmListener& listener() { return listener_; }
  CmGroups& groups() { return groups_; }
  CmEventSource& events() { return events_; }
  const CmEventSource& events() const { return events_; }

  // Commands.
  int bind(const sockaddr_storage& address);
  // Returns the errors that the kernel returns at once (no route, for example). Reports any other result by an event:
  // at once, or when the next hop's link-layer address is known, or when `patience` is over.
  int resolve_addr(const sockaddr_storage& source, const sockaddr_storage& destination,
                   std::chrono::milliseconds patience);
  int resolve_route();
  int notify();
  int resolve_ib_service();
  int write_event(std::uint32_t event, std::uint32_t status, std::uint64_t argument);
  int set_reuse_address(bool value);
  int set_address_family_only(bool value);
  int set_ib_path(const std::vector<std::uint8_t>& records);
  // Leaves the TCP or UDP port that equals the id's RDMA port number to another socket of the program, and moves the id
  // to a substitute port, at which peers find it by the RDMA port number (provider/connect/rdma_port.h). EINVAL if the
  // id has no port that equals its number, or is neither bound nor listening.
  int give_way();

  // To be called when an interface was removed. If the id's device was of this interface, reports DEVICE_REMOVAL and
  // ends the connection or the listener; from then on the id can only be destroyed. Takes the command lock.
  void interface_removed(unsigned ifindex);

  // Functions that the parts of the id and the registry call.
  CmState state() const UIW_REQUIRES(g_registry_lock) { return state_; }
  void set_state(CmState state) UIW_REQUIRES(g_registry_lock) { state_ = state; }
  bool is_destroyed() const UIW_REQUIRES(g_registry_lock) { return state_ == CmState::destroyed; }
  bool is_removed() const UIW_REQUIRES(g_registry_lock) { return removed_; }
  // Posts an event, unless the id is destroyed or its device has been removed.
  void report(CmEventType event, int status, const CmEventParameters& parameters = {}) UIW_REQUIRES(g_registry_lock);
  void count_reported(const CmEvent& event) UIW_REQUIRES(g_registry_lock);
  Detached destroy() UIW_REQUIRES(g_registry_lock);

  // Sets the state to `to` and returns true if the state is `from`; otherwise returns false.
  bool exchange_state(CmState from, CmState to) UIW_EXCLUDES(g_registry_lock);
  static void tear_down(Detached detached);

  // In the child of a fork: an id with a connection stays the parent's, and so does an id on which a thread of the
  // parent was executing a command; any other id becomes the child's, too. Puts objects that must not be destroyed in
  // this process into `left`.
  void inherit(std::vector<std::shared_ptr<void>>& left) UIW_REQUIRES(g_registry_lock);
  bool is_left_to_parent() const UIW_REQUIRES(g_registry_lock) { return left_to_parent_; }
  // To be called when the parent process has ended, and this process may take over the channel but has not used it yet.
  // If the id has a substitute port (rdma_port.h), takes the RDMA port number, by which callers find that port; go_on()
  // tries again if this fails. Takes the command lock.
  void announce();
  // To be called when the parent has ended and this process takes over the channel: takes the RDMA port number,
  // listens, and continues an address resolution that was in progress. Takes the command lock.
  void go_on();

 private:
  class Resolution;
  Detached detach() UIW_REQUIRES(g_registry_lock);
  int begin_resolution(const CmRoute::Ends& before, std::chrono::milliseconds patience);
  bool resolution_goes_on(Resolution& resolution);

  const std::uint32_t number_;
  Mutex command_mutex_;
  CmRoute route_;
  CmEventSource events_;
  CmState state_ UIW_GUARDED_BY(g_registry_lock) = CmState::idle;
  bool removed_ UIW_GUARDED_BY(g_registry_lock) = false;  // the id's device has been removed
  bool left_to_parent_ UIW_GUARDED_BY(g_registry_lock) = false;
  CmConnection connection_;
  CmListener listener_;
  CmGroups groups_;
  std::shared_ptr<Resolution> resolution_;  // the last address resolution that had to wait; needs the command lock
};

}  // namespace uiw::kernel_abi
