// SPDX-License-Identifier: MIT
// A queue pair that its program connects with ibv_modify_qp: from RTR on, and when its peer cannot be reached or leaves.
//
// Such programs are written for InfiniBand. A peer that has gone is noticed by the work that cannot get to it, and by
// nothing else: until some is posted the queue pair stays as it is, with its receives.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "provider/by_hand.h"
#include "provider/cm_loop.h"
#include "provider/context.h"
#include "provider/grace_period.h"
#include "provider/limits.h"
#include "provider/qp.h"
#include "provider/qp_attributes.h"
#include "provider/settings.h"

namespace uiw::provider {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Less than this a connection may take on a busy host, where an adapter needs none.
constexpr milliseconds kLeastRetryTime{4000}, kLeastRnrTime{1000};
constexpr milliseconds kInVain{500};  // work is tried where the peer is known to have left
constexpr milliseconds kLongestRnrTimer{655};  // which of them the peer has chosen is not known here
constexpr unsigned kForEver = 7;               // rnr_retry
constexpr milliseconds kNotReadyPause{10};

// How long work may wait for its peer; 0 for ever (InfiniBand: 4.096 us times two to the power of the timeout).
milliseconds retry_time(const ibv_qp_attr& attributes) {
  if (attributes.timeout == 0) return milliseconds{0};
  const std::uint64_t once_us = (std::uint64_t{4096} << attributes.timeout) / 1000;
  const auto all = std::chrono::duration_cast<milliseconds>(microseconds(once_us * (attributes.retry_cnt + 1U)));
  return std::max(all, kLeastRetryTime);
}

bool usable(const Gid& gid) {
  if (gid == Gid{} || gid[0] == 0xFF) return false;  // unspecified, multicast
  return !is_ipv4(gid) || (gid[12] != 0 && gid[12] < 224);
}

std::optional<tcp_info> info_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

// INIT to RTR. 0, or an errno, and nothing has changed.
int Qp::connect_by_hand(const ibv_qp_attr& attributes, int mask) {
  const DeviceInfo& device = context_->device();
  const ibv_global_route& route = attributes.ah_attr.grh;
  if (route.sgid_index >= device.gids.size()) return EINVAL;
  by_hand::Ends ends;
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
    const std::lock_guard receive_lock(receive_mutex_);
    const std::lock_guard send_lock(send_mutex_);
    by_hand_ = true;
    ends.life = ++life_;
    if (!step(IBV_QPS_INIT, IBV_QPS_RTR)) {
      by_hand_ = false;
      return EINVAL;
    }
  }
  int error;
  try {
    error = by_hand::start(ends, device);
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  if (error != 0) {
    by_hand_ = false;
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
  const std::lock_guard lock(send_mutex_);
  return state() == IBV_QPS_RTR || !mixed_up(peer_psn);
}

// RTR to RTS: nothing is sent before.
void Qp::ready_to_send_by_hand(const ibv_qp_attr& attributes) {
  const std::lock_guard receive_lock(receive_mutex_);
  const std::lock_guard send_lock(send_mutex_);
  attributes_.sq_psn = attributes.sq_psn & kPsnMask;
  if (!step(IBV_QPS_RTR, IBV_QPS_RTS)) return;
  if (stream_ == Stream::running && mixed_up(peer_psn_)) forget_stream();
}

// RTS to SQD: what is posted from here on waits.
void Qp::drain() {
  const std::lock_guard lock(send_mutex_);
  drain_to_ = send_queue_.tail();
  transmitter_.hold_from(drain_to_);
  if (!full()) transmit();
}

// And back.
void Qp::go_on() {
  const std::lock_guard lock(send_mutex_);
  tell_when_drained_ = false;
  transmitter_.hold_from(~std::uint64_t{0});
  if (!full()) transmit();
}

// The stream has ended without a Terminate. The receiver's lock is held.
void Qp::peer_left(bool broken) {
  // Work that could not be sent failed before, and completes with its own error, even if nobody has come for that yet.
  if (work_failed_here()) return end_for_send_error(!broken);
  if (!initiator_ && !established_) {
    // It called, and gave up before it got the answer: it calls again.
    const std::lock_guard lock(send_mutex_);
    return forget_stream();
  }
  if (initiator_ && state() == IBV_QPS_RTR && receiver_.dealt_with() == rdmap::DealtWith{} && !receiver_.in_message()) {
    // Nothing has come and nothing has gone: it may have found out that this is not its peer.
    const std::lock_guard lock(send_mutex_);
    if (send_queue_.empty()) return forget_stream();
  }
  std::optional<std::uint64_t> culprit;
  {
    const std::lock_guard lock(send_mutex_);
    // Where the peer has closed in order, what was sent and is not to be told of counts as received.
    if (!broken) transmitter_.release_unsignaled();
    if (!receiver_.in_message()) {
      // An adapter tries for a while. Meanwhile a program may see work of other queue pairs complete, and end on that.
      if (!send_queue_.empty()) {
        by_hand::watch_over_work();
        stuck_at_ = send_queue_.head();
        stuck_since_ = unmoved_since_ = std::chrono::steady_clock::now();
      }
      let_go_of_socket();
      stream_ = Stream::gone;
      paused_ = false;
      drop_stash();
      if (owner_) owner_->stream_ended();
      owner_.reset();
      return;
    }
    if (!send_queue_.empty()) culprit = send_queue_.head();
    send_dead_ = send_dead_ || broken;
  }
  end_stream(culprit, rdmap::Status::retry_exceeded, false);
}

// The receive that a message waits for has not come at once: the peer, whose work before that message is done, hears of
// it, as by an RNR NAK. Most pauses end sooner.
void Qp::tell_not_ready_later() {
  if (std::exchange(telling_not_ready_, true)) return;
  try {
    CmLoop::instance().after(kNotReadyPause, [number = number_, pauses = pauses_] {
      const ReadSection section;
      if (Qp* qp = find_qp(number)) qp->tell_not_ready(pauses);
    });
  } catch (const std::exception&) {  // no memory: it hears of it at once
    telling_not_ready_ = false;
    tell_not_ready();
  }
}

void Qp::tell_not_ready(std::uint64_t pauses) {
  const std::lock_guard lock(receive_mutex_);
  telling_not_ready_ = false;
  if (!paused_ || stream_ != Stream::running) return;
  if (pauses_ != pauses) return tell_not_ready_later();
  tell_not_ready();
}

// The receiver's lock is held.
void Qp::tell_not_ready() {
  const std::lock_guard lock(send_mutex_);
  transmitter_.tell_not_ready(receiver_.dealt_with());
  if (!full()) transmit();
}

// On InfiniBand all that has come is acknowledged by then, but here the peer may not even have asked: it is told, as far as
// TCP takes it at once. The receiver's lock is held.
void Qp::leave() {
  answer_last();
  if (stream_ == Stream::running && init_.qp_type == IBV_QPT_RC) tell_not_ready();
}

void Qp::leave_at_exit() {
  // A program may call exit() wherever it is: what is locked then stays as it is.
  {
    const std::unique_lock send_lock(send_mutex_, std::try_to_lock);
    if (send_lock.owns_lock() && coalescing_.waiting() && !full()) transmit();
  }
  const std::unique_lock receive_lock(receive_mutex_, std::try_to_lock);
  if (!receive_lock.owns_lock() || !by_hand_) return;
  {
    const std::unique_lock send_lock(send_mutex_, std::try_to_lock);
    if (!send_lock.owns_lock()) return;
  }
  leave();
}

void Qp::peer_dealt_with(const rdmap::DealtWith& said) {
  const std::lock_guard lock(send_mutex_);
  if (!transmitter_.peer_dealt_with(said)) return;
  note_held();
  transmit_wanted_ = transmit_wanted_ || transmitter_.unsent() || stream_ != Stream::running || state() != IBV_QPS_RTS;
}

// Does nobody answer at the other end of the running stream? The peer's host, which does not acknowledge what was sent
// again; or its adapter, which neither takes octets nor sends any although its host does. That one gets the time that it has
// for the answer to a call at least: it is software. The sender's lock is held.
bool Qp::unanswered(milliseconds retry, std::chrono::steady_clock::time_point now) {
  const auto info = info_of(socket_.fd());
  if (!info) return false;
  if (info->tcpi_retransmits > 0 && milliseconds(info->tcpi_last_ack_recv) > retry) return true;
  // Its answers may stand behind a message that our own program has no receive for; or it has said that it waits for its.
  const bool has_to_answer = !paused_ && !receiver_.peer_waits() && !(state() == IBV_QPS_SQD && drained());
  const std::uint64_t moved = info->tcpi_bytes_acked + info->tcpi_bytes_received;
  if (!has_to_answer || moved != std::exchange(moved_, moved)) unmoved_since_ = now;
  return now - unmoved_since_ > std::max(retry, milliseconds(settings().values.startup_timeout_ms));
}

bool Qp::look_after_work() {
  const auto now = std::chrono::steady_clock::now();
  const auto judge = [&]() -> std::optional<rdmap::Status> {  // with the sender's lock
    if (send_queue_.empty() || state() == IBV_QPS_ERR || !by_hand_) return std::nullopt;
    const bool waits = stream_ == Stream::none || stream_ == Stream::running || stream_ == Stream::gone;
    if (!waits || send_queue_.head() != stuck_at_) return std::nullopt;
    const auto stuck = now - stuck_since_;
    if (stream_ == Stream::gone && stuck > kInVain) return rdmap::Status::retry_exceeded;
    const milliseconds retry = retry_time(attributes_);
    if (retry.count() > 0 && stuck > retry && (stream_ == Stream::none || unanswered(retry, now))) {
      return rdmap::Status::retry_exceeded;
    }
    const auto rnr = std::max(kLeastRnrTime, kLongestRnrTimer * (attributes_.rnr_retry + 1));
    const bool reliable = init_.qp_type == IBV_QPT_RC;
    if (reliable && stream_ == Stream::running && attributes_.rnr_retry < kForEver && stuck > rnr &&
        receiver_.peer_waits()) {
      return rdmap::Status::rnr_exceeded;
    }
    return std::nullopt;
  };
  {
    const std::lock_guard lock(send_mutex_);
    if (send_queue_.empty() || state() == IBV_QPS_ERR) return false;
    if (!judge()) {
      if (send_queue_.head() != stuck_at_) {
        stuck_at_ = send_queue_.head();
        stuck_since_ = unmoved_since_ = now;
      }
      return true;
    }
  }
  const std::lock_guard receive_lock(receive_mutex_);
  std::optional<rdmap::Status> verdict;
  std::optional<std::uint64_t> culprit;
  {
    const std::lock_guard lock(send_mutex_);
    verdict = judge();
    if (!verdict) return !send_queue_.empty();
    culprit = send_queue_.head();
    // What the peer does not take may have completed already: then it is others that wait behind it.
    const bool by_queue = rdmap::uses_queue(send_queue_.at(*culprit), rdmap::kSendQueue);
    const bool remote = transmitter_.completion() == rdmap::Completion::remote;
    if (*verdict == rdmap::Status::rnr_exceeded && !(by_queue && remote)) culprit.reset();
    if (stream_ != Stream::running) {
      state_ = IBV_QPS_ERR;
      transmitter_.flush(culprit, *verdict);
    } else {
      send_dead_ = send_dead_ || *verdict == rdmap::Status::retry_exceeded;
    }
  }
  if (stream_ == Stream::running) {
    if (!culprit) report(IBV_EVENT_QP_FATAL);
    end_stream(culprit, *verdict, *verdict == rdmap::Status::rnr_exceeded);
  } else {
    flush_receives();
  }
  return false;
}

}  // namespace uiw::provider
