// SPDX-License-Identifier: MIT
// Queue pairs (Verbs draft section 6), as programs see them.
//
// Qp is in four files: qp.cc (creation, destruction, states and attributes), posting.cc (how send requests are posted),
// qp_connection.cc (how the queue pair gets its Connection, and how threads use the Connection), manual_connection.cc
// (connections that the program makes with ibv_modify_qp). WorkQueues has the work that is posted and not complete.
// Locks: those of the Connection, and one for posting receives.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/stream/tcp_stream.h"
#include "provider/connect/attachable.h"
#include "provider/connect/attempt.h"
#include "provider/connection/connection.h"
#include "provider/connection/retry_timer.h"
#include "provider/progress/driven.h"
#include "provider/progress/driver.h"
#include "provider/progress/send_scheduler.h"
#include "provider/verbs/qp/checked_work.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

class Qp final : public QueuePair, public Driven, public Attachable, private ConnectionHost {
 public:
  // Fills in `attributes.cap` with the granted values. Null with errno: EINVAL for values beyond the device's or a
  // missing completion queue, EOPNOTSUPP for a type other than RC, UC and (on RoCE) XRC_SEND, ENOMEM, EMFILE, ENFILE.
  // `handle` is the program's ibv_qp, which events carry. With `srq` the queue pair has no receive queue of its own.
  // Context, domain, queues and `srq` must remain live as long as the queue pair.
  static std::unique_ptr<Qp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                                    ibv_qp* handle, Srq* srq = nullptr);
  // See QueuePair.
  static std::unique_ptr<Qp> create_target(Context& context, XrcDomain& domain, ibv_qp_init_attr& attributes,
                                           ibv_qp* handle);
  ~Qp() override;
  // Ends the connection; TCP still sends the octets that it has accepted.
  void stop() override;

  std::uint32_t number() const override { return qp_.number; }
  ibv_qp_state state() const override { return qp_.state.load(); }

  int post_send(ibv_send_wr* requests, ibv_send_wr** bad) override;
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) override;
  void delay_posts() override;
  void begin_batch() override;
  void add(const ibv_send_wr& request) override;
  // `extension` applies to the request that is added next.
  void extend(const WorkQueues::Extension& extension) { extension_ = extension; }
  void next_is_atomic_write(std::uint64_t octets) override { extension_ = WorkQueues::AtomicWrite{octets}; }
  void next_is_flush(const rdmap::Flush& flush) override { extension_ = flush; }
  int end_batch() override;
  void abort_batch() override;
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) override;
  void name_last_queue(std::uint32_t queue) override;
  bool completes_to(const Cq* cq) override;
  bool leave_context(const Context& closed) override;
  // A shared receive queue that the peer of an XRC_RECV queue pair may have named is about to end.
  void leave_queue(const Srq& queue);
  // The number of send requests, or of receives, that are posted and not complete.
  std::uint32_t sends_outstanding();
  std::uint32_t receives_outstanding();

  int modify(const ibv_qp_attr& attributes, int mask) override;
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) override;
  ibv_qp_state shown_state() const override;

  void show(ShownQp& shown, PortCounts& traffic) override;

  Attachable* attachable() override { return this; }
  Driven* driven() override { return this; }

  // ---- The connection: see Attachable ----
  using Attachment = provider::Attachment;
  using Driver = uiw::provider::Driver;
  int attach(TcpStream& socket, const Attachment& attachment) override;
  bool can_attach(const manual::Attempt* attempt = nullptr) override;
  int doorbell() override;
  bool is_confirmed() const override { return qp_.is_reliable(); }
  bool is_for(std::uint32_t peer_psn) override;
  int disconnect(const ConnectionOwner* owner) override;
  void arrived(const ConnectionOwner* owner) override;
  void no_first_message(const ConnectionOwner* owner) override;
  bool check_retry_timer(std::chrono::nanoseconds late) override;
  void restart_retry_timer() override;
  void lose_connection() override;
  void completion_lost() override;
  bool is_connected();
  // What the two ends have agreed on, whether the peer is uiw, and the current ORD. agreed() returns nothing if there
  // is no connection.
  struct Agreed {
    rdmap::ConnectionRules rules;
    mpa::PeerKind peer;
    std::uint32_t ord;
  };
  std::optional<Agreed> agreed();
  // The attempt to connect without rdma_cm, from the step to RTR until RESET, or null. attach() refuses a stream that
  // belongs to another attempt (Attachment::attempt).
  std::shared_ptr<manual::Attempt> attempt();
  // To be used inside a ReadSection (base/grace_period.h).
  Connection& connection() { return connection_; }
  // Called when the program exits without having destroyed the queue pair.
  void leave_at_exit();
  // Whether the program has ended the connection and the peer does not have everything yet. False also if some thread,
  // perhaps the calling one, holds a lock of the queue pair.
  bool delivers_last();

  // ---- Driven ----
  // With Driver::poll returns false if another thread holds the receiver's lock. If there is no memory, the connection
  // ends.
  bool progress(Driver driver) noexcept override;
  bool watch_socket(bool watched) override;
  void no_memory() noexcept override;
  bool has_deferred() const override { return connection_.signals.deferred.load(); }
  bool posts_wait() const override { return connection_.signals.posts_wait_since.load() != 0; }
  void send_waiting_posts() override;
  void send_all_deferred() override;
  void send_overdue_posts() override;
  bool give_back_idle_memory() override;

  void after_fork_in_child() override;

 private:
  Qp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
     Srq* srq);

  static std::unique_ptr<Qp> with_number(std::unique_ptr<Qp> qp);
  int check(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask);
  int take_step(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes, int mask);
  void advance(ibv_qp_state from, ibv_qp_state to);
  int to_rtr(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_rts(ibv_qp_state from, const ibv_qp_attr& attributes);
  void to_sqd(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_error();
  void reset();
  void change_attributes(const ibv_qp_attr& attributes, int mask);
  std::optional<std::chrono::microseconds> patience_for_receives();
  // Adapters for iWARP have one state for RESET and INIT (Idle, Verbs draft section 6.2.1), and call it INIT.
  ibv_qp_state idle() const { return rnic_ ? IBV_QPS_INIT : IBV_QPS_RESET; }
  // Whether the queue pair follows the rules of InfiniBand from RTS on: without rdma_cm, or on a device shown as RoCE.
  bool follows_infiniband() const override { return manual_.load(std::memory_order_relaxed) || !rnic_; }
  // Whether work fails if it waits too long for the peer (RetryTimer). With rdma_cm this is so only on a device shown
  // as RoCE, and not before the step to RTS, which sets the limits.
  bool retries() const {
    return manual_.load(std::memory_order_relaxed) ||
           (!rnic_ && steps_reached_.load(std::memory_order_relaxed) == IBV_QPS_UNKNOWN);
  }
  // The state that the program has reached by its own calls of ibv_modify_qp (steps_reached_).
  ibv_qp_state stepped() const {
    const ibv_qp_state reached = steps_reached_.load();
    return reached == IBV_QPS_UNKNOWN ? state() : reached;
  }

  // ---- posting.cc ----
  WorkQueues::Abilities abilities() const UIW_REQUIRES(connection_.locks.send);
  bool state_allows_posts() const;
  bool make_room(std::uint64_t sequence) UIW_REQUIRES(connection_.locks.send);
  // Whether the request names a shared receive queue of the peer.
  bool names_queue(const ibv_send_wr& request) const {
    return qp_.type == IBV_QPT_XRC_SEND && request.opcode != IBV_WR_BIND_MW && request.opcode != IBV_WR_LOCAL_INV;
  }
  int name_queue(std::uint64_t sequence, std::uint32_t queue, const WorkQueues::Abilities& able)
      UIW_REQUIRES(connection_.locks.send);
  bool too_late() const UIW_REQUIRES(connection_.locks.send);  // whether new work can only complete as flushed
  void push_prepared(std::uint32_t count) UIW_REQUIRES(connection_.locks.send);
  void send_or_defer(std::uint64_t first, Lock& lock) UIW_REQUIRES(connection_.locks.send);
  // Called when the queue pair leaves SQD; takes the sender's lock. If there is no connection, carries out binds and
  // local invalidates at the head of the send queue, which need no connection.
  void carry_out_local();
  void carry_out_local(Lock& lock) UIW_REQUIRES(connection_.locks.send);
  void send_what_is_posted(std::uint64_t first, Lock& lock) noexcept UIW_REQUIRES(connection_.locks.send);
  SendScheduler::PostDecision decide(std::uint64_t first) UIW_REQUIRES(connection_.locks.send);
  void note_return_to_program();  // takes the sender's lock
  // When probes are sent (RDMA Reads of no octets, which ask what the peer has placed). There must be a session.
  SendScheduler::ProbePolicy probe_policy() UIW_REQUIRES(connection_.locks.send);

  // ---- qp_connection.cc ----
  bool may_attach(const manual::Attempt* attempt) const UIW_REQUIRES(connection_.locks.send);
  // True if the peer expects another PSN than this end starts with.
  bool mixed_up(std::uint32_t peer_psn) const UIW_REQUIRES(connection_.locks.send);
  bool drained() const UIW_REQUIRES(connection_.locks.send);
  void limit_ord(std::uint32_t ord) UIW_REQUIRES(connection_.locks.send);
  void compare_read_depths() UIW_REQUIRES(connection_.locks.send);
  // Completes the entry `culprit` of the send queue, if there is one, with `status`, and the other entries as flushed,
  // except those at the head that are done already: these complete with success.
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status) UIW_REQUIRES(connection_.locks.send);
  void deny_rights(std::uint32_t denied) UIW_REQUIRES(connection_.locks.send);
  int share(SharedOffer& offer) UIW_REQUIRES(connection_.locks.receive, connection_.locks.send);
  void reset_connection() UIW_REQUIRES(connection_.locks.receive, connection_.locks.send);
  // Begins an attempt to connect without rdma_cm, and ends an earlier one.
  void begin_manual(std::shared_ptr<manual::Attempt> attempt)
      UIW_REQUIRES(connection_.locks.receive, connection_.locks.send) {
    end_attempt();
    attempt_ = std::move(attempt);
    manual_ = true;
  }
  // Ends the attempt in progress, if any.
  void end_attempt() UIW_REQUIRES(connection_.locks.receive, connection_.locks.send) {
    if (attempt_) std::exchange(attempt_, nullptr)->end();
  }
  // As progress(), but throws if there is no memory. Takes the locks.
  bool make_progress(Driver driver);
  // Sends posts that wait for later posts, since the queue pair or its connection is about to end. Takes the sender's
  // lock.
  void send_posts_before_end();
  // Whether the calling thread leaves posts that wait to the thread that has posted them. Takes no lock.
  bool left_to_poster() const;
  // drain(): RTS to SQD as on InfiniBand, where work that is posted later waits. stop_draining(): back to RTS.
  void drain();
  void stop_draining();
  // IBV_QP_EN_SQD_ASYNC_NOTIFY: whether IBV_EVENT_SQ_DRAINED is reported.
  void notify_when_drained(bool notify);
  // ConnectionHost
  void report(ibv_event_type type) override { qp_.report(type); }
  void enter_error() override { qp_.state = IBV_QPS_ERR; }
  void peer_gone() override UIW_REQUIRES(connection_.locks.send);
  void sent_all() override UIW_REQUIRES(connection_.locks.send);
  void sent_last() override UIW_REQUIRES(connection_.locks.send);

  // ---- manual_connection.cc: connections that the program makes with ibv_modify_qp ----
  // Called before a step to RTR. On RoCE resolves the next hop to the peer's GID, and waits one second at most. Returns
  // 0, ETIMEDOUT, or the error of the route (ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL); 0 also for arguments that the
  // step itself refuses. Not to be called inside a ReadSection.
  int find_peer(const ibv_qp_attr& attributes) const;
  // INIT to RTR: from here on this end connects to the peer, or waits until the peer connects. Returns 0 or an errno;
  // after an error the step is not made.
  int ready_to_receive(const ibv_qp_attr& attributes, int mask);
  // RTR to RTS: sets the PSN with which this end starts. If the peer has connected and expects another PSN, gives that
  // connection up.
  void ready_to_send(const ibv_qp_attr& attributes);
  std::optional<rdmap::Status> check_oldest_work(RetryTimer::Clock::time_point now)
      UIW_REQUIRES(connection_.locks.send);
  // Starts to measure, at `now`, how long the oldest entry of the send queue, `head`, waits for the peer.
  void start_retry_timer(std::uint64_t head, RetryTimer::Clock::time_point now) UIW_REQUIRES(connection_.locks.send) {
    retry_timer_.work_at(head, now);
    connection_.note_progress(now);
  }

  const bool rnic_;                   // the device is shown as iWARP and not as RoCE
  std::atomic<bool> manual_{false};   // connected without rdma_cm, from RTR on; written with the receiver's lock
  std::atomic<bool> stopped_{false};  // set by stop(), so that attach() fails; written with the receiver's lock
  // On a device shown as RoCE, rdma_cm may connect before the program has made all steps to RTS with ibv_modify_qp.
  // Then this is the state that these steps have reached; IBV_QPS_UNKNOWN at any other time. Written with the sender's
  // lock held.
  std::atomic<ibv_qp_state> steps_reached_{IBV_QPS_UNKNOWN};
  std::unique_ptr<CheckedWork> checked_;  // what the connection has in place of queues_, if the process is checked
  Connection connection_;
  // Used by the thread that builds a batch.
  WorkQueues::Abilities batch_abilities_;
  WorkQueues::Extension extension_;
  std::shared_ptr<manual::Attempt> attempt_;  // of a connection without rdma_cm; written with both locks held
  std::uint32_t peer_psn_ = 0;                // the peer's rq_psn, 0 if not known; written with both locks held
  RetryTimer retry_timer_ UIW_GUARDED_BY(connection_.locks.send);
  bool tell_when_drained_ UIW_GUARDED_BY(connection_.locks.send) = false;
  // Of XRC_SEND: the shared receive queue of the peer that the last posted request is for; 0 if there is none yet.
  std::uint32_t named_queue_ UIW_GUARDED_BY(connection_.locks.send) = 0;
  // In SQD, by the rules of InfiniBand: entries before this one are still sent.
  std::uint64_t drain_to_ UIW_GUARDED_BY(connection_.locks.send) = 0;
  // The limit of ORD that the program has set; a later connection starts with it.
  std::uint32_t ord_limit_ UIW_GUARDED_BY(connection_.locks.send) = ~0U;
  std::uint32_t denied_rights_ UIW_GUARDED_BY(connection_.locks.send) = 0;
};

// The queue pair with this number, or null. Inside a ReadSection.
Qp* find_qp(std::uint32_t number);
// Calls `function` for each queue pair that can be found now, one after the other.
void for_each_qp(const std::function<void(Qp&)>& function);

}  // namespace uiw::provider
