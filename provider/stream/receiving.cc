// SPDX-License-Identifier: MIT
// A stream's receiver: from the socket to the memory of the program, and the pause where no receive is posted.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>

#include "provider/progress/engine.h"
#include "provider/progress/io_scratch.h"
#include "provider/stream/stream.h"
#include "provider/stream/terminate_meaning.h"

namespace uiw::provider {

namespace {
constexpr std::size_t kReceiveBudget = 2 * 1024 * 1024;  // octets before other queue pairs get their turn
}  // namespace

// Has somebody else send what is due; false if nobody is sending. So a thread that brings news does not wait for one that
// is with the socket. What it saw of the socket counts too: that there is room may be news to who is about to find none.
bool Stream::ask_sender() {
  if (phase_ != Phase::running) return false;
  Sending now = Sending::busy;
  // Written where it stands already, too: the sender may be about to take an earlier one for all that there is.
  while (!sending_.compare_exchange_strong(now, Sending::once_more)) {
    if (now != Sending::busy && now != Sending::once_more) return false;
  }
  return true;
}

// What has come may be the answer to a Send whose octets TCP took a moment ago, from a thread that has yet to say that the
// Send is complete: by the local rule, for by the remote one a peer that keeps to InfiniBand's rules has confirmed it first.
void Stream::await_sender() {
  const Sending sending = sending_;
  if (sending != Sending::busy && sending != Sending::once_more) return;
  if (transmitter_.completion() == rdmap::Completion::remote) return;
  const std::lock_guard lock(locks_.send);
}

// The peer may have asked whether its last message has come; behind our FIN nothing can be answered.
void Stream::answer_last() {
  if (phase_ != Phase::running || signals_.receive_stalled) return;
  receive(Driver::event);
  if (phase_ != Phase::running) return;
  const std::lock_guard lock(locks_.send);
  send();
}

// What still comes while a Terminate goes out belongs to nobody.
bool Stream::drop_received() {
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    engine_.take_over(qp_number_, socket_.fd());
    return false;
  }
  ssize_t n;
  do {
    n = socket_.receive({io->staging.get(), IoScratch::kStaging});
  } while (n > 0);
  if (n != -EAGAIN) peer_closed(n < 0);
  return true;
}

bool Stream::receive(Driver driver) {
  if (!socket_.is_open()) return false;
  if (phase_ == Phase::lingering) return drop_received();
  bool any = false;
  if (signals_.receive_stalled && !host_.receive_there()) {
    watch_for_end();
    return false;
  }
  IoScratch* const scratch = io_scratch();
  if (scratch == nullptr) {
    engine_.take_over(qp_number_, socket_.fd());
    return false;
  }
  IoScratch& io = *scratch;
  if (signals_.receive_stalled) {
    if (!resume()) return true;
    // Nobody may come back for what has arrived since the pause: its edge is spent.
    driver = Driver::event;
    any = true;
  }
  for (std::size_t budget = kReceiveBudget;;) {
    const mpa::MutableOctets wanted = deframer_.wanted();
    ssize_t n;
    if (wanted.empty()) {
      n = socket_.receive({io.staging.get(), IoScratch::kStaging});
    } else {
      // Straight to where the rest of an open FPDU belongs, and what follows it into the staging buffer.
      std::array<iovec, 2> to = {{{wanted.data(), wanted.size()}, {io.staging.get(), IoScratch::kStaging}}};
      n = socket_.receive(to);
    }
    if (n == -EAGAIN) return any;
    if (n <= 0) {
      peer_closed(n < 0);
      return true;
    }
    any = true;
    const auto size = static_cast<std::size_t>(n);
    std::size_t staged = size;
    bool live = true;
    if (!wanted.empty()) {
      const std::size_t filled = std::min(size, wanted.size());
      staged = size - filled;
      const mpa::Deframer::Result result = deframer_.filled(filled, receiver_);
      note_first_message();
      live = take_result(result, {io.staging.get(), staged});
      if (signals_.receive_stalled) return true;
      // It was paused, and a receive came in the meantime.
      if (live && result == mpa::Deframer::Result::paused) live = take_octets({io.staging.get(), staged}), staged = 0;
    }
    if (live && staged > 0) live = take_octets({io.staging.get(), staged});
    if (!live || signals_.receive_stalled) return true;
    // A poll comes back by itself. An event does not: the end of the stream may have come with these octets, in one
    // edge, so it is read up to.
    if (driver == Driver::program && size < wanted.size() + IoScratch::kStaging) return true;
    if (driver == Driver::event && size >= budget) {
      engine_.rearm(qp_number_, socket_.fd());
      return true;
    }
    budget -= std::min(size, budget);
    if (budget == 0) return true;
    // The peer waits for its answers, and may have stopped sending for them: they do not wait for all that is there.
    if ((transmit_wanted_ || answer_wanted_) && kReceiveBudget - budget >= IoScratch::kStaging) {
      transmit_wanted_ = answer_wanted_ = false;
      if (!ask_sender()) {
        const std::lock_guard lock(locks_.send);
        transmit(probe_policy(driver));
      }
    }
  }
}

// A receive has been posted: goes on with what was read already. False if the stream is over, or paused again.
bool Stream::resume() {
  signals_.receive_stalled = false;
  set_receive_stalled(false);
  if (!take_octets(read_ahead_.rest()) || signals_.receive_stalled) return false;
  read_ahead_.drop();
  return true;
}

// Reads no more until a receive is posted: TCP holds the peer back (Verbs draft section 13.2). False once the stream is
// over.
bool Stream::pause(mpa::Octets rest) {
  ++pauses_;
  if (!read_ahead_.keep(rest)) {
    signals_.receive_stalled = false;
    end_without_memory();
    return false;
  }
  set_receive_stalled(true);
  if (policy_.manual && policy_.reliable) tell_not_ready_later();
  watch_for_end();
  return signals_.receive_stalled;
}

void Stream::set_receive_stalled(bool stalled) {
  if (transmitter_.completion() == rdmap::Completion::local) return;
  const std::lock_guard lock(locks_.send);
  transmitter_.set_receive_stalled(stalled);
  transmit_wanted_ = true;  // what waited for completions: a fence, the end; or a probe
}

// While nothing is read, the end of the connection shows only here.
void Stream::watch_for_end() {
  pollfd end{socket_.fd(), POLLRDHUP, 0};
  if (::poll(&end, 1, 0) <= 0) return;
  if ((end.revents & (POLLERR | POLLHUP)) != 0) {
    peer_closed((end.revents & POLLERR) != 0);
  } else if ((end.revents & POLLRDHUP) != 0 && !policy_.manual) {
    give_up_later();
  }
}

void Stream::note_first_message() {
  if (established_ || !receiver_.heard()) return;
  established_ = true;
  if (agreed_.initiator) return;
  const std::lock_guard lock(locks_.send);
  transmitter_.release_hold();
  transmit_wanted_ = true;
  if (owner_) owner_->stream_established();
}

// False once the stream is over.
bool Stream::take_octets(mpa::Octets octets) {
  for (;;) {
    const auto [result, consumed] = deframer_.receive(octets, receiver_);
    note_first_message();
    octets = octets.subspan(consumed);
    if (!take_result(result, octets)) return false;
    if (result != mpa::Deframer::Result::paused || signals_.receive_stalled) return true;
    // Paused, and a receive came in the meantime.
  }
}

// Acts on what the deframer met; `rest` is what it has not taken. False once the stream is over.
bool Stream::take_result(mpa::Deframer::Result result, mpa::Octets rest) {
  switch (result) {
    case mpa::Deframer::Result::more: return true;
    case mpa::Deframer::Result::paused:
      signals_.receive_stalled = true;
      // Either this sees a receive that is posted meanwhile, or who posts it sees the pause.
      if (host_.receive_there()) {
        signals_.receive_stalled = false;
        return true;
      }
      return pause(rest);
    case mpa::Deframer::Result::bad_crc: stream_error(llp_terminate(mpa::MpaError::crc)); return false;
    case mpa::Deframer::Result::no_memory: end_without_memory(); return false;
    case mpa::Deframer::Result::stopped:
      if (receiver_.peer_terminate()) {
        peer_terminated(*receiver_.peer_terminate());
      } else {
        stream_error(*receiver_.error());
      }
      return false;
  }
  return true;
}

// The receive that a message waits for has not come at once: the peer, whose work before that message is done, hears of
// it, as by an RNR NAK. Most pauses end sooner.
void Stream::tell_not_ready_later() {
  constexpr std::chrono::milliseconds kNotReadyPause{10};
  if (std::exchange(telling_not_ready_, true)) return;
  if (later(kNotReadyPause, &Stream::tell_not_ready, pauses_)) return;
  telling_not_ready_ = false;  // no memory: it hears of it at once
  tell_not_ready();
}

void Stream::tell_not_ready(std::uint64_t pauses) {
  const std::lock_guard lock(locks_.receive);
  telling_not_ready_ = false;
  if (!signals_.receive_stalled || phase_ != Phase::running) return;
  if (pauses_ != pauses) return tell_not_ready_later();
  tell_not_ready();
}

void Stream::tell_not_ready() {
  const std::lock_guard lock(locks_.send);
  transmitter_.tell_not_ready(receiver_.dealt_with());
  send();
}

}  // namespace uiw::provider
