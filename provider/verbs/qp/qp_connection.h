// SPDX-License-Identifier: MIT
// The connection of a queue pair on the side of verbs: which stream it has, how the program ends it, and what the
// stream reports about its end.
//
// Thread-safe: each function takes the locks that it needs, except for those with a heading or comment that says which
// locks are held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/connect/attachable.h"
#include "provider/connect/attempt.h"
#include "provider/progress/driver.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/work_queues.h"

namespace uiw::provider {

class QpConnection final : public ConnectionHost {
 public:
  // Both arguments must remain live as long as this object.
  QpConnection(QpCommon& qp, WorkQueues& queues) : qp_(qp), queues_(queues) {}

  // As Attachable says (provider/connect/attachable.h), with disconnect(), arrived() and no_first_message().
  int attach(TcpStream& socket, const Attachment& attachment);
  bool can_attach(const manual::Attempt* attempt);
  int doorbell();
  // A manual connection begins; an earlier attempt ends. Called with both locks held.
  void begin_manual(std::shared_ptr<manual::Attempt> attempt) {
    end_attempt();
    attempt_ = std::move(attempt);
    qp_.manual = true;
  }
  // The attempt in progress, if any, is over. Called with both locks held.
  void end_attempt() {
    if (attempt_) std::exchange(attempt_, nullptr)->end();
  }
  // The attempt in progress, if any; attach() needs it.
  std::shared_ptr<manual::Attempt> attempt();
  bool is_for(std::uint32_t peer_psn);
  // Whether the peer means another queue pair. With the sender's lock.
  bool mixed_up() const { return mixed_up(peer_psn_); }

  bool is_connected();
  // What the two ends have agreed on, what the peer is known to be, and the ORD of now. Nothing if there is no stream.
  struct Agreed {
    rdmap::ConnectionRules rules;
    mpa::PeerKind peer;
    std::uint32_t ord;
  };
  std::optional<Agreed> agreed();
  int disconnect(const ConnectionOwner* owner);
  void arrived(const ConnectionOwner* owner);
  void no_first_message(const ConnectionOwner* owner);
  // As QueuePair says.
  void lose_connection();
  // A completion queue overran that this queue pair uses: the stream ends with a Terminate.
  void completion_lost();
  // The program exits without having destroyed the queue pair.
  void leave_at_exit();
  // Whether the program has ended the connection and the peer does not have everything yet; false if a thread holds a
  // lock of the queue pair, which may be the caller's.
  bool delivers_last();

  // Receives and sends what is possible now; true if anything was. A poll of the program does not wait for a lock. If
  // there is no memory, the stream ends.
  bool progress(Driver driver) noexcept;
  bool watch_socket(bool watched);  // as Driven says

  // RTS to SQD as on InfiniBand: work that is posted from here on waits; and back to RTS.
  void drain();
  void stop_draining();
  // IBV_QP_EN_SQD_ASYNC_NOTIFY: whether IBV_EVENT_SQ_DRAINED is reported.
  void notify_when_drained(bool notify);

  // ---- With the sender's lock ----
  bool drained() const;
  void limit_ord(std::uint32_t ord);
  // Completes all posted sends as flushed, and `culprit` with `status`.
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status);
  void deny_rights(std::uint32_t denied);

  // ---- With both ----
  // RESET.
  void reset();

  // ---- ConnectionHost ----
  ibv_qp_state state() const override { return qp_.state.load(); }
  void report(ibv_event_type type) override { qp_.report(type); }
  void enter_error() override { qp_.state = IBV_QPS_ERR; }
  void peer_gone() override;
  void sent_all() override;
  void sent_last() override;

 private:
  bool mixed_up(std::uint32_t peer_psn) const;
  bool may_attach(const manual::Attempt* attempt) const;
  int share(SharedOffer& offer);
  bool make_progress(Driver driver);

  QpCommon& qp_;
  WorkQueues& queues_;
  std::shared_ptr<manual::Attempt> attempt_;  // manual connection; written with both locks held
  std::uint32_t peer_psn_ = 0;                // of the stream's peer (Attachment); the same

  // With the sender's lock.
  bool tell_when_drained_ = false;
  std::uint64_t drain_to_ = 0;     // SQD of InfiniBand: entries before this one are still sent
  std::uint32_t ord_limit_ = ~0U;  // the limit that the program set before the connection
  std::uint32_t denied_rights_ = 0;
};

}  // namespace uiw::provider
