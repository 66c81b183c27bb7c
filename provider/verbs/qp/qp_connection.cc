// SPDX-License-Identifier: MIT
// How a queue pair is connected, how threads send and receive for it, and what the program and the peer do to the
// connection. Each function takes the locks that it needs, unless its declaration in qp.h says that they are held.

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/guarded_copy.h"
#include "base/mutex.h"
#include "mpa/markers.h"
#include "provider/check/checker.h"
#include "provider/connect/retry_timers.h"
#include "provider/process/limits.h"
#include "provider/process/log.h"
#include "provider/verbs/context.h"
#include "provider/verbs/qp/exit.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

namespace {

std::size_t mulpdu_of(const Attachment& attachment, const TcpStream& socket, mpa::PeerKind peer) {
  const mpa::Agreement& agreement = attachment.agreement;
  if (attachment.mulpdu != 0) return attachment.mulpdu;
  if (attachment.rings) return mpa::kCachedMulpdu;
  if (agreement.long_fpdus || peer == mpa::PeerKind::uiw)
    return agreement.copies() ? mpa::kCachedMulpdu : mpa::kMaxMulpdu;
  const std::size_t emss = socket.segment_size();
  return agreement.marks ? mpa::marked_mulpdu(emss) : mpa::mulpdu(emss);
}

// The rules of a connection: what start-up (MPA) has negotiated, within the limits of the device and the program.
rdmap::ConnectionRules rules_of(const Attachment& attachment, const TcpStream& socket, const QpIdentity& qp) {
  const mpa::Agreement& agreement = attachment.agreement;
  constexpr std::uint32_t kMost = kMaxReadDepth;
  constexpr std::uint32_t kMostRequests = kMost + rdmap::SharedReads::kMostProbes;
  rdmap::ConnectionRules rules;
  rules.initiator = attachment.initiator;
  rules.manual = attachment.attempt != nullptr;
  rules.reliable = qp.is_reliable();
  rules.one_cq = &qp.send_cq == &qp.receive_cq;
  rules.xrc_target = qp.type == IBV_QPT_XRC_RECV;
  rules.revision = agreement.revision;
  rules.crc = agreement.crc;
  rules.marks = agreement.marks;
  rules.marked = agreement.marked;
  rules.shared_octets = attachment.rings != nullptr && !agreement.crc;
  rules.rtr = agreement.rtr;
  // A peer that connects without rdma_cm, or that offers shared memory, is known to be uiw. With `hello` the first
  // message tells the peer that this end is uiw. An initiator that accepts the memory sends that message, too, since
  // the peer does not know yet that the memory is accepted.
  rules.hello = !rules.manual && agreement.peer == mpa::PeerKind::not_known;
  const bool shown = rules.manual || (attachment.initiator && attachment.rings);
  rules.peer = shown ? mpa::PeerKind::uiw : agreement.peer;
  rules.mulpdu = mulpdu_of(attachment, socket, rules.peer);
  rules.mulpdu_to_uiw = mulpdu_of(attachment, socket, mpa::PeerKind::uiw);
  rules.requests_out = std::min<std::uint32_t>(agreement.ord, kMostRequests);
  rules.requests_in = std::min<std::uint32_t>(agreement.ird, kMostRequests);
  rules.ord = std::min({rules.requests_out, attachment.ord, kMost});
  rules.ird = std::min({rules.requests_in, attachment.ird, kMost});
  if (rules.reliable) rules.completion = attachment.completion;
  rules.watched = check::Checker::active() != nullptr;
  // Other peers may take it for an error, though it is none.
  if (settings().values.check == Check::order && rules.peer == mpa::PeerKind::uiw)
    rules.disorder = settings().values.check_seed;
  return rules;
}

}  // namespace

bool Qp::may_attach(const manual::Attempt* attempt) const {
  const ibv_qp_state state = this->state();
  const bool manual = attempt != nullptr;
  if (!connection_.is_idle() || stopped_ || manual != manual_ || (manual && attempt->is_over())) return false;
  if (manual) return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  // On RoCE the program may change the state of the queue pair itself, before or while rdma_cm connects.
  return qp_.is_reliable() &&
         (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR || state == IBV_QPS_RTS);
}

bool Qp::can_attach(const manual::Attempt* attempt) {
  const LockGuard lock(connection_.locks.send);
  return may_attach(attempt);
}

std::shared_ptr<manual::Attempt> Qp::attempt() {
  const LockGuard lock(connection_.locks.send);
  return attempt_;
}

// Begins to move the connection to the shared memory of `offer`. 0 or an errno. Also returns 0 if the octets stay on
// TCP because the memory cannot be used.
int Qp::share(SharedOffer& offer) {
  try {
    return connection_.share(std::move(offer));
  } catch (const std::bad_alloc&) {
    // An initiator has not told the peer yet that it accepts the memory, so the octets stay on TCP.
    return connection_.rules().initiator ? 0 : ENOMEM;
  }
}

int Qp::doorbell() { return qp_.context->engine().doorbell(); }

int Qp::attach(TcpStream& socket, const Attachment& attachment) {
  install_copy_guard();
  act_at_exit();
  const LockGuard receive_lock(connection_.locks.receive);
  const LockGuard send_lock(connection_.locks.send);
  if (!connection_.is_idle()) return EISCONN;
  if (!may_attach(attachment.attempt.get())) return EINVAL;
  if (attachment.attempt && state() != IBV_QPS_RTR && mixed_up(attachment.peer_psn)) return EPERM;

  const rdmap::ConnectionRules rules = rules_of(attachment, socket, qp_);
  if (rules.xrc_target) queues_.leave_queues();  // those that the peer of an earlier session has named
  try {
    if (follows_infiniband()) prepare_retry_timers();
    connection_.prepare(qp_.number, rules, attachment.owner, std::move(socket));
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  const std::uint32_t ord = connection_.transmitter().limit_ord(ord_limit_);
  if (follows_infiniband() && state() == IBV_QPS_SQD) connection_.transmitter().hold_from(drain_to_);
  connection_.deny(denied_rights_);
  Engine& engine = qp_.context->engine();
  int error = engine.add(*this, connection_.socket().fd());
  if (error == 0 && attachment.rings) error = share(*attachment.rings);
  if (error != 0) {
    engine.release(connection_.socket().fd());
    engine.remove(*this);
    socket = connection_.take_back();
    return error;
  }
  if (!attachment.attempt) {
    attributes_.max_rd_atomic = static_cast<std::uint8_t>(ord);
    attributes_.max_dest_rd_atomic = static_cast<std::uint8_t>(rules.ird);
    if (!rnic_ && state() != IBV_QPS_RTS) steps_reached_ = state();
    qp_.state = IBV_QPS_RTS;
  }
  connection_.begin();
  compare_read_depths();
  peer_psn_ = attachment.peer_psn;
  engine.counters().add(PortCounter::connections);
  connection_.wait_for_first_message(attachment.first_by_owner);
  if (retries() && !sends().empty()) start_retry_timers();
  try {
    connection_.send();
  } catch (const std::exception&) {  // the stream is attached, and ends for lack of memory
    connection_.break_off();
  }
  return 0;
}

std::optional<Qp::Agreed> Qp::agreed() {
  const LockGuard lock(connection_.locks.send);
  if (connection_.is_idle()) return std::nullopt;
  return Agreed{connection_.rules(), connection_.peer(), connection_.transmitter().ord()};
}

int Qp::disconnect(const ConnectionOwner* owner) {
  const ReadSection section;
  const LockGuard lock(connection_.locks.receive);
  if (connection_.is_idle() || (owner != nullptr && !connection_.is_of(owner))) return ENOTCONN;
  return connection_.disconnect();
}

void Qp::arrived(const ConnectionOwner* owner) {
  {
    const LockGuard lock(connection_.locks.receive);
    if (!connection_.is_of(owner)) return;
    connection_.first_may_come();
  }
  progress(Driver::event);
}

void Qp::no_first_message(const ConnectionOwner* owner) {
  const LockGuard lock(connection_.locks.receive);
  if (!connection_.is_of(owner)) return;
  if (!connection_.rules().initiator) {
    connection_.lose(Connection::Lost::beginning);
  } else if (connection_.peer() == mpa::PeerKind::not_known) {
    log_event(LogLevel::info, "queue pair 0x%06x: its peer has sent nothing yet, and counts as no uiw until it does",
              qp_.number);
    connection_.peer_known(mpa::PeerKind::other, false);
  }
}

void Qp::lose_connection() {
  const LockGuard lock(connection_.locks.receive);
  if (!connection_.is_idle()) connection_.lose(Connection::Lost::by_fault);
}

bool Qp::completes_to(const Cq* cq) {
  if (qp_.type != IBV_QPT_XRC_RECV) return QueuePair::completes_to(cq);
  const LockGuard lock(connection_.locks.receive);
  return queues_.completes_to(cq);
}

void Qp::leave_queue(const Srq& queue) {
  const ReadSection section;
  {
    const LockGuard lock(connection_.locks.receive);
    const bool receives = queues_.receives_from(queue);
    if (receives) connection_.leave_queue();
    queues_.leave_queue(queue);
    if (!receives) return;
  }
  progress(Driver::event);  // a message that waits for a receive of the queue waits in vain
}

void Qp::completion_lost() {
  const LockGuard lock(connection_.locks.receive);
  connection_.completion_lost();
}

// True if the PSN that the peer expects (its rq_psn) is not this end's sq_psn; 0 counts as not set. The peer then means
// another queue pair, for example one that had this number before. On InfiniBand such a peer would drop this end's
// packets.
bool Qp::mixed_up(std::uint32_t peer_psn) const {
  return peer_psn != 0 && attributes_.sq_psn != 0 && peer_psn != attributes_.sq_psn;
}

bool Qp::is_for(std::uint32_t peer_psn) {
  const LockGuard lock(connection_.locks.send);
  return state() == IBV_QPS_RTR || !mixed_up(peer_psn);
}

bool Qp::is_connected() {
  const LockGuard lock(connection_.locks.send);
  return !connection_.is_idle();
}

bool Qp::watch_socket(bool watched) {
  const LockGuard lock(connection_.locks.receive);
  return connection_.watch_socket(watched);
}

bool Qp::progress(Driver driver) noexcept {
  try {
    return make_progress(driver);
  } catch (const std::exception&) {
    no_memory();
    return true;
  }
}

void Qp::no_memory() noexcept {
  try {
    const LockGuard lock(connection_.locks.receive);
    connection_.end_without_memory();
  } catch (const std::exception&) {
  }
}

bool Qp::make_progress(Driver driver) {
  const ReadSection section;
  const SuppressedNotifications suppressed(driver != Driver::poll ? &qp_.receive_cq : nullptr);
  bool work = false;
  {
    UniqueLock lock(connection_.locks.receive, std::defer_lock);
    if (driver == Driver::poll) {
      if (!lock.try_lock()) return false;  // another thread receives, and may need this processor
    } else {
      lock.lock();
    }
    if (!connection_.receive_turn(driver, work)) return work;
  }
  const LockGuard lock(connection_.locks.send);
  connection_.send_turn(driver);
  return work;
}

// ---- Deferred sends ----

bool Qp::left_to_poster() const {
  const Connection::Signals& signals = connection_.signals;
  const std::uint64_t since = signals.posts_wait_since.load();  // loaded before `poster`: a post stores `poster` first
  const bool own = pthread_equal(signals.poster.load(std::memory_order_relaxed), pthread_self()) != 0;
  return SendScheduler::left_to_poster(since, own, raw_clock);
}

void Qp::send_waiting_posts() {
  if (left_to_poster()) return;
  UniqueLock lock(connection_.locks.send, std::defer_lock);
  if (!lock.try_lock() || connection_.is_idle()) return;
  if (const auto policy = connection_.scheduler().polled(probe_policy())) connection_.send(*policy);
}

void Qp::send_all_deferred() {
  if (left_to_poster()) return;
  UniqueLock lock(connection_.locks.send, std::defer_lock);
  if (lock.try_lock()) connection_.send_all_deferred();
}

void Qp::send_overdue_posts() {
  UniqueLock lock(connection_.locks.send, std::defer_lock);
  if (lock.try_lock()) connection_.send_overdue_posts();
}

bool Qp::give_back_idle_memory() {
  UniqueLock lock(connection_.locks.send, std::defer_lock);
  if (!lock.try_lock()) return true;  // another thread is sending; there may be memory to give back later
  return connection_.give_back_idle_memory();
}

void Qp::send_posts_before_end() {
  if (!posts_wait() && !checked_) return;  // posts of a process that is checked may be delayed
  const LockGuard lock(connection_.locks.send);
  connection_.send_posts_before_end();
}

// RTS to SQD: entries that are posted from here on are not sent until stop_draining().
void Qp::drain() {
  const LockGuard lock(connection_.locks.send);
  drain_to_ = sends().tail();
  connection_.hold_from(drain_to_);
  connection_.send();
}

// SQD to RTS: the entries that drain() has kept back are sent.
void Qp::stop_draining() {
  const LockGuard lock(connection_.locks.send);
  tell_when_drained_ = false;
  connection_.hold_from(rdmap::Transmitter::kNoHold);
  connection_.send();
}

void Qp::notify_when_drained(bool notify) {
  const LockGuard lock(connection_.locks.send);
  tell_when_drained_ = notify;
}

void Qp::flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status) {
  if (!connection_.is_idle()) return connection_.transmitter().flush(culprit, status);
  queues_.flush_sends(culprit, status);
}

bool Qp::drained() const { return follows_infiniband() ? sends().head() >= drain_to_ : sends().empty(); }

void Qp::deny_rights(std::uint32_t denied) {
  denied_rights_ = denied;
  if (!connection_.is_idle()) connection_.deny(denied_rights_);
}

// Sets ORD (Verbs draft section 6.5). If there is a connection, sets it at most to the value that start-up has
// negotiated.
void Qp::limit_ord(std::uint32_t ord) {
  ord_limit_ = ord;
  std::uint32_t granted = ord;
  if (!connection_.is_idle()) granted = connection_.transmitter().limit_ord(ord);
  attributes_.max_rd_atomic = static_cast<std::uint8_t>(granted);
  compare_read_depths();
  connection_.send();
}

// The Checker is told if the program has asked for more RDMA Reads at once than the peer's program takes. Known only if
// both ends add probes, which they do by the remote rule.
void Qp::compare_read_depths() {
  check::Checker* const checker = check::Checker::active();
  if (checker == nullptr || !manual_ || connection_.is_idle() || ord_limit_ == ~0U) return;
  if (connection_.rules().completion != rdmap::Completion::remote) return;
  const std::uint32_t known = connection_.rules().requests_out;
  checker->compares_reads(*qp_.handle, ord_limit_, known - std::min(known, rdmap::SharedReads::kMostProbes));
}

void Qp::reset_connection() {
  connection_.reset();
  if (qp_.type == IBV_QPT_XRC_RECV) queues_.leave_queues();
  named_queue_ = 0;
  end_attempt();
  tell_when_drained_ = false;
  denied_rights_ = 0;
  ord_limit_ = ~0U;
}

void Qp::sent_all() {
  if (state() == IBV_QPS_SQD && follows_infiniband() && drained() && std::exchange(tell_when_drained_, false)) {
    report(IBV_EVENT_SQ_DRAINED);
  }
}

void Qp::sent_last() {
  if (std::exchange(tell_when_drained_, false)) report(IBV_EVENT_SQ_DRAINED);
}

// Called when the peer of a connection made without rdma_cm has left, by FIN, by RST or by a failure of TCP. Posted
// work fails only after a while, since an adapter would retry it. Meanwhile the program may see work of other queue
// pairs complete, and end without an error.
void Qp::peer_gone() {
  if (sends().empty()) return;
  start_retry_timers();
  start_retry_timer(sends().head(), RetryTimer::Clock::now());
}

void Qp::leave_at_exit() {
  // A program may call exit() at any point, so a thread may hold a lock for ever; then what needs that lock is left
  // out.
  {
    UniqueLock send_lock(connection_.locks.send, std::defer_lock);
    if (send_lock.try_lock()) connection_.send_posts_before_end();
  }
  UniqueLock receive_lock(connection_.locks.receive, std::defer_lock);
  if (!receive_lock.try_lock()) return;
  {
    UniqueLock send_lock(connection_.locks.send, std::defer_lock);
    if (!send_lock.try_lock()) return;
  }
  connection_.leave();
}

bool Qp::delivers_last() {
  UniqueLock receive_lock(connection_.locks.receive, std::defer_lock);
  if (!receive_lock.try_lock()) return false;
  UniqueLock send_lock(connection_.locks.send, std::defer_lock);
  return send_lock.try_lock() && connection_.delivers_last();
}

}  // namespace uiw::provider
