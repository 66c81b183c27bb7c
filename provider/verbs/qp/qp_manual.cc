// SPDX-License-Identifier: MIT
// A queue pair that its program connects with ibv_modify_qp: from RTR on, and when its peer cannot be reached or leaves.
//
// Such programs are written for InfiniBand. A peer that has gone is noticed by the work that cannot get to it, and by
// nothing else: until some is posted the queue pair stays as it is, with its receives.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "provider/connect/cm_loop.h"
#include "provider/connect/manual/pairs.h"
#include "provider/memory/grace_period.h"
#include "provider/process/settings.h"
#include "provider/verbs/context.h"
#include "provider/verbs/limits.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::provider {

namespace {

bool usable(const Gid& gid) {
  if (gid == Gid{} || gid[0] == 0xFF) return false;  // unspecified, multicast
  return !is_ipv4(gid) || (gid[12] != 0 && gid[12] < 224);
}

}  // namespace

// INIT to RTR. 0, or an errno, and nothing has changed.
int Qp::connect_manually(const ibv_qp_attr& attributes, int mask) {
  const DeviceInfo& device = context_->device();
  const ibv_global_route& route = attributes.ah_attr.grh;
  if (route.sgid_index >= device.gids.size()) return EINVAL;
  manual::Ends ends;
  ends.greeting.source = device.gids[route.sgid_index];
  std::memcpy(ends.greeting.destination.data(), route.dgid.raw, sizeof route.dgid.raw);
  if (!usable(ends.greeting.destination)) return EINVAL;
  if (is_ipv4(ends.greeting.source) != is_ipv4(ends.greeting.destination)) return EINVAL;
  ends.greeting.source_qp = number_;
  ends.greeting.destination_qp = attributes.dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) ends.greeting.psn = attributes.rq_psn & kPsnMask;
  ends.ifindex = device.ifindex;
  ends.traffic_class = route.traffic_class;
  ends.read_depth = attributes.max_dest_rd_atomic;
  // What the connection needs and may not get is missed now, where the program can be told.
  if (const int error = context_->engine().start(); error != 0) return error;
  if (const int error = CmLoop::instance().start(); error != 0) return error;
  {
    const std::lock_guard receive_lock(locks_.receive);
    const std::lock_guard send_lock(locks_.send);
    manual_ = true;
    ends.life = ++life_;
    if (!step(IBV_QPS_INIT, IBV_QPS_RTR)) {
      manual_ = false;
      return EINVAL;
    }
  }
  int error;
  try {
    error = manual::start(ends, device);
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  if (error != 0) {
    manual_ = false;
    step(IBV_QPS_RTR, IBV_QPS_INIT);
  }
  return error;
}

// The peer expects another PSN than this end starts with: it has another queue pair in mind (one of an earlier life of this
// number, for example), and an adapter's packets would not get through. A program that sets none says nothing by it.
bool Qp::mixed_up(std::uint32_t peer_psn) const {
  return peer_psn != 0 && attributes_.sq_psn != 0 && peer_psn != attributes_.sq_psn;
}

bool Qp::is_for(std::uint32_t peer_psn) {
  const std::lock_guard lock(locks_.send);
  return state() == IBV_QPS_RTR || !mixed_up(peer_psn);
}

// RTR to RTS: nothing is sent before.
void Qp::ready_to_send_manually(const ibv_qp_attr& attributes) {
  const std::lock_guard receive_lock(locks_.receive);
  const std::lock_guard send_lock(locks_.send);
  attributes_.sq_psn = attributes.sq_psn & kPsnMask;
  if (!step(IBV_QPS_RTR, IBV_QPS_RTS)) return;
  if (runs(Stream::Phase::running) && mixed_up(stream_->peer_psn())) {
    stream_->abandon(true);
    drop_stream();
  }
}

// RTS to SQD: what is posted from here on waits.
void Qp::drain() {
  const std::lock_guard lock(locks_.send);
  drain_to_ = send_queue_.tail();
  if (stream_ != nullptr) stream_->transmitter().hold_from(drain_to_);
  transmit();
}

// And back.
void Qp::go_on() {
  const std::lock_guard lock(locks_.send);
  tell_when_drained_ = false;
  if (stream_ != nullptr) stream_->transmitter().hold_from(~std::uint64_t{0});
  transmit();
}

void Qp::start_retry_timer(RetryTimer::Clock::time_point now) {
  retry_timer_.work_at(send_queue_.head(), now);
  if (stream_ != nullptr) stream_->sender().note_progress(now);
}

// An adapter tries for a while. Meanwhile a program may see work of other queue pairs complete, and end on that.
void Qp::peer_gone() {
  if (send_queue_.empty()) return;
  manual::start_retry_timers();
  start_retry_timer(RetryTimer::Clock::now());
}

void Qp::leave_at_exit() {
  // A program may call exit() wherever it is: what is locked then stays as it is.
  {
    const std::unique_lock send_lock(locks_.send, std::try_to_lock);
    if (send_lock.owns_lock() && stream_ != nullptr) stream_->sender().send_waiting();
  }
  const std::unique_lock receive_lock(locks_.receive, std::try_to_lock);
  if (!receive_lock.owns_lock() || !manual_ || stream_ == nullptr) return;
  {
    const std::unique_lock send_lock(locks_.send, std::try_to_lock);
    if (!send_lock.owns_lock()) return;
  }
  stream_->leave();
}

// Why the oldest work fails now; empty where it has time left. The sender's lock is held.
std::optional<rdmap::Status> Qp::check_oldest_work(RetryTimer::Clock::time_point now) {
  using Peer = RetryTimer::Peer;
  if (send_queue_.empty() || state() == IBV_QPS_ERR || !manual_) return std::nullopt;
  if (retry_timer_.has_moved(send_queue_.head())) return std::nullopt;
  const RetryTimer::Limits limits = RetryTimer::limits_of(attributes_, init_.qp_type == IBV_QPT_RC);
  Peer peer = Peer::answers;
  if (stream_ == nullptr) {
    peer = Peer::none;
  } else if (runs(Stream::Phase::gone)) {
    peer = Peer::gone;
  } else if (!runs(Stream::Phase::running)) {
    return std::nullopt;
  } else {
    const bool no_receive = stream_->receiver().rdmap().peer_waits();
    // Its answers may stand behind a message that our own program has no receive for; or it has said that it waits for its.
    const bool has_to_answer =
        !signals_.receive_stalled && !no_receive && !(state() == IBV_QPS_SQD && drained());
    const bool asks = retry_timer_.asks_for_answers(limits, now);
    if (asks && stream_->sender().unanswered(limits.retry, now, has_to_answer)) {
      peer = Peer::silent;
    } else if (no_receive) {
      peer = Peer::has_no_receive;
    }
  }
  return retry_timer_.verdict(limits, peer, now);
}

bool Qp::check_retry_timer() {
  const auto now = RetryTimer::Clock::now();
  {
    const std::lock_guard lock(locks_.send);
    if (send_queue_.empty() || state() == IBV_QPS_ERR) return false;
    if (!check_oldest_work(now)) {
      if (retry_timer_.has_moved(send_queue_.head())) start_retry_timer(now);
      return true;
    }
  }
  const std::lock_guard receive_lock(locks_.receive);
  std::optional<rdmap::Status> verdict;
  std::optional<std::uint64_t> culprit;
  {
    const std::lock_guard lock(locks_.send);
    verdict = check_oldest_work(now);
    if (!verdict) return !send_queue_.empty();
    culprit = send_queue_.head();
    // What the peer does not take may have completed already: then it is others that wait behind it.
    const bool by_queue = rdmap::uses_queue(send_queue_.at(*culprit), rdmap::kSendQueue);
    const bool remote = stream_ != nullptr && stream_->transmitter().completion() == rdmap::Completion::remote;
    if (*verdict == rdmap::Status::rnr_exceeded && !(by_queue && remote)) culprit.reset();
    if (!runs(Stream::Phase::running)) {
      state_ = IBV_QPS_ERR;
      flush_sends(culprit, *verdict);
    } else if (*verdict == rdmap::Status::retry_exceeded) {
      stream_->sender().stop_for_good();
    }
  }
  if (runs(Stream::Phase::running)) {
    stream_->fail_work(culprit, *verdict);
  } else {
    flush_receives();
  }
  return false;
}

}  // namespace uiw::provider
