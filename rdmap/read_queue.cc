// SPDX-License-Identifier: MIT
#include "rdmap/read_queue.h"

#include <utility>

namespace uiw::rdmap {

bool ReadQueue::has_room(std::uint32_t probes) const {
  // With ORD 0 a Read that is in the send queue already would wait here for ever. So this function reports room for it,
  // and the Transmitter makes it fail.
  if (outstanding_ >= ord_ && ord_ > 0) return false;
  const std::uint32_t own = probes + ready_to_receive_;
  if (own > 0 && outstanding_ + own >= agreed()) return false;
  // The ring can be short of memory only while other requests are outstanding. Sending goes on when they are answered.
  return ring_->has_room();
}

bool ReadQueue::has_room_for_probe(std::uint32_t probes) const {
  const std::uint32_t own = probes + ready_to_receive_;
  if (probes == SharedReads::kMostProbes || outstanding_ + own >= agreed()) return false;
  if (probes > 0 && own + ord_ >= agreed()) return false;  // the remaining room is for the program's Reads
  return ring_->has_room();
}

void ReadQueue::push(SendQueue& queue, std::uint64_t sequence, Msn msn) {
  if (is_followed(sequence)) return;
  pushed_ = sequence + 1;
  SendWork& work = queue.at(sequence);
  work.request_msn = msn;
  ring_->push({sequence, work.sink_stag, work.sink_offset, work.length, 0, queue.sges(sequence).data(), work.sges,
               work.kind == WorkKind::atomic});
  ++outstanding_;
}

void ReadQueue::push_ready_to_receive() {
  if (std::exchange(ready_to_receive_pushed_, true)) return;
  ring_->push({SharedReads::kReadyToReceive, Stag{0}, 0, 0, 0, nullptr, 0, false});
  ready_to_receive_ = 1;
}

std::uint64_t ReadQueue::pop() {
  const std::uint64_t sequence = ring_->front().sequence;
  ring_->pop();
  if (sequence == SharedReads::kReadyToReceive) {
    ready_to_receive_ = 0;
  } else if (sequence != SharedReads::kProbe) {
    --outstanding_;
  }
  return sequence;
}

}  // namespace uiw::rdmap
