// SPDX-License-Identifier: MIT
// Queue pairs (Verbs draft section 6), as programs see them.
//
// Qp is in three files: qp.cc has creation, destruction, states and attributes; qp_connection.cc how it is connected
// and driven (its Connection does the rest); manual_connection.cc what programs do that connect with ibv_modify_qp.
// WorkQueues has the work that is posted and not complete; SendPosting takes requests and sends them. Thread-safe,
// except for destruction. Locks: those of the Connection (common_.connection), and one for posters of receives.
#pragma once

#include <infiniband/verbs.h>

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
#include "provider/progress/driven.h"
#include "provider/progress/driver.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/send_posting.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

class Qp final : public QueuePair, public Driven, public Attachable, private ConnectionHost {
 public:
  // Fills in `attributes.cap` with the granted values. Null with errno: EINVAL for values beyond the device's,
  // EOPNOTSUPP for a type other than RC and UC, ENOMEM, EMFILE. `handle` is the program's ibv_qp, which events carry.
  // With `srq` the queue pair has no receive queue of its own. Context, domain, queues and `srq` must remain live as
  // long as the queue pair.
  static std::unique_ptr<Qp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                                    ibv_qp* handle, Srq* srq = nullptr);
  ~Qp() override;
  // The first half of destruction: from here on the queue pair is not found or driven, no event about it is reported,
  // and its stream has ended. Work that is not complete gets no completion; octets that TCP has taken are still sent.
  void stop() override;

  QpIdentity& identity() override { return common_; }
  std::uint32_t number() const override { return common_.number; }
  const ibv_qp* handle() const { return common_.handle; }
  ibv_qp_state state() const override { return common_.state.load(); }

  // The send side: open batches, and posting.
  SendPosting& posting() override { return posting_; }
  // As the manual page of ibv_post_recv says: 0 or an errno, with the first bad request.
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) override;
  // The number of requests that are posted and not complete.
  std::uint32_t sends_outstanding();
  std::uint32_t receives_outstanding();

  // As the manual page of ibv_modify_qp says: 0, or an errno and nothing has changed.
  int modify(const ibv_qp_attr& attributes, int mask) override;
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) override;

  void show(ShownQp& shown, PortCounts& traffic) override;

  Attachable* attachable() override { return this; }
  Driven* driven() override { return this; }

  // ---- The connection: see Attachable ----
  using Attachment = provider::Attachment;
  using Driver = uiw::provider::Driver;
  int attach(TcpStream& socket, const Attachment& attachment) override;
  bool can_attach(const manual::Attempt* attempt = nullptr) override;
  int doorbell() override;
  bool is_confirmed() const override { return common_.is_reliable(); }
  bool is_for(std::uint32_t peer_psn) override;
  int disconnect(const ConnectionOwner* owner) override;
  void arrived(const ConnectionOwner* owner) override;
  void no_first_message(const ConnectionOwner* owner) override;
  bool check_retry_timer(std::chrono::nanoseconds late) override;
  void restart_retry_timer() override;
  // As QueuePair says.
  void lose_connection() override;
  // A completion queue overran that this queue pair uses: the connection ends with a Terminate.
  void completion_lost() override;
  bool is_connected();
  // What the two ends have agreed on, what the peer is known to be, and the ORD of now. Nothing if it is not connected.
  struct Agreed {
    rdmap::ConnectionRules rules;
    mpa::PeerKind peer;
    std::uint32_t ord;
  };
  std::optional<Agreed> agreed();
  // The attempt of a manual connection that is in progress, if any; attach() needs it.
  std::shared_ptr<manual::Attempt> attempt();
  // The program exits without having destroyed the queue pair.
  void leave_at_exit();
  // Whether the program has ended the connection and the peer does not have everything yet; false if a thread holds a
  // lock of the queue pair, which may be the caller's.
  bool delivers_last();

  // ---- As Driven says ----
  // A poll of the program does not wait for a lock. If there is no memory, the connection ends.
  bool progress(Driver driver) noexcept override;
  bool watch_socket(bool watched) override;
  void no_memory() noexcept override { common_.no_memory(); }
  bool has_deferred() const override { return common_.connection.signals.deferred.load(); }
  bool posts_wait() const override { return common_.connection.signals.posts_wait_since.load() != 0; }
  void send_waiting_posts() override;
  void send_all_deferred() override;
  void send_overdue_posts() override;
  bool give_back_idle_memory() override;

  // True if a parent process created the queue pair. It then stays the parent's: calls on the copy in this process
  // affect neither the stream nor the peer, and modify() fails with EIO. Instead of destruction, leave_to_parent()
  // releases the domain and the queues; the memory of the copy may be inconsistent and is left as it is.
  bool inherited() const override;
  void leave_to_parent() override;
  void after_fork_in_child() override;

 private:
  Qp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
     Srq* srq);

  int check(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask);
  int take_step(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes, int mask);
  void advance(ibv_qp_state from, ibv_qp_state to);
  int to_rtr(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_rts(ibv_qp_state from, const ibv_qp_attr& attributes);
  void to_sqd(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_error();
  void reset();
  void change_attributes(const ibv_qp_attr& attributes, int mask);
  // Adapters for iWARP have one state for RESET and INIT (Idle, Verbs draft section 6.2.1), and call it INIT.
  ibv_qp_state idle() const { return common_.rnic ? IBV_QPS_INIT : IBV_QPS_RESET; }
  ibv_qp_state shown_state() const;

  // ---- qp_connection.cc ----
  // With the sender's lock.
  bool may_attach(const manual::Attempt* attempt) const;
  // True if the peer expects another PSN than this end starts with.
  bool mixed_up(std::uint32_t peer_psn) const;
  bool drained() const;
  void limit_ord(std::uint32_t ord);
  // Completes all posted sends as flushed, and `culprit` with `status`.
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status);
  void deny_rights(std::uint32_t denied);
  // With both locks.
  int share(SharedOffer& offer);
  void reset_connection();
  // A manual connection begins; an earlier attempt ends.
  void begin_manual(std::shared_ptr<manual::Attempt> attempt) {
    end_attempt();
    attempt_ = std::move(attempt);
    common_.manual = true;
  }
  // The attempt in progress, if any, is over.
  void end_attempt() {
    if (attempt_) std::exchange(attempt_, nullptr)->end();
  }
  // Takes the locks.
  bool make_progress(Driver driver);
  // The queue pair, or its connection, is about to end: posts that wait are sent. Takes the sender's lock.
  void send_posts_before_end();
  bool left_to_poster() const;  // takes no lock
  // RTS to SQD as on InfiniBand: work that is posted from here on waits; and back to RTS.
  void drain();
  void stop_draining();
  // IBV_QP_EN_SQD_ASYNC_NOTIFY: whether IBV_EVENT_SQ_DRAINED is reported.
  void notify_when_drained(bool notify);
  // ConnectionHost
  void report(ibv_event_type type) override { common_.report(type); }
  void enter_error() override { common_.state = IBV_QPS_ERR; }
  void peer_gone() override;
  void sent_all() override;
  void sent_last() override;

  // ---- manual_connection.cc: what a program does that connects with ibv_modify_qp ----
  // What comes before a step to RTR on RoCE: the way to the peer's GID is looked for, for a second at most. 0, or
  // ETIMEDOUT, ENETUNREACH or EHOSTUNREACH. For callers in no ReadSection. An argument that the step itself refuses is
  // no error here.
  int find_peer(const ibv_qp_attr& attributes) const;
  // INIT to RTR: from here on the two ends look for each other. Returns 0, or an errno and nothing has changed.
  int ready_to_receive(const ibv_qp_attr& attributes, int mask);
  // RTR to RTS: from here on the queue pair sends.
  void ready_to_send(const ibv_qp_attr& attributes);
  // With the sender's lock.
  std::optional<rdmap::Status> check_oldest_work(RetryTimer::Clock::time_point now);

  const unsigned generation_;
  ibv_qp_init_attr init_;
  QpCommon common_;
  WorkQueues queues_;
  SendPosting posting_;
  std::shared_ptr<manual::Attempt> attempt_;  // manual connection; written with both locks held
  std::uint32_t peer_psn_ = 0;                // of the connection's peer (Attachment); the same
  // With the sender's lock.
  bool tell_when_drained_ = false;
  std::uint64_t drain_to_ = 0;     // SQD of InfiniBand: entries before this one are still sent
  std::uint32_t ord_limit_ = ~0U;  // the limit that the program set before the connection
  std::uint32_t denied_rights_ = 0;
};

// The queue pair with this number, or null. Inside a ReadSection.
Qp* find_qp(std::uint32_t number);
// Each that can be found now, one after the other.
void for_each_qp(const std::function<void(Qp&)>& function);

}  // namespace uiw::provider
