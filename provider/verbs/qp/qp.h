// SPDX-License-Identifier: MIT
// Queue pairs (Verbs draft section 6): what a program sees of them. Work queues, states and attributes; the connection that
// carries out the work is a Stream, which is made when one is there and dropped in RESET.
//
// Locks: those of StreamLocks; the receive queue has one of its own for its posters. The sender's lock is never held while
// the receiver's is taken. Work is flushed with both, so that nothing is placed for it any more.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/export.h"
#include "provider/memory/grace_period.h"
#include "provider/stream/retry_timer.h"
#include "provider/stream/stream.h"
#include "provider/verbs/cq.h"
#include "provider/verbs/qp/qp_table.h"
#include "provider/verbs/qp/work_builder.h"
#include "rdmap/work.h"

namespace uiw::provider {

class Context;
class Pd;
class Srq;
class SrqUser;

class UIW_API Qp final : StreamHost {
 public:
  // Fills in `attributes.cap` with what was granted. Null with errno: EINVAL for caps beyond the device's, EOPNOTSUPP for
  // a type other than RC and UC, ENOMEM, EMFILE. `handle` is the program's ibv_qp, which events carry. With a shared receive queue it
  // has none of its own.
  static std::unique_ptr<Qp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                                    ibv_qp* handle, Srq* srq = nullptr);
  ~Qp();
  // The first half of destruction: nobody finds or drives it from here on, no event about it is reported, and its stream has
  // ended. What was posted and not complete is gone without a completion; what TCP has taken still goes out.
  void stop();

  std::uint32_t number() const { return number_; }
  const Context& context() const { return *context_; }
  const ibv_qp* handle() const { return handle_; }
  ibv_qp_state state() const override { return state_.load(); }

  // As the manual pages of ibv_post_send and ibv_post_recv say: 0 or an errno, with the first bad request.
  int post_send(ibv_send_wr* requests, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad);

  // ibv_bind_mw: 0 or an errno. On success the window has its new rkey already.
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind);

  // ibv_wr_start ... ibv_wr_complete: one thread builds, and others that post to this queue pair wait for it. No lock is
  // held in between: the program may do as it likes. EINVAL from end_batch() where this very thread had begun one already.
  void begin_batch();
  void add(const ibv_send_wr& request);
  // Of the request that is added next.
  using Extension = WorkBuilder::Extension;
  void extend(const Extension& extension) { batch_.extension = extension; }
  int end_batch();  // 0 or an errno: then none of the batch was posted
  void abort_batch();

  // As the manual page of ibv_modify_qp says: 0, or an errno and nothing has changed.
  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init);

  // Work posted and not complete.
  std::uint32_t sends_outstanding();
  std::uint32_t receives_outstanding();

  bool completes_to(const Cq* cq) const { return cq == send_cq_ || cq == receive_cq_; }
  // A completion queue had no room for a completion of this or another queue pair: the stream ends with a Terminate.
  void completion_lost();

  // Gives the QP its stream. EINVAL where its state does not allow it, EISCONN where it has one; the socket is then
  // untouched.
  struct Attachment {
    mpa::Agreement agreement;
    bool initiator = false;
    std::size_t mulpdu = 0;  // largest ULPDU to send; 0 follows the TCP segment size
    bool manual = false;    // by its program: its state and attributes are what that says
    std::uint32_t life = 0;  // which manual connection it is for: one that was begun before RESET is not for the next
    std::uint32_t peer_psn = 0;  // manual: the peer's rq_psn, 0 if it has said none
    rdmap::Completion completion = rdmap::Completion::local;
    // What the program knows of the depths agreed on, at most; the rest is for probes (rdmap/transmitter.h).
    std::uint32_t ord = ~0U, ird = ~0U;
    std::shared_ptr<StreamOwner> owner;
  };
  int attach(mpa::TcpStream& socket, const Attachment& attachment);
  bool can_attach(bool manual = false, std::uint32_t life = 0);
  // Does the peer that says this PSN (Attachment) mean this queue pair, as far as is known?
  bool is_for(std::uint32_t peer_psn);
  // Orderly end: what is posted is sent, then TCP is closed; a peer that does not close in time is reset. ENOTCONN if
  // the stream is not this owner's or not there; nullptr stands for any.
  int disconnect(const StreamOwner* owner);
  // False if it has no stream.
  using Agreed = Stream::Agreed;
  bool query_agreed(Agreed& agreed);
  // The peer has had its time to begin.
  void abort_beginning(const StreamOwner* owner);

  // Work posted to a queue pair that its program has connected fails once it has waited for too long (RetryTimer). False if
  // there is none.
  bool check_retry_timer();

  // It was made by a process of which this one is the child: then it stays that one's. What is done to the copy here
  // touches neither the stream nor the peer, modify() fails with EIO, and in place of its destruction leave_to_parent()
  // gives up its domain and queues; its memory may be half changed, and is left as it is.
  bool inherited() const;
  void leave_to_parent();
  void after_fork_in_child();

  // Something about its stream needed memory that is not to be had: the stream ends, by a reset.
  void no_memory() noexcept;

  // The program ends without having destroyed it.
  void leave_at_exit();

  // Async events about this queue pair that went into the context's pipe.
  unsigned events_reported() const { return events_reported_.load(); }

  using Driver = uiw::provider::Driver;
  // Moves what can be moved now; true if anything was. A program's poll does not wait for a lock. A stream for which
  // there is no memory ends.
  bool progress(Driver driver) noexcept;
  // Something is still to be sent: posts that may go with the next ones, or the question to the peer whether it has
  // placed some work; sent at the latest when the program waits for a completion.
  bool has_deferred() const { return signals_.deferred.load(); }
  bool posts_deferred() const { return signals_.posts_deferred_since.load() != 0; }
  // The program polls: what it has posted goes. And, as it has found nothing, the rest.
  void send_posts();
  void send_deferred();
  // The program posts and polls, but has not come back for what it has posted here.
  void send_overdue();
  unsigned idle_rounds = 0;  // the engine's note: polls in a row without work

 private:
  Qp(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
     Srq* srq);

  // StreamHost
  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override;
  rdmap::Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override;
  bool next_receive(rdmap::ReceiveBuffer& buffer) override;
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                        const rdmap::ReceiveHost::Message& message) override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override;
  bool receive_there() const override;
  void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) override;
  void flush_receives() override;
  void report(ibv_event_type type) override;
  void enter_error() override { state_ = IBV_QPS_ERR; }
  void peer_gone() override;
  void drop_stream() override;
  void sent_all() override;
  void sent_last() override;

  // The sender's lock is held from here on.
  WorkBuilder::Abilities abilities() const;
  bool posts() const;  // does the state allow it?
  bool make_room(std::uint64_t sequence);
  void push_prepared(std::uint32_t count);
  bool await_batch(std::unique_lock<SectionMutex>& lock);
  void close_batch();
  void send_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock);
  void send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept;
  bool coalesces(std::uint64_t first);
  void resume_posting();
  void send_waiting();
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status);
  bool drained() const { return manual_ ? send_queue_.head() >= drain_to_ : send_queue_.empty(); }
  bool too_late() const;   // for anything but a flushed completion
  void release_windows();

  rdmap::Transmitter::ProbePolicy probe_policy_of_program() const;
  // With the sender's lock: what can be sent is.
  void transmit();
  bool awaited_elsewhere() const;

  bool make_progress(Driver driver);

  bool step(ibv_qp_state from, ibv_qp_state to);
  void change_attributes(const ibv_qp_attr& attributes, int mask);
  bool is_connected();
  bool may_attach(bool manual, std::uint32_t life) const;
  bool runs(Stream::Phase phase) const { return stream_ != nullptr && stream_->phase() == phase; }
  bool mixed_up(std::uint32_t peer_psn) const;
  void ready_to_send_manually(const ibv_qp_attr& attributes);
  void start_retry_timer(RetryTimer::Clock::time_point now);
  std::optional<rdmap::Status> check_oldest_work(RetryTimer::Clock::time_point now);
  int connect_manually(const ibv_qp_attr& attributes, int mask);
  void drain();
  void go_on();
  void forget_completions();
  void reset();

  const std::shared_ptr<Context> context_;
  const unsigned generation_;
  Pd& pd_;
  Cq* const send_cq_;
  Cq* const receive_cq_;
  ibv_qp* const handle_;
  std::uint32_t number_ = 0;  // 0 where all are taken
  ibv_qp_init_attr init_;
  ibv_qp_attr attributes_{};

  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<bool> steps_due_{false};  // on RoCE, while the program has yet to go through the states of its stream
  std::atomic<unsigned> events_reported_{0};
  std::atomic<bool> manual_{false};  // from RTR on, by ibv_modify_qp; written with both locks held
  std::atomic<std::uint32_t> life_{0};  // counts that; likewise

  StreamLocks locks_;
  StreamSignals signals_;
  // None before it is connected, and after RESET. It changes with both locks held. The one before is kept until then, for
  // who has dropped it may be at work in it.
  std::shared_ptr<Stream> stream_, stream_before_;

  // The sender.
  rdmap::SendQueue send_queue_;
  WorkBuilder builder_;
  bool tell_when_drained_ = false;   // IBV_QP_EN_SQD_ASYNC_NOTIFY
  std::uint32_t ord_limit_ = ~0U;    // what the program asked for before it was connected
  bool has_windows_ = false;  // some of type 2 were bound
  struct Batch {
    std::atomic<bool> open{false};  // written under the lock
    // Of the thread that builds it.
    pthread_t thread{};
    int error = 0;
    std::uint32_t size = 0;
    WorkBuilder::Abilities abilities;
    Extension extension;
  };
  Batch batch_;
  std::uint64_t drain_to_ = 0;   // SQD, connected without rdma_cm: what stands before this goes on
  RetryTimer retry_timer_;

  // The receiver.
  std::uint32_t denied_rights_ = 0;
  bool last_receive_reported_ = false;

  alignas(64) SectionMutex post_receive_mutex_;
  rdmap::ReceiveQueue receive_queue_;
  std::unique_ptr<SrqUser> shared_;  // in place of it
};

}  // namespace uiw::provider
