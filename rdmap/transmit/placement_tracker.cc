// SPDX-License-Identifier: MIT
#include "rdmap/transmit/placement_tracker.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

// Whether `a` is the later of two numbers that only grow, modulo 2^32.
template <typename T>
bool is_ahead(T a, T b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b)) > 0;
}

}  // namespace

bool PlacementTracker::probe_worthwhile(const Cursor& at, const Cursor& sent) const {
  const bool eager = policy_ == ProbePolicy::at_once || (policy_ == ProbePolicy::if_none_due && !completion_due(sent));
  if (probes_outstanding() == 0 && eager) return true;
  // Entries leave the send queue when the answer to a later request, or a report, confirms them. A program may expect
  // that they have left the queue as soon as its peer has replied. So once `share` entries follow the last request, a
  // probe is due, even if the stride does not call for a probe yet.
  const std::uint64_t share = std::max(queue_.depth() / SharedReads::kMostProbes, 1U);
  return at.placement.weight - at.placement.requested_weight >= stride_ ||
         at.sequence - at.placement.requested_before >= share;
}

void PlacementTracker::push_probe(const Cursor& at) {
  probes_[probes_pushed_++ % probes_.size()] = {at.sequence, at.placement.weight};
  if (policy_ == ProbePolicy::by_stride) stride_ = std::min(stride_ + stride_ / 4, kLongestStride);
}

std::uint64_t PlacementTracker::probe_answered() {
  const Probe& answered = probe(probes_answered_++);
  answered_weight_ = answered.weight;
  return answered.before;
}

void PlacementTracker::note_waiting(const Cursor& sent) {
  const std::uint64_t under_way = sent.placement.weight - answered_weight_;
  stride_ = std::clamp(under_way / SharedReads::kMostProbes, kShortestStride, kLongestStride);
}

void PlacementTracker::placed_before(std::uint64_t sequence, const Cursor& sent) {
  if (!remote_) return;
  const std::uint64_t end = std::min(sequence, sent.sequence);
  for (std::uint64_t i = std::max(placed_, queue_.head()); i < end; ++i) {
    SendWork& work = queue_.at(i);
    if (!is_answered(work.kind)) work.done = true;
  }
  placed_ = std::max(placed_, end);
}

std::uint64_t PlacementTracker::placed_up_to(std::uint64_t position, const Cursor& sent) const {
  std::uint64_t end = std::max(placed_, queue_.head());
  while (end < sent.sequence && (is_answered(queue_.at(end).kind) || queue_.at(end).end <= position)) ++end;
  return end;
}

std::uint64_t PlacementTracker::awaited_position(const Cursor& sent) {
  placed_ = std::max(placed_, queue_.head());
  while (placed_ < sent.sequence && is_answered(queue_.at(placed_).kind)) ++placed_;
  return by_position_ && placed_ < sent.sequence ? queue_.at(placed_).end : kNowhere;
}

// The loop in this function begins at the first entry that earlier reports do not confirm, so a report that confirms
// nothing new takes no longer with a deep queue.
std::optional<std::uint64_t> PlacementTracker::take_report(const Progress& progress, const Cursor& sent) {
  // Without `reports` in start(), note_pop() does not keep reported_ up to date, so a report that arrives anyway is
  // ignored.
  if (!reports_) return std::nullopt;
  const bool of_sent = !is_ahead(progress.send_msn, sent.send_msn) && !is_ahead(progress.writes, sent.writes);
  if (!of_sent) return std::nullopt;
  std::optional<std::uint64_t> reached;
  while (reported_.sequence < sent.sequence) {
    const SendWork& work = queue_.at(reported_.sequence);
    const bool send = uses_queue(work, kSendQueue), write = work.kind == WorkKind::write;
    const bool beyond =
        send ? !is_ahead(progress.send_msn, reported_.send_msn) : write && !is_ahead(progress.writes, reported_.writes);
    if (beyond) break;
    pass(work);
    if (send || write) reached = reported_.sequence;
  }
  return reached;
}

void PlacementTracker::pass(const SendWork& work) {
  if (uses_queue(work, kSendQueue)) reported_.send_msn = next(reported_.send_msn);
  if (work.kind == WorkKind::write) ++reported_.writes;
  ++reported_.sequence;
}

}  // namespace uiw::rdmap
