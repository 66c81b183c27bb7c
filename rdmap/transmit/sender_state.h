// SPDX-License-Identifier: MIT
// The state that the parts of a transmitter share: the queues that it sends from, and how much TCP has taken. Used with
// the sender's lock held.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "mpa/startup.h"
#include "rdmap/connection_rules.h"
#include "rdmap/cursor.h"
#include "rdmap/placement_tracker.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/report_queue.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// `queue`, and `rules` and `reads` once they are set, must remain live as long as the state.
struct SenderState {
  SendQueue& queue;
  const ConnectionRules* rules = nullptr;
  SharedReads* reads = nullptr;
  Cursor sent;  // the position up to which TCP has taken whole FPDUs
  ReadQueue read_queue;
  PlacementTracker tracker;
  ReportQueue reports;
  bool reports_progress = false;                // progress reports precede messages
  bool hold = false;                            // nothing is sent before the peer's first FPDU
  bool ended = false;                           // no more work is sent
  std::uint32_t segment_payload = 1;            // the payload that an untagged segment has room for
  std::size_t batch_limit = 0;                  // octets, see mpa::Batch::limit()
  std::uint64_t hold_from = ~std::uint64_t{0};  // entries from this one on are not sent
  std::optional<Terminate> terminate;
  std::uint64_t answer_until = 0;  // inbound requests below this number are answered before the Terminate

  explicit SenderState(SendQueue& sends) : queue(sends), tracker(sends) {}

  std::uint64_t work_end() const { return std::min(queue.tail(), hold_from); }
  // The oldest entry, which has been completed, leaves the queue.
  void pop(const SendWork& work) {
    tracker.note_pop(work);
    queue.pop();
  }
  mpa::PeerKind peer() const { return reads->peer.load(std::memory_order_relaxed); }
  Progress progress() const { return decode_progress(reads->progress.load(std::memory_order_acquire)); }
};

}  // namespace uiw::rdmap
