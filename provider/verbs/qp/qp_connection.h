// SPDX-License-Identifier: MIT
// The connection of a queue pair, as far as verbs see it: which stream it has, since when, how the program ends it, and
// what the stream says of its fate.
//
// Thread-safe: all of it takes the locks by itself, but for the functions of StreamHost, which say what is held.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/connect/attachable.h"
#include "provider/connect/attempt.h"
#include "provider/progress/driver.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/work_queues.h"

namespace uiw::provider {

class QpConnection final : public StreamHost {
 public:
  // Both must remain live as long as this.
  QpConnection(QpCommon& qp, WorkQueues& queues) : qp_(qp), queues_(queues) {}

  // As Attachable says (provider/connect/attachable.h), with disconnect() and abort_beginning().
  int attach(mpa::TcpStream& socket, const Attachment& attachment);
  bool can_attach(const manual::Attempt* attempt);
  // A manual connection begins; the attempt before, if any, is over. With both locks.
  void begin_manual(std::shared_ptr<manual::Attempt> attempt) {
    end_attempt();
    attempt_ = std::move(attempt);
    qp_.manual = true;
  }
  // The queue pair leaves for RESET or is destroyed. With both locks.
  void end_attempt() {
    if (attempt_) std::exchange(attempt_, nullptr)->end();
  }
  // The attempt that is under way, if any, for who has attach() to call.
  std::shared_ptr<manual::Attempt> attempt();
  bool is_for(std::uint32_t peer_psn);
  // With the sender's lock.
  bool mixed_up(std::uint32_t peer_psn) const;

  bool is_connected();
  // False if it has no stream.
  bool query_agreed(Stream::Agreed& agreed);
  int disconnect(const StreamOwner* owner);
  void abort_beginning(const StreamOwner* owner);
  // A completion queue had no room for a completion of this or another queue pair: the stream ends with a Terminate.
  void completion_lost();
  // The program ends without having destroyed it.
  void leave_at_exit();

  // Moves what can be moved now; true if anything was. A program's poll does not wait for a lock. A stream for which
  // there is no memory ends.
  bool progress(Driver driver) noexcept;

  // RTS to SQD: what is posted from here on waits, if the program has connected it; and back.
  void drain();
  void stop_draining();
  // IBV_QP_EN_SQD_ASYNC_NOTIFY
  void notify_when_drained(bool notify);

  // ---- With the sender's lock ----
  bool drained() const;
  void limit_ord(std::uint32_t ord);
  void deny_rights(std::uint32_t denied);

  // ---- With both ----
  // RESET.
  void reset();

  // ---- StreamHost ----
  ibv_qp_state state() const override { return qp_.state.load(); }
  void report(ibv_event_type type) override { qp_.report(type); }
  void enter_error() override { qp_.state = IBV_QPS_ERR; }
  void peer_gone() override;
  void drop_stream() override;
  void sent_all() override;
  void sent_last() override;

 private:
  bool may_attach(const manual::Attempt* attempt) const;
  Stream::Parameters parameters_of(const Attachment& attachment, const mpa::TcpStream& socket) const;
  bool make_progress(Driver driver);

  QpCommon& qp_;
  WorkQueues& queues_;
  // The one before is kept until there is another, for who has dropped it may be at work in it.
  std::shared_ptr<Stream> stream_before_;
  std::shared_ptr<manual::Attempt> attempt_;  // manual connection; written with both locks held

  // With the sender's lock.
  bool tell_when_drained_ = false;
  std::uint64_t drain_to_ = 0;     // SQD, connected without rdma_cm: what stands before this goes on
  std::uint32_t ord_limit_ = ~0U;  // what the program asked for before it was connected
  std::uint32_t denied_rights_ = 0;
};

}  // namespace uiw::provider
