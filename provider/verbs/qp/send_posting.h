// SPDX-License-Identifier: MIT
// How send requests are posted: by ibv_post_send, as a batch, or as the bind of a memory window; and whether they are
// sent at once or with the next posts (provider/progress/send_scheduler.h).
//
// Thread-safe: the functions take the sender's lock by themselves. Between begin_batch() and end_batch() or
// abort_batch() only the thread that builds the batch may call add() and extend(), which fill in entries without the
// lock.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/grace_period.h"
#include "provider/progress/send_scheduler.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/work_builder.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/send_requests.h"

namespace uiw::provider {

class SendPosting final : public SendRequests {
 public:
  // `qp` and `queues` must remain live as long as this object. `signal_all`: sq_sig_all.
  SendPosting(QpCommon& qp, WorkQueues& queues, bool signal_all)
      : qp_(qp), queues_(queues), sends_(queues.sends()), builder_(sends_, queues.memory(), signal_all) {}

  // As the manual page of ibv_post_send says: 0 or an errno, with the first bad request.
  int post(ibv_send_wr* requests, ibv_send_wr** bad) override;
  // ibv_bind_mw: 0 or an errno. On success `mw` has its new rkey.
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) override;

  // ibv_wr_start ... ibv_wr_complete: one thread builds a batch, and others that post to this queue pair wait for its
  // end. No lock is held in between, so the program may do anything. EINVAL from end_batch() if the same thread had a
  // batch open already.
  void begin_batch() override;
  void add(const ibv_send_wr& request) override;
  // Applies to the request that is added next.
  using Extension = WorkBuilder::Extension;
  void extend(const Extension& extension) { batch_.extension = extension; }
  int end_batch() override;  // 0, or an errno and nothing of the batch is posted
  void abort_batch() override;

  // Work is held back no more. Where there is no stream to carry it out, local work at the head of the queue needs
  // none.
  void carry_out_local();
  // What the scheduler is told when the program posts or polls. Takes no lock.
  SendScheduler::ProbePolicy probe_policy() const;

 private:
  // These are called with the sender's lock held.
  WorkBuilder::Abilities abilities() const;
  bool state_allows_posts() const;
  bool make_room(std::uint64_t sequence);
  bool too_late() const;  // whether new work can only complete as flushed
  void push_prepared(std::uint32_t count);
  bool await_batch(std::unique_lock<SectionMutex>& lock);
  void close_batch();
  void send_or_defer(std::uint64_t first, std::unique_lock<SectionMutex>& lock);
  void carry_out_local(std::unique_lock<SectionMutex>& lock);
  void send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept;
  SendScheduler::PostDecision decide(std::uint64_t first);
  void note_return_to_program();  // takes the lock

  struct Batch {
    std::atomic<bool> open{false};  // written with the sender's lock held
    // Used by the thread that builds the batch.
    pthread_t thread{};
    int error = 0;
    std::uint32_t size = 0;
    WorkBuilder::Abilities abilities;
    Extension extension;
  };

  QpCommon& qp_;
  WorkQueues& queues_;
  rdmap::SendQueue& sends_;
  WorkBuilder builder_;
  Batch batch_;
};

}  // namespace uiw::provider
