// SPDX-License-Identifier: MIT
// What a connection needs of its queue pair: the queues of its work, its state, and functions to report events to it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"

namespace uiw::provider {

// The work of a queue pair. The functions of rdmap::SendHost are called with the sender's lock held, the others with
// the receiver's. For the first three see rdmap::ReceiveHost.
class ConnectionWork : public rdmap::SendHost {
 public:
  virtual bool next_receive(rdmap::ReceiveBuffer& buffer) = 0;
  virtual void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                const rdmap::ReceiveHost::Message& message) = 0;
  virtual std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) = 0;
  // Ends the wait for a posted receive, which begins when next_receive() finds none: the message that needed a receive
  // is lost, or the connection has ended.
  virtual void await_no_receive() = 0;
  // Whether a receive is posted.
  virtual bool receive_there() const = 0;
  // The message that had begun to use `buffer` counts as never begun, so the receive is free again. A receive that
  // cannot be given back to its shared receive queue completes as flushed if `completes` is set.
  virtual void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) = 0;
  // Every posted receive completes as flushed, except those of a shared receive queue, which stay there.
  virtual void flush_receives() = 0;

 protected:
  ~ConnectionWork() = default;
};

// What a connection reports to its queue pair.
class ConnectionHost {
 public:
  virtual ibv_qp_state state() const = 0;
  // With the receiver's lock held.
  virtual void report(ibv_event_type type) = 0;

  // Called with both locks held, before the work of a session that ends is flushed. Sets the queue pair's state to ERR.
  virtual void enter_error() = 0;
  // Called with both locks held. The peer of a manual connection has left; posted work fails after a while
  // (RetryTimer).
  virtual void peer_gone() = 0;
  // With the sender's lock held. The stream has taken all that may be sent now.
  virtual void sent_all() = 0;
  // As sent_all(), after the FIN of an orderly end.
  virtual void sent_last() = 0;

 protected:
  ~ConnectionHost() = default;
};

}  // namespace uiw::provider
