// SPDX-License-Identifier: MIT
// The connection of an id: the commands that make and end it, and the events that tell of it (cma.c: rdma_connect,
// rdma_accept, cma_iw_handler, for RoCE cma_ib_handler; iwcm.c for the stream's states).
//
// Part of a CmId, which owns it and outlives it; the provider holds it weakly, by its id. Commands are called with the
// id's command lock; the provider's callbacks come on any thread. All members need the registry's lock, which these
// functions take where nothing else is said. The provider is called without that lock, for it may answer on this very
// thread.
//
// Commands return 0 or an errno.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernel-abi/rdma_cm/cm_roce.h"
#include "provider/connect/connection.h"

namespace uiw::kernel_abi {

class CmId;

enum class ConnectionPhase {
  none,
  calling,    // CONNECT is under way
  requested,  // a peer's call waits for ACCEPT or REJECT
  accepting,  // ACCEPT is under way
  established,
  ended,
};

// What an event says of the peer. What it wants to issue is what this side is asked to serve, and the other way round.
rdma_ucm_conn_param event_parameters(const provider::ConnectionParameters& peer);

class CmConnection final : public provider::ConnectionObserver {
 public:
  // The end of a connection, carried out without any lock.
  struct Detached {
    std::shared_ptr<provider::Connection> connection;
    ConnectionPhase phase = ConnectionPhase::none;
  };

  explicit CmConnection(CmId& id) : id_(id) {}

  int connect(const rdma_ucm_conn_param& parameters);
  int accept(const rdma_ucm_conn_param& parameters, std::uint64_t uid);
  // An ACCEPT without parameters: the active side's on RoCE, and of rdma_establish().
  int accept_response();
  int reject(const std::uint8_t* private_data, std::size_t size, unsigned reason);
  // 0 also for a connection that has ended already, or never stood: the peer may have been faster.
  int disconnect();

  // provider::ConnectionObserver
  void established(const provider::ConnectionParameters& peer) override;
  void failed(int error, const provider::ConnectionParameters* peer) override;
  void disconnected() override;

  // With the registry's lock held.
  bool has_stream() const { return phase_ != ConnectionPhase::none; }
  const std::optional<RoceAgreement>& agreement() const { return agreement_; }
  // Begins with a call that has come in; `request` is what its event says.
  void begin_requested(const std::shared_ptr<provider::Connection>& call, const rdma_ucm_conn_param& request);
  Detached detach();

  // An unanswered call is rejected and an established connection ends, as when the kernel's id goes.
  static void tear_down(Detached detached);

 private:
  std::weak_ptr<provider::ConnectionObserver> observer();
  int check_call_state() const;

  CmId& id_;
  ConnectionPhase phase_ = ConnectionPhase::none;
  bool responded_ = false;                                    // the active side's stream stood
  bool disconnect_wanted_ = false;                            // DISCONNECT came while the stream was still being set up
  std::uint8_t retry_count_ = 0;                              // what CONNECT said
  std::uint8_t accepted_resources_ = 0, accepted_depth_ = 0;  // what ACCEPT said of Reads
  std::optional<RoceAgreement> agreement_;                    // since the peer's message
  std::shared_ptr<provider::Connection> connection_;
};

}  // namespace uiw::kernel_abi
