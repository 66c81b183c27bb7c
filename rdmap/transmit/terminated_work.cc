// SPDX-License-Identifier: MIT
#include "rdmap/transmit/terminated_work.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

// The oldest Write that has exactly such a segment, or else the oldest Write that the segment may belong to.
std::optional<std::uint64_t> find_write(const SenderState& state, const ddp::TaggedHeader& header,
                                        std::uint64_t payload, bool begun) {
  SendQueue& queue = state.queue;
  const Cursor& sent = state.sent;
  std::optional<std::uint64_t> near;
  for (std::uint64_t sequence = queue.head(); sequence < queue.tail(); ++sequence) {
    const bool in_progress = sequence == sent.sequence && (sent.offset > 0 || sent.immediate_next || begun);
    if (sequence >= sent.sequence && !in_progress) break;
    const SendWork& work = queue.at(sequence);
    if (state.tracker.remote() && work.done) continue;
    if (work.kind != WorkKind::write || work.remote_stag != header.stag || header.offset < work.remote_offset ||
        header.offset - work.remote_offset > work.length) {
      continue;
    }
    const std::uint64_t end = header.offset - work.remote_offset + payload;
    if (header.last ? end == work.length : end < work.length) return sequence;
    if (!near) near = sequence;
  }
  return near;
}

// The oldest request without an answer for which `is_it` is true.
template <typename IsIt>
std::optional<std::uint64_t> find_unanswered(const SenderState& state, IsIt is_it) {
  SendQueue& queue = state.queue;
  for (std::uint64_t sequence = queue.head(); sequence < queue.tail() && sequence <= state.sent.sequence; ++sequence) {
    const SendWork& work = queue.at(sequence);
    if (is_answered(work.kind) && state.read_queue.is_passed(sequence) && is_it(work)) return sequence;
  }
  return std::nullopt;
}

// Whether the sink of this Read Request, perhaps advanced to where its response stopped, lies in that of the work.
bool names(const ReadRequest& request, const SendWork& work) {
  return work.kind == WorkKind::read && request.sink_stag == work.sink_stag &&
         request.sink_offset - work.sink_offset < std::max(work.length, 1U);
}

// Requests are found by their MSN; probes use MSNs of this queue, too. If the kernel's siw finds an error while it
// answers a Read, its Terminate has another MSN. So if there is no request with this MSN, or its sink is another one,
// the sink decides.
std::optional<std::uint64_t> find_request(const SenderState& state, Msn msn, const Terminate& terminate) {
  const auto by_msn = find_unanswered(state, [msn](const SendWork& work) { return work.request_msn == msn; });
  if (!terminate.has_read_request) return by_msn;
  const auto request = decode_read_request(terminate.read_request);
  if (!request || (by_msn && names(*request, state.queue.at(*by_msn)))) return by_msn;
  const auto by_sink = find_unanswered(state, [&](const SendWork& work) { return names(*request, work); });
  return by_sink ? by_sink : by_msn;
}

// The entry whose message has, or will have, this MSN of the Send Queue, counted back from the next one to be sent.
std::optional<std::uint64_t> find_send(const SenderState& state, Msn msn) {
  SendQueue& queue = state.queue;
  const Cursor& sent = state.sent;
  const auto ahead = static_cast<std::uint32_t>(sent.send_msn) - static_cast<std::uint32_t>(msn);
  std::uint32_t seen = 0;
  // The message in progress itself has the next MSN.
  if (ahead == 0) {
    if (sent.sequence >= queue.tail() || sent.sequence < queue.head()) return std::nullopt;
    return uses_queue(queue.at(sent.sequence), kSendQueue) ? std::optional(sent.sequence) : std::nullopt;
  }
  for (std::uint64_t sequence = sent.sequence; sequence-- > queue.head();) {
    if (uses_queue(queue.at(sequence), kSendQueue) && ++seen == ahead) return sequence;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> find_terminated(const SenderState& state, const Terminate& terminate, bool begun) {
  if (!terminate.has_ddp_header) return std::nullopt;
  const Octets headers = Octets(terminate.ddp_header).first(terminate.ddp_header_size);
  if (headers.size() == ddp::kTaggedHeaderSize) {
    const auto header = ddp::decode_tagged(headers);
    if (!header || decode_control(header->ulp_control).opcode != Opcode::write) return std::nullopt;
    const std::uint64_t length = std::max<std::uint64_t>(terminate.segment_length, ddp::kTaggedHeaderSize);
    return find_write(state, *header, length - ddp::kTaggedHeaderSize, begun);
  }
  const auto header = ddp::decode_untagged(headers);
  if (!header) return std::nullopt;
  if (header->queue == kReadRequestQueue) return find_request(state, header->msn, terminate);
  return header->queue == kSendQueue ? find_send(state, header->msn) : std::nullopt;
}

std::optional<std::uint64_t> find_oldest_sent(const SenderState& state) {
  const Cursor& sent = state.sent;
  for (std::uint64_t sequence = state.queue.head(); sequence < state.queue.tail(); ++sequence) {
    if (state.queue.at(sequence).done) continue;
    const bool begun =
        sequence < sent.sequence || (sequence == sent.sequence && (sent.offset > 0 || sent.immediate_next));
    return begun ? std::optional(sequence) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace uiw::rdmap
