// SPDX-License-Identifier: MIT
// The faults of programs that `uiw run --check` finds.
#pragma once

#include <array>
#include <cstdint>

namespace uiw::provider::check {

enum class FaultKind : std::uint8_t {
  source_changed,
  memory_overlap,
  key_gone,
  region_in_use,
  event_not_acknowledged,
  send_queue_stuck,
  cq_overrun,
  use_after_destroy,
  destroyed_in_use,
  child_of_fork,
  leak,
  kCount
};

struct FaultInfo {
  const char* name;    // as reports and suppressions have it
  const char* advice;  // what to do
};

constexpr std::array<FaultInfo, static_cast<std::size_t>(FaultKind::kCount)> kFaults{{
    {"source-changed", "Leave the memory of work alone until you have polled its completion, or that of later work."},
    {"memory-overlap", "Give each receive, Read and atomic memory of its own until it has completed."},
    {"key-gone", "Post work with the keys of regions that are registered; look for a copy of the old key."},
    {"region-in-use", "Deregister a region once the work that uses it has completed, or its queue pair is in ERR."},
    {"event-not-acknowledged", "Acknowledge each event (ibv_ack_cq_events, ibv_ack_async_event) before you destroy."},
    {"send-queue-stuck", "Signal work before the queue is full, at the latest every queue depth, and poll for it."},
    {"cq-overrun", "Create the completion queue with a place for each receive and each signaled request."},
    {"use-after-destroy", "Stop using an object, in all threads, before you destroy it."},
    {"destroyed-in-use", "Wait until no thread is inside a call on an object before you destroy it."},
    {"child-of-fork", "Open the device in the child, or leave verbs to the parent."},
    {"leak", "Destroy what you have created before you close the device or end."},
}};

constexpr const FaultInfo& info_of(FaultKind kind) { return kFaults[static_cast<std::size_t>(kind)]; }

}  // namespace uiw::provider::check
