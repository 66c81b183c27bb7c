// SPDX-License-Identifier: MIT
// What a stream knows of the queue pair whose work it carries out: the work, the state, and whom to report to.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "provider/memory/grace_period.h"
#include "rdmap/receiver.h"
#include "rdmap/transmitter.h"

namespace uiw::provider {

// The receiver's lock is taken first, then the sender's, then those of completion queues. They belong to the queue
// pair, since its work queues outlive its streams; which stream it has changes under both.
struct StreamLocks {
  alignas(64) SectionMutex receive;
  alignas(64) SectionMutex send;
};

// What threads without these locks look at. It belongs to the queue pair, as they may look at any time.
struct StreamSignals {
  alignas(64) std::atomic<bool> receive_stalled{false};  // nothing is read until a receive is posted
  // There are deferred sends: posts that wait for the next ones, or a probe.
  alignas(64) std::atomic<bool> deferred{false};
  std::atomic<std::uint64_t> posts_wait_since{0};  // monotonic, ns; 0 where no posts wait
  std::atomic<pthread_t> poster{};                 // who has posted them
};

// The work. The functions of rdmap::SendHost are called with the sender's lock, the others with the receiver's; the
// first three of those as rdmap::ReceiveHost says.
class StreamWork : public rdmap::SendHost {
 public:
  virtual bool next_receive(rdmap::ReceiveBuffer& buffer) = 0;
  virtual void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                const rdmap::ReceiveHost::Message& message) = 0;
  virtual std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) = 0;
  virtual bool receive_there() const = 0;
  // A receive that a message had begun to use is free again; one of a shared queue that cannot be given back to it
  // completes as flushed if `completes`.
  virtual void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) = 0;
  // Every receive that is posted completes as flushed.
  virtual void flush_receives() = 0;

 protected:
  ~StreamWork() = default;
};

class StreamHost {
 public:
  virtual ibv_qp_state state() const = 0;
  // With the receiver's lock.
  virtual void report(ibv_event_type type) = 0;

  // With both locks. The stream ends, and with it the work: the state is ERR from here on.
  virtual void enter_error() = 0;
  // The peer has left; work that is posted fails after a while.
  virtual void peer_gone() = 0;
  // The stream is not the one that the queue pair is to have: another takes its place. It lives until its caller is
  // done with it.
  virtual void drop_stream() = 0;

  // With the sender's lock. TCP has taken all that may be sent now.
  virtual void sent_all() = 0;
  // And the end of the stream behind it.
  virtual void sent_last() = 0;

 protected:
  ~StreamHost() = default;
};

}  // namespace uiw::provider
