// SPDX-License-Identifier: MIT
// The interfaces through which a connection uses its queue pair: ConnectionWork for posted work, ConnectionHost for the
// state of the queue pair and for reports.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"

namespace uiw::provider {

// The posted work of a queue pair. The functions of rdmap::SendHost are called with the sender's lock held, the other
// functions with the receiver's lock held. next_receive(), receive_complete() and invalidate() do what
// rdmap::ReceiveHost says of its functions with these names.
class ConnectionWork : public rdmap::SendHost {
 public:
  virtual bool next_receive(rdmap::ReceiveBuffer& buffer) = 0;
  virtual void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                const rdmap::ReceiveHost::Message& message) = 0;
  virtual std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) = 0;
  // If next_receive() finds no receive, the connection waits until one is posted. This function ends the wait without a
  // receive: the message that needed the receive is lost, or the connection has ended.
  virtual void await_no_receive() = 0;
  // Whether a receive is posted.
  virtual bool receive_there() const = 0;
  // The message that had begun to use `buffer` counts as never begun, so the receive is free again. A receive that
  // cannot be given back to its shared receive queue completes as flushed if `completes` is true, and is dropped
  // without a completion otherwise.
  virtual void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) = 0;
  // As rdmap::ReceiveHost.
  virtual const void* choose_queue(std::uint64_t number) { return static_cast<void>(number), nullptr; }
  // Every posted receive completes as flushed, except those of a shared receive queue, which stay there.
  virtual void flush_receives() = 0;
  // The connection ends with this Terminate: this end has found an error in what has arrived, or the peer has. Work
  // queues need not know; an implementation that watches for the program's faults does.
  virtual void refuses(const rdmap::Terminate& terminate) { static_cast<void>(terminate); }
  virtual void is_refused(const rdmap::Terminate& terminate) { static_cast<void>(terminate); }
  // With ConnectionRules::watched: as rdmap::ReceiveHost; and the answer to the work with this id (rdmap::SendWork).
  virtual void write_comes(const rdmap::ReceiveHost::Part& part) { static_cast<void>(part); }
  virtual void answer_comes(std::uint64_t id) { static_cast<void>(id); }

 protected:
  ~ConnectionWork() = default;
};

// What a connection reports to its queue pair.
class ConnectionHost {
 public:
  virtual ibv_qp_state state() const = 0;
  // Whether the queue pair follows the rules of InfiniBand, by which the completion of failed work is all that tells of
  // it.
  virtual bool follows_infiniband() const = 0;
  // Reports an async event to the program. Called with the receiver's lock held.
  virtual void report(ibv_event_type type) = 0;

  // Called with both locks held, before the work of a session that ends is flushed. Sets the queue pair's state to ERR.
  virtual void enter_error() = 0;
  // Called with both locks held. The peer of a manual connection has left; posted work fails after a while
  // (RetryTimer).
  virtual void peer_gone() = 0;
  // Called with the sender's lock held when the stream has accepted all that may be sent now.
  virtual void sent_all() = 0;
  // Called with the sender's lock held when the program has disconnected and this end has sent FIN.
  virtual void sent_last() = 0;

 protected:
  ~ConnectionHost() = default;
};

}  // namespace uiw::provider
