// SPDX-License-Identifier: MIT
// Posting of send requests: one call, a batch, or a window's bind; and when what is posted is sent, at once or with
// what is posted next (provider/progress/send_scheduler.h).
//
// Thread-safe, and all of it takes the sender's lock by itself; but between begin_batch() and end_batch() only the
// thread that builds the batch calls add() and extend(), which hold no lock.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "provider/export.h"
#include "provider/memory/grace_period.h"
#include "provider/progress/driven.h"
#include "provider/progress/send_scheduler.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/work_builder.h"
#include "provider/verbs/qp/work_queues.h"

namespace uiw::provider {

class UIW_API SendPosting final : public DeferredSends {
 public:
  // Both must remain live as long as this. `signal_all`: sq_sig_all.
  SendPosting(QpCommon& qp, WorkQueues& queues, bool signal_all)
      : qp_(qp), queues_(queues), sends_(queues.sends()), builder_(sends_, &qp.pd, signal_all) {}

  // As the manual page of ibv_post_send says: 0 or an errno, with the first bad request.
  int post(ibv_send_wr* requests, ibv_send_wr** bad);
  // ibv_bind_mw: 0 or an errno. On success the window has its new rkey already.
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind);

  // ibv_wr_start ... ibv_wr_complete: one thread builds, and others that post to this queue pair wait for it. No lock
  // is held in between: the program may do as it likes. EINVAL from end_batch() where this very thread had begun one
  // already.
  void begin_batch();
  void add(const ibv_send_wr& request);
  // Of the request that is added next.
  using Extension = WorkBuilder::Extension;
  void extend(const Extension& extension) { batch_.extension = extension; }
  int end_batch();  // 0 or an errno: then none of the batch was posted
  void abort_batch();

  // ---- DeferredSends ----
  bool has_deferred() const override { return qp_.signals.deferred.load(); }
  bool posts_wait() const override { return qp_.signals.posts_wait_since.load() != 0; }
  void send_waiting_posts() override;
  void send_all_deferred() override;
  void send_overdue_posts() override;
  // The end of the queue pair or of its stream comes next: posts that wait are sent.
  void send_posts_before_end();

 private:
  // The sender's lock is held from here on.
  WorkBuilder::Abilities abilities() const;
  bool state_allows_posts() const;
  bool make_room(std::uint64_t sequence);
  bool too_late() const;  // for anything but a flushed completion
  void push_prepared(std::uint32_t count);
  bool await_batch(std::unique_lock<SectionMutex>& lock);
  void close_batch();
  void send_or_defer(std::uint64_t first, std::unique_lock<SectionMutex>& lock);
  void send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept;
  SendScheduler::PostDecision decide(std::uint64_t first);
  SendScheduler::ProbePolicy probe_policy() const;
  // Without it.
  void note_return_to_program();
  bool left_to_poster() const;

  struct Batch {
    std::atomic<bool> open{false};  // written under the lock
    // Of the thread that builds it.
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
