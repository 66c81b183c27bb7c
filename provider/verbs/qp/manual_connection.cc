// SPDX-License-Identifier: MIT
// Queue pairs that the program connects with ibv_modify_qp: the steps to RTR and RTS. This file also decides when
// work fails because the peer cannot be reached, does not answer, posts no receive or has left, both for these queue
// pairs and for those that rdma_cm connects in the RoCE view.
//
// Such programs are written for InfiniBand. There a program learns that its peer has gone only when work cannot be
// delivered. So if the peer leaves, the queue pair keeps its state and its posted receives until posted work fails.

#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "base/mutex.h"
#include "provider/connect/manual/pairs.h"
#include "provider/connect/neighbour.h"
#include "provider/process/cm_loop.h"
#include "provider/process/limits.h"
#include "provider/verbs/context.h"
#include "provider/verbs/qp/qp.h"
#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::provider {

namespace {

bool usable(const Gid& gid) {
  if (gid == Gid{} || gid[0] == 0xFF) return false;  // the unspecified address or a multicast address
  return !is_ipv4(gid) || (gid[12] != 0 && gid[12] < 224);
}

}  // namespace

int Qp::find_peer(const ibv_qp_attr& attributes) const {
  const DeviceInfo& device = qp_.context->device();
  const ibv_global_route& route = attributes.ah_attr.grh;
  if (device.transport != Transport::roce) return 0;
  const Gid source = qp_.context->gid(route.sgid_index);
  Gid peer;
  std::memcpy(peer.data(), route.dgid.raw, peer.size());
  if (source == kNoGid || !usable(peer) || is_ipv4(source) != is_ipv4(peer)) return 0;
  return await_neighbour(address_of(source, device.ifindex, 0), address_of(peer, device.ifindex, 0));
}

int Qp::ready_to_receive(const ibv_qp_attr& attributes, int mask) {
  DeviceInfo device = qp_.context->device();
  const ibv_global_route& route = attributes.ah_attr.grh;
  manual::Ends ends;
  ends.greeting.source = qp_.context->gid(route.sgid_index);
  if (ends.greeting.source == kNoGid) return EINVAL;
  device.gids = qp_.context->gids();
  std::memcpy(ends.greeting.destination.data(), route.dgid.raw, sizeof route.dgid.raw);
  if (!usable(ends.greeting.destination)) return EINVAL;
  if (is_ipv4(ends.greeting.source) != is_ipv4(ends.greeting.destination)) return EINVAL;
  ends.greeting.source_qp = qp_.number;
  ends.greeting.destination_qp = attributes.dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) ends.greeting.psn = attributes.rq_psn & kPsnMask;
  ends.ifindex = device.ifindex;
  ends.traffic_class = route.traffic_class;
  ends.read_depth = attributes.max_dest_rd_atomic;
  try {
    ends.attempt = std::make_shared<manual::Attempt>();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  // Starts the threads that the connection needs now, when a failure can still be returned to the program.
  if (const int error = qp_.context->engine().start(); error != 0) return error;
  if (const int error = CmLoop::instance().start(); error != 0) return error;
  {
    const LockGuard receive_lock(connection_.locks.receive);
    const LockGuard send_lock(connection_.locks.send);
    begin_manual(ends.attempt);
    if (!qp_.step(IBV_QPS_INIT, IBV_QPS_RTR)) {
      end_attempt();
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
    const LockGuard receive_lock(connection_.locks.receive);
    const LockGuard send_lock(connection_.locks.send);
    // Another thread may have reset the queue pair meanwhile, which ends the attempt.
    if (!ends.attempt->is_over()) {
      end_attempt();
      manual_ = false;
      qp_.step(IBV_QPS_RTR, IBV_QPS_INIT);
    }
  }
  return error;
}

void Qp::ready_to_send(const ibv_qp_attr& attributes) {
  const LockGuard receive_lock(connection_.locks.receive);
  const LockGuard send_lock(connection_.locks.send);
  attributes_.sq_psn = attributes.sq_psn & kPsnMask;
  if (!qp_.step(IBV_QPS_RTR, IBV_QPS_RTS)) return;
  if (connection_.runs() && mixed_up(peer_psn_)) {
    connection_.abandon(true);
  }
}

// The status with which the oldest posted send request fails now; nothing if there is none, or if it does not fail yet.
// Called with the sender's lock held.
std::optional<rdmap::Status> Qp::check_oldest_work(RetryTimer::Clock::time_point now) {
  using Peer = RetryTimer::Peer;
  if (sends().empty() || qp_.state.load() == IBV_QPS_ERR || !retries()) return std::nullopt;
  if (retry_timer_.has_moved(sends().head())) return std::nullopt;
  RetryTimer::Limits limits = RetryTimer::limits_of(attributes_, qp_.is_reliable());
  // In the iWARP view a program may post in RTR. The attribute that limits the wait for a receive comes only with the
  // step to RTS, so in RTR there is no limit.
  if (qp_.state.load() == IBV_QPS_RTR) limits.rnr = {};
  Peer peer = Peer::answers;
  if (connection_.is_idle()) {
    if (!manual_) return std::nullopt;  // rdma_cm reports when it cannot connect
    peer = Peer::none;
  } else if (connection_.phase() == Connection::Phase::gone) {
    peer = Peer::gone;
  } else if (!connection_.runs()) {
    return std::nullopt;
  } else {
    const bool no_receive = connection_.peer_waits();
    // The peer need not answer in time if our program has posted no receive for a message that precedes the answers, or
    // if the peer has reported that it waits for a receive of its own program. A peer that rdma_cm has connected need
    // not be uiw, and may wait for a receive without reporting it: only its host's TCP has to answer.
    const bool has_to_answer = manual_ && !connection_.signals.receive_stalled && !no_receive &&
                               !(qp_.state.load() == IBV_QPS_SQD && drained());
    const bool asks = retry_timer_.asks_for_answers(limits, now);
    if (asks && connection_.unanswered(limits.retry, now, has_to_answer)) {
      peer = Peer::silent;
    } else if (no_receive) {
      peer = Peer::has_no_receive;
    }
  }
  return retry_timer_.verdict(limits, peer, now);
}

void Qp::restart_retry_timer() {
  const LockGuard lock(connection_.locks.send);
  if (!connection_.is_idle() || sends().empty()) return;
  start_retry_timer(sends().head(), RetryTimer::Clock::now());
}

bool Qp::check_retry_timer(std::chrono::nanoseconds late) {
  if (!retries()) return false;
  const auto now = RetryTimer::Clock::now();
  {
    const LockGuard lock(connection_.locks.send);
    if (sends().empty() || qp_.state.load() == IBV_QPS_ERR) return false;
    if (connection_.is_idle()) retry_timer_.discount(late, now);
    if (!check_oldest_work(now)) {
      if (retry_timer_.has_moved(sends().head())) start_retry_timer(sends().head(), now);
      return true;
    }
  }
  const LockGuard receive_lock(connection_.locks.receive);
  std::optional<rdmap::Status> verdict;
  std::optional<std::uint64_t> culprit;
  {
    const LockGuard lock(connection_.locks.send);
    connection_.take_placed();
    if (sends().empty()) return false;
    verdict = check_oldest_work(now);
    if (!verdict) {
      connection_.send();  // work that has waited until the work before it was placed
      return !sends().empty();
    }
    culprit = sends().request_of(sends().head());
    // With Completion::local, work that the peer does not accept may have completed already; then the oldest work is
    // not the culprit.
    const bool by_queue = rdmap::uses_queue(sends().at(*culprit), rdmap::kSendQueue);
    const bool remote = !connection_.is_idle() && connection_.transmitter().completion() == rdmap::Completion::remote;
    if (*verdict == rdmap::Status::rnr_exceeded && !(by_queue && remote)) culprit.reset();
    if (!connection_.runs()) {
      qp_.state = IBV_QPS_ERR;
      flush_sends(culprit, *verdict);
      if (*verdict == rdmap::Status::retry_exceeded) {
        qp_.context->engine().counters().add(PortCounter::retries_exceeded);
      }
    } else if (*verdict == rdmap::Status::retry_exceeded) {
      connection_.stop_for_good();
    }
  }
  if (connection_.runs()) {
    connection_.fail_work(culprit, *verdict);
  } else {
    queues_.flush_receives();
  }
  return false;
}

}  // namespace uiw::provider
