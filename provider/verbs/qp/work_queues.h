// SPDX-License-Identifier: MIT
// The work queues of a queue pair: what is posted and not complete, and what its completions tell the program.
//
// They outlive the streams that carry out the work. The send queue belongs to the sender's lock, the receive queue to
// the receiver's and, where receives are posted, to one of its own.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "provider/memory/grace_period.h"
#include "provider/stream/stream_host.h"
#include "rdmap/work.h"

namespace uiw::provider {

struct QpCommon;
class Srq;
class SrqUser;

class WorkQueues final : public StreamWork {
 public:
  // `qp` must remain live as long as this, and `srq`, which is null where the queue pair has receives of its own.
  // Throws std::bad_alloc.
  WorkQueues(QpCommon& qp, const ibv_qp_cap& granted, Srq* srq);
  ~WorkQueues();

  // What memory windows are bound to.
  const void* identity() const { return this; }

  // ---- With the sender's lock ----
  rdmap::SendQueue& sends() { return sends_; }
  const rdmap::SendQueue& sends() const { return sends_; }
  // All that is posted completes as flushed, `culprit` with `status`.
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status);

  // rdmap::SendHost
  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override;
  rdmap::Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override;

  // ---- With the receiver's lock ----
  bool next_receive(rdmap::ReceiveBuffer& buffer) override;
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                        const rdmap::ReceiveHost::Message& message) override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override;
  bool receive_there() const override;
  void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) override;
  void flush_receives() override;
  std::uint32_t receives() const { return receives_.size(); }

  // ---- With both locks ----
  // The stream is gone, and with it whom memory windows of type 2 were for. (The Verbs draft, section 6.1.4, would have
  // a program unbind them before it destroys the queue pair; those that do not, and they are many, must not be left
  // with half of it.)
  void release_windows();
  // RESET: what is posted goes without a completion.
  void empty();
  // A shared queue is told that no receive of it is needed here any more.
  void leave_shared();

  // ---- Without a lock ----
  bool is_shared() const { return shared_ != nullptr; }
  // As the manual page of ibv_post_recv says; not where the queue is shared.
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad);
  // Completions that were not polled are gone. Waits for a poll that another thread has begun (ibv_start_poll).
  void forget_completions();
  // After a fork, in the child.
  void leave_to_parent();
  void number_is_known();

 private:
  QpCommon& qp_;
  rdmap::SendQueue sends_;
  bool has_windows_ = false;  // some of type 2 were bound

  bool last_receive_reported_ = false;
  alignas(64) SectionMutex post_receive_mutex_;
  rdmap::ReceiveQueue receives_;
  const std::unique_ptr<SrqUser> shared_;  // in place of it
};

}  // namespace uiw::provider
