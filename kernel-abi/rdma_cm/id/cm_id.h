// SPDX-License-Identifier: MIT
// One rdma_cm id: its state, and what it is made of: the route, the connection or the listener behind it, and the
// events that it tells the program. The states are those of drivers/infiniband/core/cma.c.
//
// The registry owns an id until it is destroyed; events, commands under way and the provider's callbacks keep it alive
// for as long as they need it.
//
// Commands return 0 or an errno; the caller holds command_lock(). Callbacks of the provider come on any thread, without
// it. State and events need the registry's lock (cm_registry.h), which the commands take.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/id/cm_connection.h"
#include "kernel-abi/rdma_cm/id/cm_event_source.h"
#include "kernel-abi/rdma_cm/id/cm_listener.h"
#include "kernel-abi/rdma_cm/id/cm_route.h"
#include "provider/process/mutex.h"

namespace uiw::kernel_abi {

enum class CmState { idle, addr_bound, addr_resolved, route_resolved, connect, listen, destroyed };

struct CmIdParameters {
  std::uint64_t uid;         // the program's name for the id; 0 until a new connection is accepted
  std::uint16_t port_space;  // RDMA_PS_*
  std::uint8_t qp_type;
};

class CmId final : public std::enable_shared_from_this<CmId> {
 public:
  // The end of an id, carried out without any lock.
  struct Detached {
    std::shared_ptr<provider::Listener> listener;
    CmConnection::Detached connection;
    int socket = -1;
    std::uint32_t events_reported = 0;
  };

  CmId(std::uint32_t number, std::shared_ptr<CmChannel> channel, const CmIdParameters& parameters);
  ~CmId();

  std::uint32_t number() const { return number_; }
  provider::Mutex& command_lock() { return command_mutex_; }

  // Its parts; each says which lock it needs.
  CmRoute& route() { return route_; }
  const CmRoute& route() const { return route_; }
  CmConnection& connection() { return connection_; }
  const CmConnection& connection() const { return connection_; }
  CmListener& listener() { return listener_; }
  CmEventSource& events() { return events_; }
  const CmEventSource& events() const { return events_; }

  // Commands.
  int bind(const sockaddr_storage& address);
  int resolve_addr(const sockaddr_storage& source, const sockaddr_storage& destination);
  int resolve_route();
  int notify();
  int join_multicast();
  int resolve_ib_service();
  int write_event(std::uint32_t event, std::uint32_t status, std::uint64_t argument);
  int set_reuse_address(bool value);
  int set_address_family_only(bool value);
  int set_ib_path(const std::vector<std::uint8_t>& records);

  // The id's device went away with this interface? Then the program is told, the connection ends, and all that is left
  // to do with the id is to destroy it. Takes the command lock.
  void interface_removed(unsigned ifindex);

  // For its parts and the registry, with the registry's lock held.
  CmState state() const { return state_; }
  void set_state(CmState state) { state_ = state; }
  bool is_destroyed() const { return state_ == CmState::destroyed; }
  bool is_removed() const { return removed_; }
  // Nothing once the id is at its end.
  void report(CmEventType event, int status, const rdma_ucm_conn_param& parameters = {});
  void count_reported(const CmEvent& event);
  Detached destroy();

  // Without the lock. False, and nothing has changed, where it is in another state.
  bool exchange_state(CmState from, CmState to);
  static void tear_down(Detached detached);
  // In the child of a fork.
  void abandon() { route_.abandon(); }

 private:
  Detached detach();

  const std::uint32_t number_;
  provider::Mutex command_mutex_;
  CmRoute route_;
  CmEventSource events_;
  CmState state_ = CmState::idle;
  bool removed_ = false;  // its device is no more
  CmConnection connection_;
  CmListener listener_;
};

}  // namespace uiw::kernel_abi
