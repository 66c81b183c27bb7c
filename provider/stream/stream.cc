// SPDX-License-Identifier: MIT
#include "provider/stream/stream.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <utility>

#include "provider/connect/cm_loop.h"
#include "provider/memory/memory.h"
#include "provider/progress/clock.h"
#include "provider/progress/engine.h"
#include "provider/verbs/qp/qp_table.h"

namespace uiw::provider {

namespace {

rdmap::Transmitter::Parameters sending(const Stream::Parameters& of) {
  rdmap::Transmitter::Parameters parameters;
  const mpa::Agreement& agreement = of.agreed.agreement;
  parameters.crc = agreement.crc;
  parameters.mulpdu = of.agreed.mulpdu;
  parameters.ord = of.most_ord;
  parameters.rtr = of.agreed.initiator ? agreement.rtr : mpa::ReadyToReceive::none;
  parameters.hold = !of.agreed.initiator;
  parameters.send_immediate = agreement.send_with_immediate;
  parameters.infiniband = of.policy.manual;
  parameters.notices = agreement.send_with_immediate;  // older releases ignore them
  if (of.policy.reliable) parameters.completion = of.completion;
  return parameters;
}

}  // namespace

Stream::Stream(StreamHost& host, Engine& engine, StreamLocks& locks, StreamSignals& signals, rdmap::SendQueue& sends,
               std::uint32_t qp_number, const void* domain, const void* identity, const Parameters& parameters)
    : host_(host),
      engine_(engine),
      locks_(locks),
      signals_(signals),
      send_queue_(sends),
      qp_number_(qp_number),
      policy_(parameters.policy),
      agreed_(parameters.agreed),
      peer_psn_(parameters.peer_psn),
      owner_(parameters.owner),
      reads_(parameters.read_slots_out, parameters.read_slots_in),
      transmitter_(sends, stag_table(), domain, host, identity),
      receiver_(stag_table(), domain, *this, identity) {
  const mpa::Agreement& agreement = agreed_.agreement;
  transmitter_.start(sending(parameters), &reads_);
  transmitter_.limit_ord(agreement.ord);
  transmitter_.hold_from(parameters.hold_from);
  receiver_.start(&reads_, agreed_.initiator ? mpa::ReadyToReceive::none : agreement.rtr, agreement.send_with_immediate,
                  policy_.manual, agreement.send_with_immediate);
  receiver_.deny(parameters.denied_rights);
  deframer_.start(agreement.crc);
}

bool Stream::later(std::chrono::milliseconds delay, void (Stream::*function)(std::uint64_t), std::uint64_t argument) {
  try {
    CmLoop::instance().after(delay, [number = qp_number_, weak = weak_from_this(), function, argument] {
      const ReadSection section;
      // Its queue pair, whose locks it takes, is there until the section closes.
      if (find_qp(number) == nullptr) return;
      if (const auto stream = weak.lock()) (stream.get()->*function)(argument);
    });
    return true;
  } catch (const std::exception&) {  // no memory
    return false;
  }
}

bool Stream::receive_turn(Driver driver, bool& work) {
  const Phase phase = phase_.load();
  if (phase == Phase::ended || phase == Phase::gone) return false;
  // Before anything is placed for work that has been flushed already. Every poll comes here: one that finds nothing
  // does not write. Who sets it has the engine come, so that what this load misses is seen then.
  if (send_error_.load(std::memory_order_acquire)) {
    send_error_ = false;
    if (runs_or_closes()) end_for_send_error(true);
  }
  if (piggybacking_.begin_turn()) answer_wanted_ = answer_wanted_ && reads_.answers_unsent();
  // A pause has spent the edge that would bring somebody here.
  const bool may_wait = !answer_wanted_ && !signals_.receive_stalled;
  work = receive(driver);
  if (phase_ == Phase::lingering) {
    const std::lock_guard send_lock(locks_.send);
    if (fin_sent_ || send_dead_) let_go_of_socket();
  }
  if (answer_wanted_ && policy_.manual && may_wait && piggybacking_.offer() && !transmit_wanted_ && !full()) {
    if (driver == Driver::program) return false;
    // A program that spins on memory has seen what came, and posts right now.
    if (!engine_.event_awaited() && phase_ == Phase::running && !signals_.receive_stalled) {
      receive(driver);
      answer_wanted_ = answer_wanted_ && reads_.answers_unsent();
    }
  }
  // Whose part it is to end the stream cannot be asked: what this saw of the socket would be lost.
  const bool ends = phase_ != Phase::running && sending_ != Sending::idle;
  const bool wanted =
      transmit_wanted_ || answer_wanted_ || full() || (driver == Driver::event && (signals_.deferred || ends));
  if (!wanted && driver == Driver::program) return false;
  transmit_wanted_ = answer_wanted_ = false;
  return !ask_sender() && wanted;
}

void Stream::send_turn(Driver driver) {
  if (driver == Driver::event && coalescing_.waiting()) coalescing_.take_overdue(raw_clock(), false);
  transmit(probe_policy(driver));
  // The socket is let go of with the receiver's lock: another turn does it.
  if (phase_ == Phase::lingering && (fin_sent_ || send_dead_)) engine_.rearm(qp_number_, socket_.fd());
}

// ---- What the receiver tells ----

void Stream::receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status, const Message& message) {
  if (status != rdmap::Status::success && status != rdmap::Status::flushed) receive_error_told_ = true;
  if (policy_.one_cq) await_sender();
  host_.receive_complete(buffer, status, message);
}

void Stream::read_complete() {
  const std::lock_guard lock(locks_.send);
  transmitter_.read_complete();
  note_deferred();  // for who comes next to the receiver's lock
  // The next read, a fence, the end.
  if (transmitter_.unsent() || phase_ != Phase::running || host_.state() != IBV_QPS_RTS) transmit_wanted_ = true;
}

void Stream::peer_dealt_with(const rdmap::DealtWith& said) {
  const std::lock_guard lock(locks_.send);
  if (!transmitter_.peer_dealt_with(said)) return;
  note_deferred();
  transmit_wanted_ =
      transmit_wanted_ || transmitter_.unsent() || phase_ != Phase::running || host_.state() != IBV_QPS_RTS;
}

void Stream::peer_wants_acknowledgements() {
  const std::lock_guard lock(locks_.send);
  transmitter_.acknowledge();
}

}  // namespace uiw::provider
