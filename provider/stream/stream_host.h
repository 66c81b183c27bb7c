// SPDX-License-Identifier: MIT
// What a stream needs of its queue pair: the work that it carries out, the state, and where it reports events.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/grace_period.h"
#include "rdmap/receiver.h"
#include "rdmap/transmitter.h"

namespace uiw::provider {

// The receiver's lock is taken first, then the sender's, then those of completion queues. The locks belong to the queue
// pair, since its work queues outlive its streams. Which stream a queue pair has changes with both locks held.
struct StreamLocks {
  alignas(64) SectionMutex receive;
  alignas(64) SectionMutex send;
};

// Threads that hold none of these locks read this. It belongs to the queue pair, since they may read it at any time.
struct StreamSignals {
  alignas(64) std::atomic<bool> receive_stalled{false};  // nothing is read until a receive is posted
  // There are deferred sends: posts that wait for the next posts, or a probe.
  alignas(64) std::atomic<bool> deferred{false};
  std::atomic<std::uint64_t> posts_wait_since{0};  // monotonic, ns; 0 where no posts wait
  std::atomic<pthread_t> poster{};                 // the thread that has posted them
};

// The work of a queue pair. The functions of rdmap::SendHost are called with the sender's lock held, the others with
// the receiver's. For the first three see rdmap::ReceiveHost.
class StreamWork : public rdmap::SendHost {
 public:
  virtual bool next_receive(rdmap::ReceiveBuffer& buffer) = 0;
  virtual void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                const rdmap::ReceiveHost::Message& message) = 0;
  virtual std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) = 0;
  // The message for which next_receive() has found no receive waits for none: it is lost.
  virtual void await_no_receive() = 0;
  // Whether a receive is posted.
  virtual bool receive_there() const = 0;
  // The message that had begun to use `buffer` counts as never begun, so the receive is free again. A receive that
  // cannot be given back to its shared receive queue completes as flushed if `completes` is set.
  virtual void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) = 0;
  // Every receive that is posted completes as flushed.
  virtual void flush_receives() = 0;

 protected:
  ~StreamWork() = default;
};

// What a stream reports to its queue pair.
class StreamHost {
 public:
  virtual ibv_qp_state state() const = 0;
  // With the receiver's lock held.
  virtual void report(ibv_event_type type) = 0;

  // With both locks held. The stream ends, and its work is flushed: the state is ERR from here on.
  virtual void enter_error() = 0;
  // The peer of a manual connection has left; posted work fails after a while.
  virtual void peer_gone() = 0;
  // The queue pair is to be connected by another stream, so this one is dropped. The object lives until the thread that
  // dropped it has released both locks.
  virtual void drop_stream() = 0;

  // With the sender's lock held. TCP has taken all that may be sent now.
  virtual void sent_all() = 0;
  // As sent_all(), and FIN has been sent in an orderly end.
  virtual void sent_last() = 0;

 protected:
  ~StreamHost() = default;
};

}  // namespace uiw::provider
