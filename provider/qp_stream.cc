// SPDX-License-Identifier: MIT
// A connected queue pair: moves octets between its socket and its stream, and ends the stream.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "provider/by_hand.h"
#include "provider/clock.h"
#include "provider/cm_loop.h"
#include "provider/context.h"
#include "provider/grace_period.h"
#include "provider/io_scratch.h"
#include "provider/linger.h"
#include "provider/qp.h"

namespace uiw::provider {

namespace {

constexpr auto kPatience = std::chrono::seconds(5);

constexpr std::size_t kReceiveBudget = 2 * 1024 * 1024;  // octets before other queue pairs get their turn

// False where there is no memory for it.
template <typename Function>
bool later(const Function& function) {
  try {
    CmLoop::instance().after(kPatience, function);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// What a Terminate says of the request it is about (RFC 5040 section 4.8; Verbs draft section 8.3.2).
rdmap::Status status_of(const rdmap::Terminate& terminate) {
  switch (terminate.layer) {
    case rdmap::Layer::rdma:
      if (terminate.type == static_cast<std::uint8_t>(rdmap::ErrorType::remote_protection)) {
        return rdmap::Status::remote_access;
      }
      return terminate.code == static_cast<std::uint8_t>(rdmap::ErrorCode::unexpected_opcode)
                 ? rdmap::Status::remote_invalid_request
                 : rdmap::Status::remote_operation;
    case rdmap::Layer::ddp:
      if (terminate.type == static_cast<std::uint8_t>(ddp::ErrorType::tagged)) return rdmap::Status::remote_access;
      if (terminate.type == static_cast<std::uint8_t>(ddp::ErrorType::untagged)) {
        return rdmap::Status::remote_invalid_request;
      }
      return rdmap::Status::remote_operation;
    default: return rdmap::Status::fatal;
  }
}

// The async event of the side that found the error (Verbs draft figures 24 and 25).
ibv_event_type event_of(const rdmap::Terminate& terminate) {
  const bool protection = (terminate.layer == rdmap::Layer::rdma &&
                           terminate.type == static_cast<std::uint8_t>(rdmap::ErrorType::remote_protection)) ||
                          (terminate.layer == rdmap::Layer::ddp &&
                           terminate.type == static_cast<std::uint8_t>(ddp::ErrorType::tagged));
  if (protection) return IBV_EVENT_QP_ACCESS_ERR;
  return terminate.layer == rdmap::Layer::llp ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_REQ_ERR;
}

}  // namespace

void Qp::transmit(Patience patience) {
  const Stream stream = stream_;
  if (by_hand_.load(std::memory_order_relaxed)) by_hand::watch_over_work();
  const bool sends = stream == Stream::running || stream == Stream::closing || stream == Stream::lingering;
  if (!sends || send_dead_ || fin_sent_) return forget_held();
  coalescing_.sent();
  transmitter_.set_patience(stream == Stream::running ? patience : Patience::none);
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    // The thread of the context has its own, and takes it for a socket that was full.
    sending_ = Sending::full;
    note_held();
    return context_->engine().take_over(*this, socket_.fd());
  }
  sending_ = Sending::busy;
  rdmap::OutgoingBatch& batch = io->batch;
  for (;;) {
    const auto fill = transmitter_.fill(batch);
    if (fill == rdmap::Transmitter::Fill::idle) {
      if (stop_sending(Sending::idle)) break;
      continue;
    }
    if (fill == rdmap::Transmitter::Fill::broken) {
      send_dead_ = true;
      sending_ = Sending::idle;
      return note_send_error();
    }
    if (fill == rdmap::Transmitter::Fill::local_error) {
      note_send_error();
      continue;  // the Terminate
    }
    const ssize_t taken = socket_.send(batch.fpdus.vectors());
    if (taken < 0) {
      if (taken == -EAGAIN) {
        if (!stop_sending(Sending::full)) continue;
        note_held();
        return;
      }
      if (taken == -EFAULT && transmitter_.source_gone(batch)) continue;  // the work that it is fails at the next fill
      sending_ = Sending::idle;
      send_dead_ = true;  // otherwise the receiving side learns why, and ends the stream
      if (taken == -EFAULT) note_send_error();
      return;
    }
    transmitter_.sent(batch, static_cast<std::size_t>(taken));
  }
  note_held();
  finish_sending();
  if (transmitter_.terminating() && (stream_ == Stream::running || stream_ == Stream::closing)) {
    note_send_error();  // be it of a response to the peer
  }
}

// Something cannot be sent, and the stream is to end. That flushes the work, and a Read among it may be being placed right
// now: so whoever has the receiver's lock next does it, and somebody is made to come for it.
void Qp::note_send_error() {
  send_error_ = true;
  context_->engine().rearm(*this, socket_.fd());
}

// The receiver's lock is held. An error that a completion tells of is told by no async event (Verbs draft section 6.2.3).
void Qp::end_for_send_error(bool linger) {
  {
    const std::lock_guard lock(send_mutex_);
    error_told_ = error_told_ || transmitter_.failure().has_value();
  }
  if (!error_told_) report(IBV_EVENT_QP_FATAL);
  end_stream(std::nullopt, rdmap::Status::flushed, linger);
}

bool Qp::work_failed_here() {
  const std::lock_guard lock(send_mutex_);
  return transmitter_.failure().has_value();
}

void Qp::note_held() {
  if (const std::uint64_t since = coalescing_.since(); posts_wait_since_.load(std::memory_order_relaxed) != since) {
    posts_wait_since_.store(since);
  }
  const bool holds = transmitter_.wants_probe() || coalescing_.waiting();
  if (held_.load(std::memory_order_relaxed) == holds) return;
  held_.store(holds);
  context_->engine().note_held(holds);
}

// False if there may be more to do: somebody has asked, by ask_sender().
bool Qp::stop_sending(Sending to) {
  Sending now = Sending::busy;
  if (sending_.compare_exchange_strong(now, to)) return true;
  // An exchange, not a store: what it looks at from here on may not be older than what those have left who have asked.
  sending_.exchange(Sending::busy);
  transmitter_.set_patience(Patience::none);
  return false;
}

// Has somebody else send what is due; false if nobody is sending. So a thread that brings news does not wait for one that
// is with the socket. What it saw of the socket counts too: that there is room may be news to who is about to find none.
bool Qp::ask_sender() {
  if (stream_ != Stream::running) return false;
  Sending now = Sending::busy;
  // Written where it stands already, too: the sender may be about to take an earlier one for all that there is.
  while (!sending_.compare_exchange_strong(now, Sending::once_more)) {
    if (now != Sending::busy && now != Sending::once_more) return false;
  }
  return true;
}

// What has come may be the answer to a Send whose octets TCP took a moment ago, from a thread that has yet to say that the
// Send is complete: by the local rule, for by the remote one a peer that keeps to InfiniBand's rules has confirmed it first.
// The receiver's lock is held.
void Qp::await_sender() {
  const Sending sending = sending_;
  if (sending != Sending::busy && sending != Sending::once_more) return;
  if (transmitter_.completion() == rdmap::Completion::remote) return;
  const std::lock_guard lock(send_mutex_);
}

// The last octet is with TCP: say so to the peer.
void Qp::finish_sending() {
  // What is signaled is confirmed before the end, what is not need not be.
  if (stream_ == Stream::closing) transmitter_.release_unsignaled();
  const bool closing = stream_ == Stream::closing && send_queue_.empty() && !transmitter_.pending();
  const bool terminated = transmitter_.terminating() && transmitter_.terminate_sent();
  if (by_hand_ && state() == IBV_QPS_SQD && drained() && std::exchange(tell_when_drained_, false)) {
    report(IBV_EVENT_SQ_DRAINED);
  }
  const bool cut_off = stream_ == Stream::lingering && !transmitter_.terminating() && !transmitter_.pending();
  if (fin_sent_ || (!closing && !terminated && !cut_off)) return;
  socket_.shutdown_send();
  fin_sent_ = true;
  if (closing && std::exchange(tell_when_drained_, false)) report(IBV_EVENT_SQ_DRAINED);
}

// A program that waits for an event does not poll before there is one, and one that nobody watches may not come back.
Qp::Patience Qp::patience(Driver driver) const {
  const Engine& engine = context_->engine();
  const bool comes_back = driver == Driver::program && !engine.event_awaited() && engine.watches_program();
  return comes_back ? Patience::waits : Patience::none;
}

// One that has completions to poll for does not wait for those of what it posts. (What is held is looked for among few.)
Qp::Patience Qp::patience_of_program() const {
  const Patience patience = this->patience(Driver::program);
  const bool waits = send_cq_->empty() || context_->engine().drives_many();
  return patience == Patience::waits && !waits ? Patience::streams : patience;
}

bool Qp::progress(Driver driver) noexcept {
  try {
    return make_progress(driver);
  } catch (const std::exception&) {
    no_memory();
    return true;
  }
}

bool Qp::make_progress(Driver driver) {
  const ReadSection section;
  struct Quiet {
    explicit Quiet(Cq* of) : cq(of) {
      if (cq != nullptr) cq->hold_events();
    }
    ~Quiet() {
      if (cq != nullptr) cq->release_events();
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    Cq* const cq;
  } const quiet(driver == Driver::event ? receive_cq_ : nullptr);
  bool work = false;
  {
    std::unique_lock lock(receive_mutex_, std::defer_lock);
    if (driver == Driver::program) {
      if (!lock.try_lock()) return true;  // somebody is at it
    } else {
      lock.lock();
    }
    const Stream stream = stream_.load();
    if (stream == Stream::none || stream == Stream::ended || stream == Stream::gone) return false;
    // Before anything is placed for work that has been flushed already. Every poll comes here: one that finds nothing
    // does not write. Who sets it has the engine come, so that what this load misses is seen then.
    if (send_error_.load(std::memory_order_acquire)) {
      send_error_ = false;
      if (stream == Stream::running || stream == Stream::closing) end_for_send_error(true);
    }
    if (std::exchange(ride_offered_, false)) {
      rides_ = ride_open_ ? 0 : rides_ + 1;
      answer_wanted_ = answer_wanted_ && reads_->answers_unsent();
    }
    // A pause has spent the edge that would bring somebody here.
    const bool may_hold = !answer_wanted_ && !paused_;
    if (!ride_open_.load(std::memory_order_relaxed)) ride_open_ = true;
    work = receive(driver);
    if (stream_ == Stream::lingering) {
      const std::lock_guard send_lock(send_mutex_);
      if (fin_sent_ || send_dead_) let_go_of_socket();
    }
    if (answer_wanted_ && by_hand_ && may_hold) {
      ride_offered_ = true;
      if (rides_ >= kRides && !transmit_wanted_ && !full()) {
        if (driver == Driver::program) return work;
        // A program that spins on memory has seen what came, and posts right now.
        if (!context_->engine().event_awaited() && stream_ == Stream::running && !paused_) {
          receive(driver);
          answer_wanted_ = answer_wanted_ && reads_->answers_unsent();
        }
      }
    }
    // Whose part it is to end the stream cannot be asked: what this saw of the socket would be lost.
    const bool ends = stream_ != Stream::running && sending_ != Sending::idle;
    const bool wanted =
        transmit_wanted_ || answer_wanted_ || full() || (driver == Driver::event && (held() || ends));
    if (!wanted && driver == Driver::program) return work;
    transmit_wanted_ = answer_wanted_ = false;
    if (ask_sender() || !wanted) return work;
  }
  const std::lock_guard lock(send_mutex_);
  if (driver == Driver::event && coalescing_.waiting()) coalescing_.take_overdue(raw_clock(), false);
  transmit(patience(driver));
  // The socket is let go of with the receiver's lock: another turn does it.
  if (stream_ == Stream::lingering && (fin_sent_ || send_dead_)) context_->engine().rearm(*this, socket_.fd());
  return work;
}

void Qp::forget_held() {
  coalescing_.sent();
  posts_wait_since_.store(0);
  if (held_.exchange(false)) context_->engine().note_held(false);
}

void Qp::send_held() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !held() || full()) return;
  const bool asks = transmitter_.wants_probe();
  transmit();
  if (asks) transmitter_.note_waiting();
}

// A thread that only polls leaves the sending to the one that posts, as long as that is at it.
bool Qp::awaited_elsewhere() const {
  constexpr std::uint64_t kAtIt = 5'000;
  const std::uint64_t since = posts_wait_since_.load();
  if (since == 0 || pthread_equal(poster_.load(std::memory_order_relaxed), pthread_self()) != 0) return false;
  return raw_clock() < since + kAtIt;
}

void Qp::send_posts() {
  if (awaited_elsewhere()) return;
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !coalescing_.waiting() || full()) return;
  transmit(patience_of_program());
}

// What comes next is the end, of the queue pair or of its stream.
void Qp::send_waiting() {
  if (!posts_wait()) return;
  const std::lock_guard lock(send_mutex_);
  if (coalescing_.waiting() && !full()) transmit();
}

void Qp::send_overdue() {
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || full() || !coalescing_.take_overdue(raw_clock(), true)) return;
  transmit(patience(Driver::event));
}

// What still comes while a Terminate goes out belongs to nobody.
bool Qp::drop_received() {
  IoScratch* const io = io_scratch();
  if (io == nullptr) {
    context_->engine().take_over(*this, socket_.fd());
    return false;
  }
  ssize_t n;
  do {
    n = socket_.receive({io->staging.get(), IoScratch::kStaging});
  } while (n > 0);
  if (n != -EAGAIN) peer_closed(n < 0);
  return true;
}

bool Qp::receive(Driver driver) {
  if (!socket_.is_open()) return false;
  if (stream_ == Stream::lingering) return drop_received();
  bool any = false;
  if (paused_ && !receive_there()) {
    watch_for_end();
    return false;
  }
  IoScratch* const scratch = io_scratch();
  if (scratch == nullptr) {
    context_->engine().take_over(*this, socket_.fd());
    return false;
  }
  IoScratch& io = *scratch;
  if (paused_) {
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
      iovec to[2] = {{wanted.data(), wanted.size()}, {io.staging.get(), IoScratch::kStaging}};
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
      if (paused_) return true;
      // It was paused, and a receive came in the meantime.
      if (live && result == mpa::Deframer::Result::paused) live = take_octets({io.staging.get(), staged}), staged = 0;
    }
    if (live && staged > 0) live = take_octets({io.staging.get(), staged});
    if (!live || paused_) return true;
    // A poll comes back by itself. An event does not: the end of the stream may have come with these octets, in one
    // edge, so it is read up to.
    if (driver == Driver::program && size < wanted.size() + IoScratch::kStaging) return true;
    if (driver == Driver::event && size >= budget) {
      context_->engine().rearm(*this, socket_.fd());
      return true;
    }
    budget -= std::min(size, budget);
    if (budget == 0) return true;
    // The peer waits for its answers, and may have stopped sending for them: they do not wait for all that is there.
    if ((transmit_wanted_ || answer_wanted_) && kReceiveBudget - budget >= IoScratch::kStaging) {
      transmit_wanted_ = answer_wanted_ = false;
      if (!ask_sender()) {
        const std::lock_guard lock(send_mutex_);
        transmit(patience(driver));
      }
    }
  }
}

// A receive has been posted: goes on with what was read already. False if the stream is over, or paused again.
bool Qp::resume() {
  paused_ = false;
  set_deaf(false);
  if (!take_octets({stash_.get() + stash_taken_, stash_size_ - stash_taken_}) || paused_) return false;
  drop_stash();
  return true;
}

// Reads no more until a receive is posted: TCP holds the peer back (Verbs draft section 13.2). False once the stream is
// over.
bool Qp::pause(mpa::Octets rest) {
  ++pauses_;
  if (!keep_stash(rest)) {
    paused_ = false;
    end_without_memory();
    return false;
  }
  set_deaf(true);
  if (by_hand_ && init_.qp_type == IBV_QPT_RC) tell_not_ready_later();
  watch_for_end();
  return paused_;
}

// False where there is no memory for what TCP has delivered already.
bool Qp::keep_stash(mpa::Octets rest) {
  if (stash_size_ == 0 && !rest.empty()) {
    stash_.reset(new (std::nothrow) std::byte[rest.size()]);
    if (!stash_) return false;
    std::copy(rest.begin(), rest.end(), stash_.get());
    stash_size_ = rest.size();
  }
  // A small message a turn must not mean a copy of the whole stash a turn: what is left of it is its end.
  stash_taken_ = stash_size_ - rest.size();
  return true;
}

void Qp::set_deaf(bool deaf) {
  if (transmitter_.completion() == rdmap::Completion::local) return;
  const std::lock_guard lock(send_mutex_);
  transmitter_.set_deaf(deaf);
  transmit_wanted_ = true;  // what waited for completions: a fence, the end; or a probe
}

// While nothing is read, the end of the connection shows only here.
void Qp::watch_for_end() {
  pollfd end{socket_.fd(), POLLRDHUP, 0};
  if (::poll(&end, 1, 0) <= 0) return;
  if ((end.revents & (POLLERR | POLLHUP)) != 0) {
    peer_closed((end.revents & POLLERR) != 0);
  } else if ((end.revents & POLLRDHUP) != 0 && !by_hand_) {
    give_up_later();
  }
}

void Qp::note_first_message() {
  if (established_ || !receiver_.heard()) return;
  established_ = true;
  if (initiator_) return;
  const std::lock_guard lock(send_mutex_);
  transmitter_.release_hold();
  transmit_wanted_ = true;
  if (owner_) owner_->stream_established();
}

// False once the stream is over.
bool Qp::take_octets(mpa::Octets octets) {
  for (;;) {
    const auto [result, consumed] = deframer_.receive(octets, receiver_);
    note_first_message();
    octets = octets.subspan(consumed);
    if (!take_result(result, octets)) return false;
    if (result != mpa::Deframer::Result::paused || paused_) return true;
    // Paused, and a receive came in the meantime.
  }
}

// Acts on what the deframer met; `rest` is what it has not taken. False once the stream is over.
bool Qp::take_result(mpa::Deframer::Result result, mpa::Octets rest) {
  switch (result) {
    case mpa::Deframer::Result::more: return true;
    case mpa::Deframer::Result::paused:
      paused_ = true;
      // Either this sees a receive that is posted meanwhile, or who posts it sees the pause.
      if (receive_there()) {
        paused_ = false;
        return true;
      }
      return pause(rest);
    case mpa::Deframer::Result::bad_crc: {
      rdmap::Terminate terminate;
      terminate.layer = rdmap::Layer::llp;
      terminate.code = static_cast<std::uint8_t>(mpa::MpaError::crc);
      stream_error(terminate);
      return false;
    }
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

void Qp::read_complete() {
  const std::lock_guard lock(send_mutex_);
  transmitter_.read_complete();
  note_held();  // for who comes next to the receiver's lock
  // The next read, a fence, the end.
  if (transmitter_.unsent() || stream_ != Stream::running || state() != IBV_QPS_RTS) transmit_wanted_ = true;
}

void Qp::peer_wants_acknowledgements() {
  const std::lock_guard lock(send_mutex_);
  transmitter_.acknowledge();
}

void Qp::stream_error(const rdmap::Terminate& terminate) {
  if (by_hand_ && receiver_.failed_read()) {
    // On InfiniBand the completion says that its memory is not there, and the peer learns nothing.
    {
      const std::lock_guard lock(send_mutex_);
      transmitter_.placed_before(*receiver_.failed_read());
    }
    return end_stream(receiver_.failed_read(), rdmap::Status::local_protection, true);
  }
  if (!receive_error_told_) report(event_of(terminate));
  end_with(terminate);
}

// `peer_gone`: our part is to tell what is left of it; there was nothing wrong with what we had received.
void Qp::end_with(const rdmap::Terminate& terminate, bool peer_gone) {
  {
    const std::lock_guard lock(send_mutex_);
    // That an answer has come says what has been placed, be there room for it or not.
    if (receiver_.failed_read()) transmitter_.placed_before(*receiver_.failed_read());
    // Where the octets themselves cannot be trusted there is nothing to wait for.
    transmitter_.terminate(terminate, terminate.layer != rdmap::Layer::llp);
  }
  if (peer_gone) return end_stream(never_confirmed(), rdmap::Status::retry_exceeded, true);
  end_stream(receiver_.failed_read(), rdmap::Status::local_protection, true);
}

// Remote rule: the work which, where the connection is gone, is the first that the peer has said nothing about.
std::optional<std::uint64_t> Qp::never_confirmed() {
  const std::lock_guard lock(send_mutex_);
  if (transmitter_.completion() == rdmap::Completion::local) return std::nullopt;
  transmitter_.release_unsignaled();
  return transmitter_.oldest_sent();
}

namespace {
// Verbs draft figure 24: Bad LLP Close, and errors of completion queues.
rdmap::Terminate catastrophic() {
  rdmap::Terminate terminate;
  terminate.layer = rdmap::Layer::rdma;
  terminate.type = static_cast<std::uint8_t>(rdmap::ErrorType::remote_operation);
  terminate.code = static_cast<std::uint8_t>(rdmap::ErrorCode::catastrophic_stream);
  return terminate;
}
}  // namespace

void Qp::completion_lost() {
  const std::lock_guard lock(receive_mutex_);
  if (stream_ != Stream::running && stream_ != Stream::closing) return;
  report(IBV_EVENT_QP_FATAL);
  end_with(catastrophic());
}

// Is there work that a peer which closes leaves unfinished?
bool Qp::answers_due() {
  const std::lock_guard lock(send_mutex_);
  return transmitter_.unfinished() || !reads_->inbound.empty();
}

void Qp::peer_terminated(const rdmap::Terminate& terminate) {
  std::optional<std::uint64_t> culprit;
  rdmap::Status status = status_of(terminate);
  {
    const std::lock_guard lock(send_mutex_);
    culprit = terminate.has_ddp_header ? transmitter_.find_terminated(terminate) : transmitter_.oldest_sent();
    if (culprit) {
      // What the peer was sent before has been placed, or it would have complained of that.
      transmitter_.placed_before(*culprit);
      // An operation that is no more than misaligned is an invalid request (as on InfiniBand); RFC 7306 section 8.2 has
      // no error code of its own for it.
      const bool atomic = send_queue_.at(*culprit).kind == rdmap::WorkKind::atomic;
      if (atomic && status == rdmap::Status::remote_operation) status = rdmap::Status::remote_invalid_request;
    }
  }
  // On InfiniBand a completion says it.
  if (!by_hand_ || !culprit) report(IBV_EVENT_QP_FATAL);
  end_stream(culprit, status, false);
}

void Qp::peer_closed(bool broken) {
  if (stream_ == Stream::ended || stream_ == Stream::gone) return;
  if (stream_ == Stream::lingering) {
    const std::lock_guard lock(send_mutex_);
    stream_ = Stream::ended;
    forget_held();
    socket_.close();
    return;
  }
  if (!broken && stream_ == Stream::running) send_waiting();
  if (by_hand_) return peer_left(broken);
  if (work_failed_here()) return end_for_send_error(!broken);  // which was first
  if (!broken && stream_ == Stream::running && answers_due()) {
    report(IBV_EVENT_QP_FATAL);  // Bad LLP Close (section 6.2.2.2)
    // A responder sends nothing before the first message of its peer, a Terminate neither.
    if (initiator_ || established_) return end_with(catastrophic(), true);
  }
  end_stream(never_confirmed(), rdmap::Status::retry_exceeded, false);
  if (broken) report_lost();
}

// LLP Connection Lost or Reset (Verbs draft figure 24); the state is ERR by then (section 6.2.5).
void Qp::report_lost() {
  {
    const std::lock_guard lock(send_mutex_);
    if (error_told_) return;
  }
  report(IBV_EVENT_QP_FATAL);
}

void Qp::end_stream(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger) {
  {
    const std::lock_guard lock(send_mutex_);
    state_ = IBV_QPS_ERR;
    // Work that could not be sent failed first, whatever else has come up since.
    if (const auto& failure = transmitter_.failure(); failure && !(culprit && *culprit < failure->sequence)) {
      culprit = failure->sequence;
      status = failure->status;
    }
    transmitter_.flush(culprit, status);
    if (linger && !send_dead_) {
      stream_ = Stream::lingering;
      transmit();
      if (fin_sent_ || send_dead_ || !stop_lingering_later()) let_go_of_socket();
    } else {
      let_go_of_socket();
    }
  }
  paused_ = false;
  drop_stash();
  receiver_.abandon(rdmap::Status::flushed);
  flush_receives();
  if (owner_) {
    owner_->stream_ended();
    owner_.reset();
  }
}

// Both locks are held. A stream that broke in the middle of an FPDU ends in a reset.
void Qp::let_go_of_socket() {
  stream_ = Stream::ended;
  forget_held();
  context_->engine().release(socket_.fd());
  if (send_dead_) {
    socket_.abort();
  } else {
    linger_and_close(socket_.release());
  }
}

// Ends the stream with a reset: nobody waits any longer.
void Qp::reset_stream() {
  {
    const std::lock_guard lock(send_mutex_);
    send_dead_ = true;
  }
  end_stream(never_confirmed(), rdmap::Status::retry_exceeded, false);
}

// What was to be done cannot be done later: octets of the stream are lost. The receiver's lock is held.
void Qp::end_without_memory() {
  if (stream_ != Stream::running && stream_ != Stream::closing) return;
  report(IBV_EVENT_QP_FATAL);
  reset_stream();
}

void Qp::no_memory() noexcept {
  try {
    const std::lock_guard lock(receive_mutex_);
    end_without_memory();
  } catch (const std::exception&) {
  }
}

void Qp::take_linger_serial() {
  static std::atomic<unsigned> serials{0};  // another QP may have this number by then
  linger_serial_ = serials.fetch_add(1) + 1;
}

// A peer that does not read shall not keep the socket of a stream that is over (Verbs draft section 6.2.3).
bool Qp::stop_lingering_later() {
  take_linger_serial();
  return later([number = number_, serial = linger_serial_] {
    const ReadSection section;
    if (Qp* qp = find_qp(number)) qp->stop_lingering(serial);
  });
}

void Qp::stop_lingering(unsigned serial) {
  const std::lock_guard receive_lock(receive_mutex_);
  const std::lock_guard send_lock(send_mutex_);
  if (stream_ != Stream::lingering || serial != linger_serial_) return;
  send_dead_ = true;
  let_go_of_socket();
}

// Closing takes a bounded time (Verbs draft section 6.2.5): the peer has so long to close, and longer only as long as
// work that was posted before still completes.
bool Qp::stop_closing_later() {
  return later([number = number_, serial = linger_serial_, head = send_queue_.head()] {
    const ReadSection section;
    if (Qp* qp = find_qp(number)) qp->stop_closing(serial, head);
  });
}

void Qp::stop_closing(unsigned serial, std::uint64_t head) {
  const std::lock_guard lock(receive_mutex_);
  if (stream_ != Stream::closing || serial != linger_serial_) return;
  {
    const std::lock_guard send_lock(send_mutex_);
    if (send_queue_.head() != head && stop_closing_later()) return;
  }
  reset_stream();
  report_lost();
}

// The peer has closed, but messages it sent before wait for receives: the program gets some time to post them.
void Qp::give_up_later() {
  if (giving_up_) return;
  giving_up_ = later([number = number_, owner = static_cast<const StreamOwner*>(owner_.get()), pauses = pauses_] {
    const ReadSection section;
    if (Qp* qp = find_qp(number)) qp->give_up(owner, pauses);
  });
  if (!giving_up_) peer_closed(false);  // nobody would come back for it
}

void Qp::give_up(const StreamOwner* owner, std::uint64_t pauses) {
  const std::lock_guard lock(receive_mutex_);
  if (owner_.get() != owner) return;
  giving_up_ = false;
  if (!paused_) return;
  if (pauses_ == pauses) {
    peer_closed(false);
  } else {
    watch_for_end();  // it does post, if slowly
  }
}

}  // namespace uiw::provider
