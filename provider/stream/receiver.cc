// SPDX-License-Identifier: MIT
#include "provider/stream/receiver.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "base/event_counter.h"
#include "provider/memory/memory.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"
#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"
#include "provider/stream/stream.h"
#include "provider/stream/terminate_meaning.h"

namespace uiw::provider {

namespace {
// What is read behind a payload that goes straight into the program's memory: the end of its FPDU, the headers of the
// next one, and of its payload whole pages, so that the copies that follow stay aligned.
constexpr std::size_t kReadBehind = mpa::kCrcSize + mpa::kFpduLengthSize + ddp::kUntaggedHeaderSize + 4096;
constexpr std::size_t kLeastStraight = 16 * 1024;        // fewer octets are read faster together with what follows them
constexpr std::size_t kReceiveBudget = 2 * 1024 * 1024;  // octets that are read before other queue pairs get their turn
}  // namespace

StreamReceiver::StreamReceiver(Stream& stream, StreamState& state, StreamSender& sender, const void* domain,
                               const void* identity)
    : stream_(stream), state_(state), sender_(sender), receiver_(stag_table(), domain, *this, identity) {
  const rdmap::ConnectionRules& rules = state.rules;
  receiver_.start(state.reads, rules);
  using Kind = mpa::Deframer::Kind;
  deframer_.start(rules.crc, rules.marked ? Kind::marked : rules.shared_octets ? Kind::shared : Kind::plain);
}

bool StreamReceiver::turn(Driver driver, bool& work) {
  if (piggybacking_.begin_turn()) answer_wanted_ = answer_wanted_ && state_.reads.answers_unsent();
  // After a pause epoll does not report octets that arrived during it, so no event would cause the turn that sends an
  // answer which waits.
  const bool may_wait = !answer_wanted_ && !state_.signals.receive_stalled;
  work = receive(driver);
  if (state_.phase == StreamPhase::lingering) stream_.end_lingering();
  if (answer_wanted_ && state_.rules.manual && may_wait) {
    using Decision = SendScheduler::AnswerDecision;
    const Decision decision = SendScheduler::answer(driver, answer_conditions());
    if (decision == Decision::wait_for_post) return false;
    if (decision == Decision::look_for_more_once) {
      receive(driver);
      answer_wanted_ = answer_wanted_ && state_.reads.answers_unsent();
    }
  }
  // While the stream ends, nothing is delegated to the sending thread, so a turn of the sender follows an event.
  const bool ends = !state_.runs() && !sender_.is_idle();
  const bool wanted = SendScheduler::sender_is_next(
      driver, {transmit_wanted_ || answer_wanted_, sender_.full(), state_.signals.deferred, ends});
  if (!wanted && driver == Driver::poll) return false;
  transmit_wanted_ = answer_wanted_ = false;
  // A thread that was sending may have found the socket full meanwhile, before it had room again.
  return !sender_.delegate_to_sending_thread() && (wanted || sender_.full());
}

SendScheduler::AnswerConditions StreamReceiver::answer_conditions() {
  SendScheduler::AnswerConditions conditions;
  conditions.post_expected = piggybacking_.offer();
  conditions.more_due = transmit_wanted_;
  conditions.socket_full = sender_.full();
  conditions.awaits_event = state_.engine.activity().event_awaited();
  conditions.reads = state_.runs() && !state_.signals.receive_stalled;
  return conditions;
}

bool StreamReceiver::watch_socket(bool watched) {
  if (!state_.socket.is_open() || state_.shared || watched == watched_) return true;
  if (watched && !state_.engine.rearm(state_.qp_number, state_.socket.fd())) return false;
  if (!watched) state_.engine.release(state_.socket.fd());
  watched_ = watched;
  return true;
}

// The peer may have sent a probe for its last message. It is answered now, since nothing can be sent after our FIN.
void StreamReceiver::answer_last() {
  if (!state_.runs() || state_.signals.receive_stalled) return;
  receive(Driver::event);
  if (!state_.runs()) return;
  const std::lock_guard lock(state_.locks.send);
  sender_.send();
}

// While the stream lingers, what arrives is read and dropped.
bool StreamReceiver::drop_received() {
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    state_.engine.take_over(state_.qp_number, state_.socket.fd());
    return false;
  }
  ByteStream& octets = state_.octets();
  for (std::size_t budget = kReceiveBudget; budget > 0;) {
    Octets dropped;
    const ssize_t n = octets.receive({}, {io->staging.get(), IoScratch::kStaging}, dropped);
    octets.used();
    if (n > 0) {
      budget -= std::min(static_cast<std::size_t>(n), budget);
    } else if (n != -EAGAIN) {
      stream_.peer_closed(n < 0);
      return state_.phase == StreamPhase::ended;
    } else if (octets.await_octets(true)) {
      return true;
    }
  }
  // A peer that does not stop must not keep this thread, nor those that wait for the receiver's lock.
  state_.engine.rearm(state_.qp_number, state_.socket.fd());
  return true;
}

bool StreamReceiver::receive(Driver driver) {
  if (!state_.socket.is_open()) return false;
  if (state_.phase == StreamPhase::lingering) return drop_received();
  if (first_by_owner_) return false;
  const bool was_stalled = state_.signals.receive_stalled;
  if (was_stalled && !state_.work.receive_there()) {
    watch_for_end();
    return false;
  }
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    state_.engine.take_over(state_.qp_number, state_.socket.fd());
    return false;
  }
  if (!was_stalled) return receive_available(driver, *io);
  // Epoll does not report again what has arrived since the pause, so this reads on as after an event.
  if (resume()) receive_available(Driver::event, *io);
  return true;
}

// Reads once, as ByteStream::receive(). `room_filled`: there may be more octets. Without CRC the rest of a long payload
// is read straight into the program's memory, with little room behind it: for the end of the FPDU, and for the next one
// until it is known where its payload goes.
ssize_t StreamReceiver::read(IoScratch& io, Octets& rest, bool& room_filled) {
  ByteStream& octets = state_.octets();
  const MutableOctets staging{io.staging.get(), IoScratch::kStaging};
  MutableOctets wanted = deframer_.wanted(receiver_);
  const bool straight = !state_.rules.crc && wanted.size() >= kLeastStraight;
  if (!state_.rules.crc && !straight) wanted = {};
  const MutableOctets behind = straight ? staging.first(kReadBehind) : staging;
  ssize_t n = octets.receive(wanted, behind, rest);
  room_filled = n >= static_cast<ssize_t>(wanted.size() + behind.size());
  // The program has unmapped its memory. The receiver finds that out where it places what has been read elsewhere.
  if (n != -EFAULT || !straight) return n;
  n = octets.receive({}, staging, rest);
  room_filled = n == static_cast<ssize_t>(staging.size());
  return n;
}

// True if octets were read, or the end of the connection.
bool StreamReceiver::receive_available(Driver driver, IoScratch& io) {
  bool any = false;
  ByteStream& octets = state_.octets();
  for (std::size_t budget = kReceiveBudget;;) {
    const bool short_is_last = driver == Driver::arrival && octets.short_receive_is_last();
    Octets rest;
    bool room_filled = false;
    const ssize_t n = read(io, rest, room_filled);
    note_first_message();
    if (!way_logged_) log_decision();
    if (n == -EAGAIN) {
      if (driver != Driver::poll && !octets.await_octets(driver == Driver::event)) continue;
      return any;
    }
    if (n <= 0) {
      stream_.peer_closed(n < 0);
      return true;
    }
    any = true;
    const auto size = static_cast<std::size_t>(n);
    const bool goes_on = take(size - rest.size(), rest);
    if (!goes_on) return true;  // the stream is over, and perhaps its memory gone
    octets.used();
    if (state_.signals.receive_stalled) return true;
    // The program polls again by itself, so a poll may stop here. An end is reported once only, and may have come
    // together with these octets: so an event reads until the socket is empty or the budget is used up.
    if ((driver == Driver::poll || short_is_last) && !room_filled) return true;
    if (driver != Driver::poll && size >= budget) {
      state_.engine.rearm(state_.qp_number, state_.socket.fd());
      return true;
    }
    budget -= std::min(size, budget);
    if (budget == 0) return true;
    if (SendScheduler::answers_before_reading_on(transmit_wanted_ || answer_wanted_, kReceiveBudget - budget)) {
      transmit_wanted_ = answer_wanted_ = false;
      if (!sender_.delegate_to_sending_thread()) {
        const std::lock_guard lock(state_.locks.send);
        sender_.transmit(sender_.probe_policy(driver));
      }
    }
  }
}

// Octets were read: the first of them, `filled`, belong to an FPDU that was read in part before; then comes `rest`.
// False once the stream is over.
bool StreamReceiver::take(std::size_t filled, Octets rest) {
  if (filled == 0) return take_octets(rest);
  const mpa::Deframer::Result result = deframer_.filled(filled, receiver_);
  note_first_message();
  if (!take_result(result, rest)) return false;
  if (state_.signals.receive_stalled) return true;
  // If the deframer has paused, a receive has been posted meanwhile, so it goes on.
  return (rest.empty() && result != mpa::Deframer::Result::paused) || take_octets(rest);
}

// A receive has been posted: takes the octets that were read before the pause. False if the stream is over, or paused
// again.
bool StreamReceiver::resume() {
  state_.signals.receive_stalled = false;
  set_receive_stalled(false);
  if (!take_octets(read_ahead_.rest()) || state_.signals.receive_stalled) return false;
  read_ahead_.drop();
  if (std::exchange(rnr_reported_, false)) report(rdmap::kProgressReport);
  return true;
}

// Reads no more until a receive is posted: TCP holds the peer back (Verbs draft section 13.2). False once the stream is
// over.
bool StreamReceiver::pause(Octets rest) {
  ++pauses_;
  state_.engine.counters().add(PortCounter::rnr_waits);
  if (!read_ahead_.keep(rest)) {
    state_.signals.receive_stalled = false;
    stream_.end_without_memory();
    return false;
  }
  set_receive_stalled(true);
  if (takes_reports() && state_.rules.reliable) report_rnr_later();
  watch_for_end();
  return state_.signals.receive_stalled;
}

void StreamReceiver::set_receive_stalled(bool stalled) {
  if (sender_.transmitter().completion() == rdmap::Completion::local) return;
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().set_receive_stalled(stalled);
  transmit_wanted_ = true;  // work behind a fence or the end of the stream, which waited for completions; or a probe
}

// While nothing is read, only this check finds out that the connection has ended.
void StreamReceiver::watch_for_end() {
  const short end = events_of(state_.socket.fd(), POLLRDHUP);
  if ((end & (POLLERR | POLLHUP)) != 0) {
    stream_.peer_closed((end & POLLERR) != 0);
  } else if ((end & POLLRDHUP) != 0 && !state_.rules.manual) {
    stream_.give_up_later();
  }
}

void StreamReceiver::wait_for_first_message(bool by_owner) {
  first_by_owner_ = by_owner;
  if (state_.rules.waits_for_any_message() && settings().values.first_message == FirstMessage::any)
    stream_.later(kReplyTime, &Stream::speak_first, false);
}

// Whether the caller has shown that it has the reply: by its first message, or by taking shared memory. There the first
// message waits for this end's answer, and is never sent if the caller's program ends the connection before. (Through
// TCP it is sent before the caller's program hears of the connection.)
bool StreamReceiver::heard() const {
  return receiver_.heard() || (!state_.rules.manual && state_.shared && state_.shared->caller_has_taken());
}

void StreamReceiver::log_decision() {
  if (state_.shared && state_.shared->is_undecided()) return;
  way_logged_ = true;
  if (!state_.shared || state_.shared->is_broken()) return;
  log_way(state_, state_.shared->is_switched());
}

void StreamReceiver::note_first_message() {
  if (established_ || !heard()) return;
  established_ = true;
  if (state_.rules.initiator) return;
  if (!receiver_.heard()) receiver_.learn(mpa::PeerKind::uiw);  // who takes the memory is uiw
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().release_hold();
  transmit_wanted_ = true;
  if (stream_.owner_) stream_.owner_->stream_established();
}

// False once the stream is over.
bool StreamReceiver::take_octets(Octets octets) {
  for (;;) {
    const auto [result, consumed] = deframer_.receive(octets, receiver_);
    note_first_message();
    octets = octets.subspan(consumed);
    if (!take_result(result, octets)) return false;
    if (result != mpa::Deframer::Result::paused || state_.signals.receive_stalled) return true;
    // The deframer has paused, and a receive has been posted meanwhile.
  }
}

// Acts on the deframer's result; `rest` are the octets that the deframer has not taken. False once the stream is over.
bool StreamReceiver::take_result(mpa::Deframer::Result result, Octets rest) {
  switch (result) {
    case mpa::Deframer::Result::more: return true;
    case mpa::Deframer::Result::paused:
      state_.signals.receive_stalled = true;
      // Either this thread sees a receive that is posted meanwhile, or the thread that posts it sees `receive_stalled`.
      if (state_.work.receive_there()) {
        state_.signals.receive_stalled = false;
        return true;
      }
      return pause(rest);
    case mpa::Deframer::Result::bad_crc: stream_.stream_error(llp_terminate(mpa::MpaError::crc)); return false;
    case mpa::Deframer::Result::bad_marker: stream_.stream_error(llp_terminate(mpa::MpaError::marker)); return false;
    case mpa::Deframer::Result::no_memory: stream_.end_without_memory(); return false;
    case mpa::Deframer::Result::stopped:
      if (receiver_.peer_terminate()) {
        stream_.peer_terminated(*receiver_.peer_terminate());
      } else {
        stream_.stream_error(*receiver_.error());
      }
      return false;
  }
  return true;
}

// A message waits for a receive. An RNR report will tell the peer so, as an RNR NAK does, and that its work before that
// message has been placed. The report is sent only after a delay, since most pauses are shorter.
void StreamReceiver::report_rnr_later() {
  constexpr std::chrono::milliseconds kRnrReportDelay{10};
  if (std::exchange(rnr_report_due_, true)) return;
  if (stream_.later(kRnrReportDelay, &Stream::report_rnr, pauses_)) return;
  rnr_report_due_ = false;  // no memory for the timer: the report is sent at once
  report_rnr();
}

void StreamReceiver::report_rnr(std::uint64_t pauses) {
  rnr_report_due_ = false;
  if (!state_.signals.receive_stalled || !state_.runs()) return;
  if (pauses_ != pauses) return report_rnr_later();
  report_rnr();
}

void StreamReceiver::report_rnr() {
  rnr_reported_ = true;
  report(rdmap::kRnrReport);
}

void StreamReceiver::report(rdmap::Stag occasion) {
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().report(occasion, receiver_.progress());
  sender_.send();
}

void StreamReceiver::report_last() {
  if (takes_reports()) report(state_.rules.manual ? rdmap::kRnrReport : rdmap::kProgressReport);
}

// ---- What rdmap::Receiver reports ----

bool StreamReceiver::next_receive(rdmap::ReceiveBuffer& buffer) {
  if (state_.work.next_receive(buffer)) return true;
  if (!state_.rules.reliable) state_.work.await_no_receive();
  return false;
}

void StreamReceiver::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                                      const Message& message) {
  if (status != rdmap::Status::success && status != rdmap::Status::flushed) error_reported_ = true;
  if (state_.rules.one_cq) sender_.wait_for_sending_thread();
  state_.work.receive_complete(buffer, status, message);
}

void StreamReceiver::read_complete() {
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().read_complete();
  sender_.publish_deferred();  // for the next thread that takes the receiver's lock
  // The next Read, work behind a fence, or the end of the stream may be sent now.
  if (sender_.transmitter().unsent() || !state_.runs() || state_.host.state() != IBV_QPS_RTS) transmit_wanted_ = true;
}

void StreamReceiver::answer_dropped(std::size_t octets) {
  state_.engine.counters().add(PortCounter::answers_dropped, octets);
  if (std::exchange(drop_logged_, true)) return;
  log_event(LogLevel::info,
            "queue pair 0x%06x: the peer has put %zu octets into the answer to an RDMA Read of no octets; they are "
            "dropped, and so are those that may follow",
            state_.qp_number, octets);
}

void StreamReceiver::progress_reported(const rdmap::Progress& progress) {
  const std::lock_guard lock(state_.locks.send);
  if (!sender_.transmitter().take_report(progress)) return;
  sender_.publish_deferred();
  transmit_wanted_ =
      transmit_wanted_ || sender_.transmitter().unsent() || !state_.runs() || state_.host.state() != IBV_QPS_RTS;
}

void StreamReceiver::peer_known(mpa::PeerKind peer, bool answer) {
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().peer_known(peer, answer);
  if (!sender_.transmitter().pending()) return;
  transmit_wanted_ = true;
  // Work that has waited for it fails. If the peer is silent, no turn is on its way, and this causes one.
  if (peer == mpa::PeerKind::other) state_.engine.rearm(state_.qp_number, state_.socket.fd());
}

void StreamReceiver::reports_wanted() {
  peer_wants_reports_ = true;
  const std::lock_guard lock(state_.locks.send);
  sender_.transmitter().enable_reports();
}

void StreamReceiver::stop() {
  state_.signals.receive_stalled = false;
  read_ahead_.drop();
}

}  // namespace uiw::provider
