// SPDX-License-Identifier: MIT
// What the parts of a transmitter look at: the queues that it sends from, and how far it has got. It belongs to whoever
// holds the sender's lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "mpa/startup.h"
#include "rdmap/cursor.h"
#include "rdmap/placement_tracker.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/report_queue.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// `queue`, and from the start `reads`, must remain live as long as the state.
struct SenderState {
  SendQueue& queue;
  SharedReads* reads = nullptr;
  Cursor sent;  // what TCP has taken, up to an FPDU boundary
  ReadQueue read_queue;
  PlacementTracker tracker;
  ReportQueue reports;
  bool reports_progress = false;      // a progress report goes out in front of a message
  bool hold = false;                  // nothing is sent before the first FPDU of the peer
  bool ended = false;                 // of the work nothing more is sent
  bool takes_send_immediate = false;  // the peer does
  mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;
  std::uint32_t segment_payload = 1;            // that an untagged segment has room for
  std::uint64_t hold_from = ~std::uint64_t{0};  // entries from this one on wait
  std::optional<Terminate> terminate;
  std::uint64_t answer_until = 0;  // of the inbound requests: below this they are answered before the Terminate

  explicit SenderState(SendQueue& sends) : queue(sends), tracker(sends) {}

  std::uint64_t work_end() const { return std::min(queue.tail(), hold_from); }
  Progress progress() const { return decode_progress(reads->progress.load(std::memory_order_acquire)); }
};

}  // namespace uiw::rdmap
