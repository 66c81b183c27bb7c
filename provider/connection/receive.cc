// SPDX-License-Identifier: MIT
// Receiving: what is read and when, when a message waits for a receive, and what the peer's messages change.

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/event_counter.h"
#include "base/mutex.h"
#include "provider/connection/connection.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"
#include "rdmap/terminate.h"

namespace uiw::provider {

namespace {
// How much is read after a payload that goes straight into the program's memory: the end of its FPDU, the headers of
// the next FPDU, and one page of the next FPDU's payload. The rest of the next payload is then read straight into the
// program's memory, too, and begins there at the same offset within a page as the payload itself.
constexpr std::size_t kReadBehind = mpa::kCrcSize + mpa::kFpduLengthSize + ddp::kUntaggedHeaderSize + 4096;
constexpr std::size_t kLeastStraight = 16 * 1024;  // a shorter payload is read faster together with what follows it
constexpr std::size_t kLongLook = 32 * 1024;       // see Engine::note_long_look()
constexpr std::size_t kReceiveBudget = 2 * 1024 * 1024;  // octets that are read before other queue pairs get a turn
}  // namespace

bool Connection::receive_turn(Driver driver, bool& work) {
  const Phase phase = phase_.load();
  if (phase == Phase::idle || phase == Phase::ended || phase == Phase::gone) return false;
  // If sending has failed, the session ends before anything is read: the program learns that its work has failed, and
  // after that nothing may be placed for this work.
  if (take_error() && runs_or_closes()) end_for_send_error(true);
  if (session_->piggybacking.begin_turn())
    session_->answer_wanted = session_->answer_wanted && session_->reads.answers_unsent();
  // Whether an answer that becomes due in this turn may be delayed. An answer that was due before was delayed already.
  // While the stream is stalled, epoll does not report again what has arrived, so there may be no event that causes a
  // later turn, and an answer that is delayed until then might never be sent.
  const bool may_wait = !session_->answer_wanted && !has_to_say() && !signals.receive_stalled;
  work = receive_and_complete(driver);
  if ((session_->answer_wanted || has_to_say()) && session_->rules.manual && may_wait) {
    using Decision = SendScheduler::AnswerDecision;
    const Decision decision = SendScheduler::answer(driver, answer_conditions());
    if (decision == Decision::wait_for_post) return false;
    if (decision == Decision::look_for_more_once) {
      if (receive_and_complete(driver)) work = true;
      session_->answer_wanted = session_->answer_wanted && session_->reads.answers_unsent();
    }
  }
  say_placed();
  // While the session ends, nothing is delegated to the sending thread, so after each event this thread sends as well.
  const bool ends = !runs() && session_->send_state != SendState::idle;
  const bool wanted = SendScheduler::sender_is_next(
      driver, {session_->transmit_wanted || session_->answer_wanted, full(), signals.deferred, ends});
  if (!wanted && driver == Driver::poll) return false;
  session_->transmit_wanted = session_->answer_wanted = false;
  // The sending thread may have found the socket full after `wanted` was computed, and there may be room again. So the
  // caller has to call send_turn() in that case, too.
  return !delegate_to_sending_thread() && (wanted || full());
}

// Calls receive(), then completes work that the peer has placed, if shared memory shows that. True if octets have come
// or work has completed. The order of the two matters: a receive() that finds nothing asks the peer to wake this end
// when it writes octets, and peer_has_placed() extends this request to the time when the peer has placed more.
bool Connection::receive_and_complete(Driver driver) {
  const bool octets_came = receive(driver);
  if (phase_ == Phase::lingering) end_lingering();
  if (!session_->follows_peer) return octets_came;
  if (octets_came) session_->expected_message.came();
  if (!runs_or_closes() || !peer_has_placed() || (!octets_came && awaits_message(driver))) return octets_came;
  session_->expected_message.reported();
  const LockGuard lock(locks.send);
  take_placed();
  note_confirmed();
  return true;
}

// Whether the completion of work that the peer has placed is delayed, to be reported together with a message that the
// peer is expected to send (ExpectedMessage). If the program polls, its next polls find both. If another thread calls
// this, it requests a turn for the queue pair, in case the program stops polling.
bool Connection::awaits_message(Driver driver) {
  const Activity& activity = engine_.activity();
  if (driver != Driver::poll && (activity.event_awaited() || !activity.is_active(raw_clock(), Activity::kPollingNs)))
    return false;
  if (!session_->expected_message.is_awaited(raw_clock)) return false;
  if (driver != Driver::poll) engine_.request_turn(number_);
  return true;
}

SendScheduler::AnswerConditions Connection::answer_conditions() {
  SendScheduler::AnswerConditions conditions;
  conditions.post_expected = session_->piggybacking.offer();
  conditions.by_message = session_->answer_wanted;
  conditions.more_due = session_->transmit_wanted;
  conditions.socket_full = full();
  conditions.awaits_event = engine_.activity().event_awaited();
  conditions.reads = runs() && !signals.receive_stalled;
  return conditions;
}

bool Connection::watch_socket(bool watched) {
  if (is_idle() || !session_->socket.is_open() || session_->shared || watched == session_->watched) return true;
  if (watched && !engine_.watch_again(number_, session_->socket.fd())) return false;
  if (!watched) engine_.release(session_->socket.fd());
  session_->watched = watched;
  return true;
}

// By a probe (an RDMA Read of no octets) the peer may have asked whether its last message is placed. The probe is
// answered now, since nothing can be sent after our FIN.
void Connection::answer_last() {
  if (!runs() || signals.receive_stalled) return;
  receive(Driver::event);
  if (!runs()) return;
  {
    const LockGuard lock(locks.send);
    send();
  }
  say_placed();
}

// While the session lingers, what arrives is read and dropped.
bool Connection::drop_received() {
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    engine_.take_over(number_);
    return false;
  }
  ByteStream& stream = octets();
  for (std::size_t budget = kReceiveBudget; budget > 0;) {
    Octets dropped;
    const ssize_t n = stream.receive({}, {io->staging.get(), IoScratch::kStaging}, dropped);
    stream.used();
    if (n > 0) {
      budget -= std::min(static_cast<std::size_t>(n), budget);
    } else if (n != -EAGAIN) {
      peer_closed(n < 0);
      return phase_ == Phase::ended;
    } else if (stream.await_octets(true)) {
      return true;
    }
  }
  // A peer that sends without end must not occupy this thread, or block threads that wait for the receiver's lock.
  engine_.request_turn(number_);
  return true;
}

bool Connection::receive(Driver driver) {
  if (!session_->socket.is_open()) return false;
  if (phase_ == Phase::lingering) return drop_received();
  if (session_->first_by_owner) return false;
  const bool was_stalled = signals.receive_stalled;
  if (was_stalled && !work_->receive_there()) {
    watch_for_end();
    return false;
  }
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    engine_.take_over(number_);
    return false;
  }
  bool any = true;
  if (!was_stalled) {
    any = receive_available(driver, *io);
  } else if (resume()) {
    // Epoll does not report again what arrived while the stream was stalled, so this reads all that has arrived, as
    // after an event.
    receive_available(Driver::event, *io);
  }
  note_placed();
  return any;
}

// Reads once; returns what ByteStream::receive() returns. Sets `room_filled` to true if the octets have filled the
// whole room, so that there may be more octets. Without CRC the rest of a long payload is read straight into the
// program's memory. After this payload only few octets are read into the staging buffer (the end of this FPDU and the
// start of the next one), since it is not known where the payload of the next FPDU is to be placed before its headers
// are read.
ssize_t Connection::read(IoScratch& io, Octets& rest, bool& room_filled) {
  ByteStream& stream = octets();
  const MutableOctets staging{io.staging.get(), IoScratch::kStaging};
  MutableOctets wanted = session_->deframer.wanted(session_->receiver);
  const bool straight = !session_->rules.crc && wanted.size() >= kLeastStraight;
  if (!session_->rules.crc && !straight) wanted = {};
  const MutableOctets behind = straight ? staging.first(kReadBehind) : staging;
  ssize_t n = stream.receive(wanted, behind, rest);
  room_filled = n >= static_cast<ssize_t>(wanted.size() + behind.size());
  // The program has unmapped the memory for the payload. This reads into the staging buffer instead; the receiver finds
  // the error when it places the octets.
  if (n != -EFAULT || !straight) return n;
  n = stream.receive({}, staging, rest);
  room_filled = n == static_cast<ssize_t>(staging.size());
  return n;
}

// True if octets were read, or if the connection has ended.
bool Connection::receive_available(Driver driver, IoScratch& io) {
  bool any = false;
  ByteStream& stream = octets();
  for (std::size_t budget = kReceiveBudget;;) {
    const bool short_is_last = driver == Driver::arrival && stream.short_receive_is_last();
    Octets rest;
    bool room_filled = false;
    const ssize_t n = read(io, rest, room_filled);
    note_first_message();
    if (!session_->way_decided) note_decision();
    if (n == -EAGAIN) {
      if (driver != Driver::poll && !stream.await_octets(driver == Driver::event)) continue;
      return any;
    }
    if (n <= 0) {
      peer_closed(n < 0);
      return true;
    }
    any = true;
    const auto size = static_cast<std::size_t>(n);
    const bool goes_on = take(size - rest.size(), rest);
    if (size >= kLongLook && driver == Driver::poll) engine_.note_long_look();
    if (!goes_on) return true;  // the session is over, and `stream` may be gone
    stream.used();
    if (signals.receive_stalled) return true;
    // A poll may stop here, since the program polls again. Epoll reports the end of the stream only once, perhaps
    // together with these octets; so after an event this reads until the socket is empty or the budget is used up.
    if ((driver == Driver::poll || short_is_last) && !room_filled) return true;
    if (driver != Driver::poll && size >= budget) {
      engine_.request_turn(number_);
      return true;
    }
    budget -= std::min(size, budget);
    if (budget == 0) return true;
    note_placed();
    if (SendScheduler::answers_before_reading_on(has_to_say(), kReceiveBudget - budget)) session_->shared->say_placed();
    if (SendScheduler::answers_before_reading_on(session_->transmit_wanted || session_->answer_wanted,
                                                 kReceiveBudget - budget)) {
      session_->transmit_wanted = session_->answer_wanted = false;
      if (!delegate_to_sending_thread()) {
        const LockGuard lock(locks.send);
        transmit(probe_policy(driver));
      }
    }
  }
}

// Processes octets that were read: first `filled` octets, which were read into the memory that the deframer has named
// for the FPDU in progress (Deframer::wanted()), then `rest`. False once the session is over.
bool Connection::take(std::size_t filled, Octets rest) {
  if (filled == 0) return take_octets(rest);
  const mpa::Deframer::Result result = session_->deframer.filled(filled, session_->receiver);
  note_first_message();
  if (!take_result(result, rest)) return false;
  if (signals.receive_stalled) return true;
  // If the deframer has paused, a receive has been posted meanwhile, so the deframer goes on.
  return (rest.empty() && result != mpa::Deframer::Result::paused) || take_octets(rest);
}

// A receive has been posted: processes the octets that were read before the stream stalled. False if the session is
// over, or if the stream stalls again.
bool Connection::resume() {
  signals.receive_stalled = false;
  set_receive_stalled(false);
  if (!take_octets(session_->read_ahead.rest()) || signals.receive_stalled) return false;
  session_->read_ahead.drop();
  if (std::exchange(session_->rnr_reported, false)) report(rdmap::kProgressReport);
  return true;
}

// Stops reading until a receive is posted; TCP's flow control, or the full ring in shared memory, then stops the peer
// (Verbs draft section 13.2). False once the session is over.
bool Connection::pause(Octets rest) {
  ++session_->pauses;
  engine_.counters().add(PortCounter::rnr_waits);
  if (!session_->read_ahead.keep(rest)) {
    signals.receive_stalled = false;
    end_without_memory();
    return false;
  }
  set_receive_stalled(true);
  if (takes_reports() && session_->rules.reliable) report_rnr_later();
  watch_for_end();
  return signals.receive_stalled;
}

void Connection::set_receive_stalled(bool stalled) {
  if (session_->transmitter.completion() == rdmap::Completion::local) return;
  const LockGuard lock(locks.send);
  session_->transmitter.set_receive_stalled(stalled);
  // While the stream is stalled, Sends and Writes complete when TCP has taken them, otherwise when the peer has placed
  // them. With this change, work that a fence has held back, a FIN, or a probe may be due.
  session_->transmit_wanted = true;
}

// Finds out whether the connection has ended, since a session that does not read would not notice.
void Connection::watch_for_end() {
  const short end = events_of(session_->socket.fd(), POLLRDHUP);
  if ((end & (POLLERR | POLLHUP)) != 0) {
    peer_closed((end & POLLERR) != 0);
  } else if ((end & POLLRDHUP) != 0 && !session_->rules.manual) {
    give_up_later();
  }
}

void Connection::wait_for_first_message(bool by_owner) {
  session_->first_by_owner = by_owner;
  if (session_->rules.waits_for_any_message() && settings().values.first_message == FirstMessage::any)
    later(kReplyTime, &Connection::speak_first, false);
}

// True if the peer has sent its first message, or if the peer is the caller and has accepted shared memory. Either
// shows that the caller has the MPA Reply. The acceptance has to count, since with shared memory the caller sends its
// first message only after the switch frame of this end (base/stream/switch_format.h): if the caller's program ends the
// connection earlier, that message never comes. (Over TCP the first message is sent before the program learns of the
// connection.)
bool Connection::heard() const {
  return session_->receiver.heard() ||
         (!session_->rules.manual && session_->shared && session_->shared->caller_has_taken());
}

void Connection::note_decision() {
  if (session_->shared && session_->shared->is_undecided()) return;
  session_->way_decided = true;
  if (!session_->shared || session_->shared->is_broken()) return;
  log_way(session_->shared->is_switched());
  if (!session_->shared->is_switched()) return;
  const LockGuard lock(locks.send);
  session_->transmitter.follow_position();
  session_->follows_peer = session_->rules.remote();
  session_->tells_placed = session_->shared->is_followed();
  take_placed();  // work may have been sent already, and placed
  note_confirmed();
}

void Connection::look_for_first_message() {
  if (!heard()) return;
  session_->established = true;
  if (session_->rules.initiator) return;
  if (!session_->receiver.heard()) session_->receiver.learn(mpa::PeerKind::uiw);  // only uiw accepts shared memory
  const LockGuard lock(locks.send);
  session_->transmitter.release_hold();
  session_->transmit_wanted = true;
  if (session_->owner) session_->owner->connection_established();
}

// False once the session is over.
bool Connection::take_octets(Octets octets) {
  for (;;) {
    const auto [result, consumed] = session_->deframer.receive(octets, session_->receiver);
    note_first_message();
    if (result == mpa::Deframer::Result::more) return true;
    octets = octets.subspan(consumed);
    if (!take_result(result, octets)) return false;
    if (result != mpa::Deframer::Result::paused || signals.receive_stalled) return true;
    // The deframer has paused, and a receive has been posted meanwhile.
  }
}

// Acts on the deframer's result; `rest` are the octets that it has not processed. False once the session is over.
bool Connection::take_result(mpa::Deframer::Result result, Octets rest) {
  switch (result) {
    case mpa::Deframer::Result::more: return true;
    case mpa::Deframer::Result::paused:
      signals.receive_stalled = true;
      // This thread first sets `receive_stalled`, then looks for a receive. A posting thread first posts, then reads
      // `receive_stalled`. So at least one of them sees what the other has written.
      if (work_->receive_there()) {
        signals.receive_stalled = false;
        return true;
      }
      return pause(rest);
    case mpa::Deframer::Result::bad_crc: received_error(rdmap::terminate_for(mpa::MpaError::crc)); return false;
    case mpa::Deframer::Result::bad_marker: received_error(rdmap::terminate_for(mpa::MpaError::marker)); return false;
    case mpa::Deframer::Result::no_memory: end_without_memory(); return false;
    case mpa::Deframer::Result::stopped:
      if (session_->receiver.peer_terminate()) {
        peer_terminated(*session_->receiver.peer_terminate());
      } else {
        received_error(*session_->receiver.error());
      }
      return false;
  }
  return true;
}

// A message waits for a receive. By an RNR report the peer learns, as by an RNR NAK, that its work before that message
// has been placed. The report is sent only after a delay, since most messages do not wait that long.
void Connection::report_rnr_later() {
  constexpr std::chrono::milliseconds kRnrReportDelay{10};
  if (std::exchange(session_->rnr_report_due, true)) return;
  if (later(kRnrReportDelay, &Connection::report_rnr_again, session_->pauses)) return;
  session_->rnr_report_due = false;  // no memory for the timer: the report is sent at once
  report_rnr();
}

void Connection::report_rnr_again(std::uint64_t pauses) {
  session_->rnr_report_due = false;
  if (!signals.receive_stalled || !runs()) return;
  if (session_->pauses != pauses) return report_rnr_later();
  report_rnr();
}

void Connection::report_rnr() {
  session_->rnr_reported = true;
  report(rdmap::kRnrReport);
}

void Connection::report(rdmap::Stag occasion) {
  const LockGuard lock(locks.send);
  session_->transmitter.report(occasion, session_->receiver.progress());
  send();
}

void Connection::report_last() {
  if (takes_reports()) report(session_->rules.manual ? rdmap::kRnrReport : rdmap::kProgressReport);
}

// ---- What rdmap::Receiver reports ----

bool Connection::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (work_->next_receive(buffer)) return true;
  if (!session_->rules.reliable) work_->await_no_receive();
  return false;
}

void Connection::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status, const Message& message) {
  if (status != rdmap::Status::success && status != rdmap::Status::flushed) session_->receive_error_reported = true;
  if (tells_placed() && status == rdmap::Status::success) {
    // The position is noted before the receive completes. The program may answer as soon as it has the completion, and
    // when the peer sees the answer, it must also see that its own message has been placed.
    session_->shared->note_placed(session_->deframer.taken() + mpa::fpdu_size(message.ulpdu));
  }
  if (session_->rules.one_cq || session_->follows_peer) wait_for_sends();
  work_->receive_complete(buffer, status, message);
}

void Connection::read_complete() {
  const LockGuard lock(locks.send);
  session_->transmitter.read_complete();
  publish_deferred();  // the set of deferred sends may have changed: a probe may be needed now
  // The next Read, work that a fence has held back, or FIN may be sent now.
  note_confirmed();
}

// The peer has answered or placed work, so more may be sent now.
void Connection::note_confirmed() {
  if (session_->transmitter.unsent() || !runs() || host_->state() != IBV_QPS_RTS) session_->transmit_wanted = true;
}

void Connection::answer_dropped(std::size_t octets) {
  engine_.counters().add(PortCounter::answers_dropped, octets);
  if (std::exchange(session_->drop_logged, true)) return;
  log_event(LogLevel::info,
            "queue pair 0x%06x: the peer has put %zu octets into the answer to an RDMA Read of no octets; they are "
            "dropped, and so are those that may follow",
            number_, octets);
}

void Connection::progress_reported(const rdmap::Progress& progress) {
  const LockGuard lock(locks.send);
  if (!session_->transmitter.take_report(progress)) return;
  publish_deferred();
  note_confirmed();
}

void Connection::peer_known(mpa::PeerKind peer, bool answer) {
  const LockGuard lock(locks.send);
  session_->transmitter.peer_known(peer, answer);
  if (!session_->transmitter.pending()) return;
  session_->transmit_wanted = true;
  // Work that could not be sent before the kind of the peer was known fails now if only uiw supports it. A silent peer
  // causes no event, so this requests the turn that finds the failure.
  if (peer == mpa::PeerKind::other) engine_.request_turn(number_);
}

void Connection::reports_wanted() {
  session_->peer_wants_reports = true;
  const LockGuard lock(locks.send);
  session_->transmitter.enable_reports();
}

void Connection::stop_receiving() {
  signals.receive_stalled = false;
  session_->read_ahead.drop();
}

}  // namespace uiw::provider
