// SPDX-License-Identifier: MIT
// A queue pair's life: creation, states, attributes, connection, destruction.
#include "provider/verbs/qp/qp.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>

#include "mpa/guarded_copy.h"
#include "provider/connect/linger.h"
#include "provider/connect/manual/pairs.h"
#include "provider/memory/grace_period.h"
#include "provider/process/settings.h"
#include "provider/verbs/context.h"
#include "provider/verbs/limits.h"
#include "provider/verbs/qp/qp_attributes.h"
#include "provider/verbs/qp/qp_table.h"
#include "provider/verbs/srq.h"

namespace uiw::provider {

namespace {

// Largest request that the device grants; each 0 becomes what the queues need at least.
bool grant(ibv_qp_cap& cap, bool has_receive_queue) {
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge || cap.max_inline_data > kMaxInline) return false;
  if (has_receive_queue && (cap.max_recv_wr > kMaxQpWr || cap.max_recv_sge > kMaxSge)) return false;
  if (!has_receive_queue) cap.max_recv_wr = cap.max_recv_sge = 0;
  // Programs send a few octets inline without having asked (every adapter grants some).
  cap.max_inline_data = std::max(cap.max_inline_data, kLeastInline);
  return true;
}

}  // namespace

std::unique_ptr<Qp> Qp::create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                               ibv_qp* handle, Srq* srq) {
  const bool has_receive_queue = srq == nullptr;
  if (attributes.qp_type != IBV_QPT_RC && attributes.qp_type != IBV_QPT_UC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (send_cq == nullptr || receive_cq == nullptr || !grant(attributes.cap, has_receive_queue)) {
    errno = EINVAL;
    return nullptr;
  }
  std::unique_ptr<Qp> qp(new Qp(context, pd, send_cq, receive_cq, attributes, handle, srq));
  if (qp->number_ == 0) {
    const int error = errno == EMFILE || errno == ENFILE ? errno : ENOMEM;
    qp.reset();
    errno = error;
  }
  return qp;
}

Qp::Qp(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
       Srq* srq)
    : context_(context.shared_from_this()),
      generation_(fork_generation()),
      pd_(pd),
      send_cq_(send_cq),
      receive_cq_(receive_cq),
      handle_(handle),
      init_(attributes),
      send_queue_(attributes.cap.max_send_wr, attributes.cap.max_send_sge, attributes.cap.max_inline_data),
      builder_(send_queue_, &pd, attributes.sq_sig_all != 0),
      receive_queue_(attributes.cap.max_recv_wr, attributes.cap.max_recv_sge),
      shared_(srq != nullptr ? std::make_unique<SrqUser>(*srq) : nullptr) {
  // Until the program says otherwise.
  attributes_.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  pd_.add_user();
  send_cq_->add_user();
  receive_cq_->add_user();
  try {
    number_ = take_qp_number(*this);  // last: from here on it can be found
  } catch (const std::exception&) {
    errno = ENOMEM;
  }
  if (shared_ != nullptr) shared_->set_qp_number(number_);
}

void Qp::stop() {
  hide_qp(number_);
  send_waiting();
  if (manual_) {
    const std::lock_guard lock(locks_.receive);
    if (stream_ != nullptr) stream_->leave();
    manual_ = false;
  }
  manual::stop(number_);
  context_->engine().remove(*this);
  wait_for_readers();
  const std::lock_guard receive_lock(locks_.receive);
  const std::lock_guard send_lock(locks_.send);
  if (stream_ != nullptr) stream_->abandon(false);
  if (shared_ != nullptr) shared_->leave();
  release_windows();
}

Qp::~Qp() {
  stop();
  forget_completions();
  if (number_ != 0) free_qp_number(number_);
  send_cq_->remove_user();
  receive_cq_->remove_user();
  pd_.remove_user();
}

void Qp::forget_completions() {
  send_cq_->forget(number_);
  if (receive_cq_ != send_cq_) receive_cq_->forget(number_);
}

bool Qp::inherited() const { return generation_ != fork_generation(); }

// Nothing but what is whole at any time.
void Qp::after_fork_in_child() {
  if (stream_ != nullptr) stream_->after_fork_in_child();
  signals_.deferred = false;
  signals_.posts_deferred_since = 0;
}

void Qp::leave_to_parent() {
  if (shared_ != nullptr) shared_->leave_to_parent();
  send_cq_->remove_user();
  receive_cq_->remove_user();
  pd_.remove_user();
}

// The sender's lock is held.
bool Qp::may_attach(bool manual, std::uint32_t life) const {
  const ibv_qp_state state = this->state();
  if (stream_ != nullptr || manual != manual_ || (manual && life != life_)) return false;
  if (manual) return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  return init_.qp_type == IBV_QPT_RC && (state == IBV_QPS_INIT || state == IBV_QPS_RTR || state == IBV_QPS_RTS);
}

bool Qp::can_attach(bool manual, std::uint32_t life) {
  const std::lock_guard lock(locks_.send);
  return may_attach(manual, life);
}

int Qp::attach(mpa::TcpStream& socket, const Attachment& attachment) {
  mpa::install_copy_guard();
  static std::atomic<bool> seen_to{false};
  if (!seen_to.exchange(true)) std::atexit([] { for_each_qp([](Qp& qp) { qp.leave_at_exit(); }); });
  const std::lock_guard receive_lock(locks_.receive);
  const std::lock_guard send_lock(locks_.send);
  if (stream_ != nullptr) return EISCONN;
  if (!may_attach(attachment.manual, attachment.life)) return EINVAL;
  if (attachment.manual && state() != IBV_QPS_RTR && mixed_up(attachment.peer_psn)) return EPERM;

  const mpa::Agreement& agreement = attachment.agreement;
  constexpr std::uint32_t kMost = kMaxReadDepth;
  constexpr std::uint32_t kMostSlots = kMost + rdmap::SharedReads::kMostProbes;
  Stream::Parameters parameters;
  parameters.policy = {attachment.manual, init_.qp_type == IBV_QPT_RC, send_cq_ == receive_cq_};
  parameters.read_slots_out = std::min<std::uint32_t>(agreement.ord, kMostSlots);
  parameters.read_slots_in = std::min<std::uint32_t>(agreement.ird, kMostSlots);
  parameters.sender.most_ord = std::min({parameters.read_slots_out, attachment.ord, kMost});
  parameters.agreed.agreement = agreement;
  parameters.agreed.agreement.ord = std::min(parameters.sender.most_ord, ord_limit_);
  parameters.agreed.agreement.ird = std::min({parameters.read_slots_in, attachment.ird, kMost});
  parameters.agreed.initiator = attachment.initiator;
  parameters.agreed.mulpdu = attachment.mulpdu != 0 ? attachment.mulpdu : mpa::mulpdu(socket.segment_size());
  parameters.sender.completion = attachment.completion;
  if (attachment.manual && state() == IBV_QPS_SQD) parameters.sender.hold_from = drain_to_;
  parameters.denied_rights = denied_rights_;
  parameters.peer_psn = attachment.peer_psn;
  parameters.owner = attachment.owner;
  std::shared_ptr<Stream> made;
  try {
    // Not by make_shared(): timers, which hold it weakly for some seconds, would keep its memory.
    made.reset(new Stream(*this, context_->engine(), locks_, signals_, send_queue_, number_, &pd_, this, parameters));
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  made->start(std::move(socket));
  if (const int error = context_->engine().add(*this, made->fd()); error != 0) {
    socket = made->release_socket();
    return error;
  }
  if (!attachment.manual) {
    attributes_.max_rd_atomic = static_cast<std::uint8_t>(parameters.agreed.agreement.ord);
    attributes_.max_dest_rd_atomic = static_cast<std::uint8_t>(parameters.agreed.agreement.ird);
    steps_due_ = context_->device().transport == Transport::roce && state() != IBV_QPS_RTS;
    state_ = IBV_QPS_RTS;
  }
  stream_ = std::move(made);
  try {
    transmit();
  } catch (const std::exception&) {  // it has its stream, which ends for lack of memory
    stream_->sender().break_off();
  }
  return 0;
}

bool Qp::query_agreed(Agreed& agreed) {
  const std::lock_guard lock(locks_.receive);
  if (stream_ == nullptr) return false;
  agreed = stream_->agreed();
  return true;
}

int Qp::disconnect(const StreamOwner* owner) {
  const ReadSection section;
  const std::lock_guard lock(locks_.receive);
  if (stream_ == nullptr || (owner != nullptr && !stream_->is_of(owner))) return ENOTCONN;
  return stream_->disconnect();
}

void Qp::abort_beginning(const StreamOwner* owner) {
  const std::lock_guard lock(locks_.receive);
  if (stream_ != nullptr && stream_->is_of(owner)) stream_->abort_beginning();
}

void Qp::completion_lost() {
  const std::lock_guard lock(locks_.receive);
  if (stream_ != nullptr) stream_->completion_lost();
}

void Qp::no_memory() noexcept {
  try {
    const std::lock_guard lock(locks_.receive);
    if (stream_ != nullptr) stream_->end_without_memory();
  } catch (const std::exception&) {
  }
}

// With both locks held, by whoever has ended it. The one before is free now: who dropped that held both locks, too.
void Qp::drop_stream() {
  if (shared_ != nullptr) shared_->leave();
  stream_before_ = std::exchange(stream_, nullptr);
}

// A receive of a shared queue is given back to it, or others would have one less for ever; one of its own was not taken.
void Qp::give_back(const rdmap::ReceiveBuffer& buffer, bool completes) {
  if (shared_ == nullptr || shared_->give_back(buffer)) return;
  if (completes) receive_complete(buffer, rdmap::Status::flushed, {});  // else it ends with its queue pair, or in RESET
}

// Back to RESET: queues are emptied, and completions that were not polled go with them, as on adapters.
void Qp::reset() {
  const std::lock_guard receive_lock(locks_.receive);
  if (manual_ && stream_ != nullptr) stream_->leave();
  const std::lock_guard send_lock(locks_.send);
  if (stream_ != nullptr) stream_->sender().send_waiting();
  if (manual_.exchange(false)) manual::stop(number_);
  while (!send_queue_.empty()) send_queue_.pop();
  while (!receive_queue_.empty()) receive_queue_.pop();
  release_windows();
  if (stream_ != nullptr) {
    stream_->abandon(false);
    drop_stream();
  }
  last_receive_reported_ = tell_when_drained_ = false;
  denied_rights_ = 0;
  ord_limit_ = ~0U;
  attributes_ = {};
  forget_completions();
  state_ = IBV_QPS_RESET;
}

// Unless the stream has ended meanwhile, and put it into ERR.
bool Qp::step(ibv_qp_state from, ibv_qp_state to) { return state_.compare_exchange_strong(from, to) || from == to; }

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  if (inherited()) return EIO;
  const ReadSection section;
  if ((mask & IBV_QP_CUR_STATE) != 0 && number_in(attributes.cur_qp_state) != state()) return EINVAL;
  const ibv_qp_state from = state();
  const int wanted = (mask & IBV_QP_STATE) != 0 ? number_in(attributes.qp_state) : static_cast<int>(from);
  // The connection manager brings a queue pair to RTS by itself; a program that goes through the states of InfiniBand
  // afterwards finds nothing left to do. The stream may even have ended by then: that is told in other ways.
  const bool connected_by_manager = from == IBV_QPS_RTS && !manual_ && is_connected();
  const bool over_already = from == IBV_QPS_ERR && steps_due_;
  const bool nothing_to_do = (connected_by_manager && (wanted == IBV_QPS_INIT || wanted == IBV_QPS_RTR)) ||
                             (over_already && wanted >= IBV_QPS_INIT && wanted <= IBV_QPS_RTS);
  if (!nothing_to_do && !may_step(from, wanted, manual_)) return EINVAL;
  const auto to = static_cast<ibv_qp_state>(wanted);
  if (const int error = check_attributes(attributes, mask, to, init_.qp_type); error != 0) return error;

  // INIT and RTR are on the way; with any other step the program has taken over.
  if ((mask & IBV_QP_STATE) != 0 && wanted != IBV_QPS_INIT && wanted != IBV_QPS_RTR) steps_due_ = false;
  if ((mask & IBV_QP_STATE) == 0 || nothing_to_do) {
    change_attributes(attributes, mask);
    return 0;
  }
  switch (to) {
    case IBV_QPS_RESET: reset(); break;
    case IBV_QPS_RTR:
      if (connects(attributes, mask) && from == IBV_QPS_INIT) {
        if (const int error = connect_manually(attributes, mask); error != 0) return error;
      } else {
        step(from, to);
      }
      break;
    case IBV_QPS_RTS:
      if (manual_ && from == IBV_QPS_RTR && !has_all_for_rts(mask, init_.qp_type)) return EINVAL;
      if (manual_ && from == IBV_QPS_RTR) {
        ready_to_send_manually(attributes);
      } else if (step(from, to) && manual_) {
        go_on();
      }
      break;
    case IBV_QPS_SQD:
      if (from != IBV_QPS_RTS) break;
      if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) {
        const std::lock_guard lock(locks_.send);
        tell_when_drained_ = attributes.en_sqd_async_notify != 0;
      }
      if (!step(from, to)) break;
      if (manual_) {
        drain();
      } else {
        // On iWARP this is the Verbs draft's Closing state (section 6.2.5): orderly end of the stream.
        disconnect(nullptr);
      }
      break;
    case IBV_QPS_ERR: {
      const std::lock_guard lock(locks_.receive);
      if (manual_ && stream_ != nullptr) stream_->leave();
      send_waiting();
      if (stream_ != nullptr && stream_->runs_or_closes()) {
        stream_->flush_work();
      } else {
        {
          const std::lock_guard send_lock(locks_.send);
          state_ = IBV_QPS_ERR;
          flush_sends(std::nullopt, rdmap::Status::flushed);
        }
        flush_receives();
      }
      break;
    }
    default: step(from, to); break;
  }
  change_attributes(attributes, mask);
  return 0;
}

// They were checked.
void Qp::change_attributes(const ibv_qp_attr& attributes, int mask) {
  const std::lock_guard lock(locks_.send);
  copy_attributes(attributes_, attributes, mask);
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    denied_rights_ = denied_rights(attributes.qp_access_flags);
    if (stream_ != nullptr) stream_->receiver().rdmap().deny(denied_rights_);
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && (stream_ == nullptr || manual_)) {
    // What the peer is told is the connection manager's to say; afterwards it is fixed. A manual connection may stand
    // before the step to RTR that makes it has returned.
    attributes_.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  }
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    // ORD (Verbs draft section 6.5): never more than the peer has agreed to.
    ord_limit_ = attributes.max_rd_atomic;
    if (stream_ == nullptr) {
      attributes_.max_rd_atomic = attributes.max_rd_atomic;
    } else {
      attributes_.max_rd_atomic = static_cast<std::uint8_t>(stream_->transmitter().limit_ord(ord_limit_));
      transmit();
    }
  }
}

void Qp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const std::lock_guard lock(locks_.send);
  attributes = attributes_;
  attributes.qp_state = attributes.cur_qp_state = state();
  attributes.sq_draining = attributes.qp_state == IBV_QPS_SQD && !drained() ? 1 : 0;
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  attributes.cap = init_.cap;
  init = init_;
}

std::uint32_t Qp::sends_outstanding() {
  const std::lock_guard lock(locks_.send);
  return send_queue_.size();
}

std::uint32_t Qp::receives_outstanding() {
  const std::lock_guard lock(locks_.receive);
  return receive_queue_.size();
}

bool Qp::is_connected() {
  const std::lock_guard lock(locks_.send);
  return stream_ != nullptr;
}

void Qp::report(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = handle_;
  if (context_->report(event)) events_reported_.fetch_add(1);
}

}  // namespace uiw::provider
