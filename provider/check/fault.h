// SPDX-License-Identifier: MIT
// The faults of programs that `uiw run --check` finds.
#pragma once

#include <array>
#include <cstdint>

namespace uiw::provider::check {

enum class FaultKind : std::uint8_t {
  source_changed,
  sink_written,
  memory_overlap,
  key_gone,
  region_in_use,
  memory_unmapped,
  peer_refused,
  access_refused,
  event_missed,
  event_not_requested,
  event_not_solicited,
  event_not_acknowledged,
  send_queue_stuck,
  post_ignored,
  cq_overrun,
  wr_id_gone,
  receive_missing,
  receives_reset,
  use_after_destroy,
  destroyed_in_use,
  child_of_fork,
  leak,
  not_portable,
  unsignaled_end,
  kCount
};

struct FaultInfo {
  const char* name;    // as reports and suppressions have it
  const char* advice;  // what to do
};

constexpr std::array<FaultInfo, static_cast<std::size_t>(FaultKind::kCount)> kFaults{{
    {"source-changed", "Leave the memory of work alone until you have polled its completion, or that of later work."},
    {"sink-written",
     "Let nothing else store there from the post until the completion is polled, or until all of the Write is there."},
    {"memory-overlap", "Give each receive, Read and atomic memory of its own until it has completed."},
    {"key-gone", "Post work with the keys of regions that are registered; look for a copy of the old key."},
    {"region-in-use",
     "Deregister a region once the work that uses it has completed, or its queue pair is in ERR or RESET."},
    {"memory-unmapped", "Deregister a region before you unmap, protect or free its memory."},
    {"peer-refused",
     "Give the peer the rkey and an address of a region that has the right and stays registered while it is used."},
    {"access-refused",
     "Use the rkey and addresses that the peer has given for this, while it keeps the region registered."},
    {"event-missed", "After each ibv_req_notify_cq poll once more, and sleep only if that finds nothing."},
    {"event-not-requested", "Request an event (ibv_req_notify_cq) of the queue that you wait for, before each sleep."},
    {"event-not-solicited", "Request an event of each completion, or let the peer send with IBV_SEND_SOLICITED."},
    {"event-not-acknowledged", "Acknowledge each event (ibv_ack_cq_events, ibv_ack_async_event) before you destroy."},
    {"send-queue-stuck", "Signal work before the queue is full, at the latest every queue depth, and poll for it."},
    {"post-ignored", "Look at what ibv_post_send returns, and post the request again once completions were polled."},
    {"cq-overrun", "Create the completion queue with a place for each receive and each signaled request."},
    {"wr-id-gone", "Let wr_id refer to what lives until the completion is polled."},
    {"receive-missing", "Post receives before the peer may send, as many as it may send messages."},
    {"receives-reset", "Post all receives again after a queue pair was in RESET."},
    {"use-after-destroy", "Stop using an object, in all threads, before you destroy it."},
    {"destroyed-in-use", "Wait until no thread is inside a call on an object before you destroy it."},
    {"child-of-fork", "Open the device in the child, or leave verbs to the parent."},
    {"leak", "Destroy what you have created before you close the device or end."},
    {"not-portable", "Ask for less, or say which adapters the program needs."},
    {"unsignaled-end", "Signal the last request, and poll its completion before you destroy the queue pair."},
}};

constexpr const FaultInfo& info_of(FaultKind kind) { return kFaults[static_cast<std::size_t>(kind)]; }

}  // namespace uiw::provider::check
