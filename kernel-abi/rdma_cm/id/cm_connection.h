// SPDX-License-Identifier: MIT
// The connection of an id: the commands that establish and end it, and its events (cma.c: rdma_connect, rdma_accept,
// cma_iw_handler, for RoCE cma_ib_handler; iwcm.c for the states of the stream).
//
// A CmConnection is a member of its CmId. The provider has a weak_ptr to the CmConnection; while the provider locks it,
// the whole CmId lives. Commands are called with the id's command lock held; the provider's callbacks come on the
// thread "uiw-cm". Functions of the provider that may call back are called without the registry's lock, since the
// callbacks take that lock.
//
// Commands return 0 or an errno.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then omits its own copy of the same types
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernel-abi/rdma_cm/cm_roce.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/call.h"

namespace uiw::kernel_abi {

class CmId;

enum class ConnectionPhase {
  none,
  calling,    // CONNECT is in progress
  requested,  // a peer has called; ACCEPT or REJECT follows
  accepting,  // ACCEPT is in progress
  established,
  ended,
};

// The parameters of the peer for an event. The peer's initiator depth (ORD) becomes this side's responder resources,
// and vice versa.
rdma_ucm_conn_param event_parameters(const provider::CallParameters& peer);
// The parameters of the peer for an event of port space UDP. As in the kernel, the event reports the size of the
// message's field for private data, `room` octets, even if the peer has sent less.
rdma_ucm_ud_param datagram_parameters(const provider::CallParameters& peer, std::size_t room);

class CmConnection final : public provider::CallObserver {
 public:
  // What tear_down() needs to end a connection without the registry's lock.
  struct Detached {
    std::shared_ptr<provider::Call> connection;
    ConnectionPhase phase = ConnectionPhase::none;
  };

  explicit CmConnection(CmId& id) : id_(id) {}

  int connect(const rdma_ucm_conn_param& parameters);
  int accept(const rdma_ucm_conn_param& parameters, std::uint64_t uid);
  // Executes an ACCEPT without parameters, which librdmacm sends on the active side on RoCE and in rdma_establish().
  int accept_response();
  int reject(const std::uint8_t* private_data, std::size_t size, unsigned reason);
  // Ends the connection: now, or once it is established if it is still being set up. EINVAL if there is no device or
  // there has been no call. Returns 0 and does nothing if the program has not answered an incoming call yet, if the
  // call has failed, or if the connection has ended already: the peer may have ended it just before this command.
  int disconnect();

  // The time wait is over: reports TIMEWAIT_EXIT. On the thread "uiw-cm".
  void leave_time_wait();

  // provider::CallObserver
  void established(const provider::CallParameters& peer) override;
  void failed(int error, const provider::CallParameters* peer) override;
  void disconnected() override;

  std::uint32_t qp_number() const UIW_REQUIRES(g_registry_lock) { return qp_number_; }  // 0 before CONNECT or ACCEPT
  ConnectionPhase phase() const UIW_REQUIRES(g_registry_lock) { return phase_; }
  bool has_stream() const UIW_REQUIRES(g_registry_lock) { return phase_ != ConnectionPhase::none; }
  const std::optional<RoceAgreement>& agreement() const UIW_REQUIRES(g_registry_lock) { return agreement_; }
  // Makes `call`, an incoming call, the connection of this id. `request` has the parameters of the CONNECT_REQUEST
  // event (none for port space UDP).
  void begin_requested(const std::shared_ptr<provider::Call>& call, const rdma_ucm_conn_param& request)
      UIW_REQUIRES(g_registry_lock);
  Detached detach() UIW_REQUIRES(g_registry_lock);
  // In the child of a fork: the connection stays the parent's. Returns the child's copy, which is not to be destroyed.
  std::shared_ptr<provider::Call> leave_to_parent() UIW_REQUIRES(g_registry_lock);

  // Rejects an unanswered call, or ends an established connection, as the kernel does when an id is destroyed.
  static void tear_down(Detached detached);

 private:
  class TimeWait;
  std::weak_ptr<provider::CallObserver> observer();
  // Allocates the memory of the events that can follow CONNECT or ACCEPT, and in the RoCE view the timer of the time
  // wait. Throws std::bad_alloc.
  void prepare_events() UIW_REQUIRES(g_registry_lock);
  // Starts the time wait if the connection has ended and the program has disconnected, in either order. That is when
  // the kernel's ib_cm has both messages of a disconnect, the request (DREQ) and the reply (DREP).
  void enter_time_wait() UIW_REQUIRES(g_registry_lock);
  int check_call_state() const UIW_REQUIRES(g_registry_lock);
  rdma_ucm_ud_param service_parameters(const provider::CallParameters& peer) const UIW_REQUIRES(g_registry_lock);
  void report_no_service(int error, const provider::CallParameters* peer) UIW_REQUIRES(g_registry_lock);

  CmId& id_;
  ConnectionPhase phase_ UIW_GUARDED_BY(g_registry_lock) = ConnectionPhase::none;
  std::uint32_t qp_number_ UIW_GUARDED_BY(g_registry_lock) = 0;
  bool responded_ UIW_GUARDED_BY(g_registry_lock) = false;                  // active side: the stream was established
  bool disconnect_wanted_ UIW_GUARDED_BY(g_registry_lock) = false;          // DISCONNECT came after CONNECT or ACCEPT
  bool disconnected_ UIW_GUARDED_BY(g_registry_lock) = false;               // the event DISCONNECTED was reported
  std::shared_ptr<TimeWait> time_wait_ UIW_GUARDED_BY(g_registry_lock);     // RoCE view, port space TCP
  std::uint8_t retry_count_ UIW_GUARDED_BY(g_registry_lock) = 0;            // from CONNECT
  std::uint8_t accepted_resources_ UIW_GUARDED_BY(g_registry_lock) = 0;     // from ACCEPT
  std::uint8_t accepted_depth_ UIW_GUARDED_BY(g_registry_lock) = 0;         // from ACCEPT
  std::optional<RoceAgreement> agreement_ UIW_GUARDED_BY(g_registry_lock);  // RoCE view: set by the peer's MPA frame
  std::shared_ptr<provider::Call> connection_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
