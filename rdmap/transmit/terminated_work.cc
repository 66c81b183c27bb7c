// SPDX-License-Identifier: MIT
// Finds the posted work that a Terminate of the peer is about (RFC 5040 section 4.8).
#include "rdmap/transmit/transmitter.h"

#include <algorithm>

namespace uiw::rdmap {

namespace {

// Whether the sink of this Read Request, perhaps advanced to where its response stopped, lies in the sink of the work.
bool names(const ReadRequest& request, const SendWork& work) {
  return work.kind == WorkKind::read && request.sink_stag == work.sink_stag &&
         request.sink_offset - work.sink_offset < std::max(work.length, 1U);
}

}  // namespace

// Finds the Write to which a segment with this header and `payload` octets belongs: the oldest Write that can have
// exactly such a segment, or else the oldest Write to whose target the STag and the offset belong.
std::optional<std::uint64_t> Transmitter::find_write(const ddp::TaggedHeader& header, std::uint64_t payload) const {
  const bool part_taken = sent_.offset > 0 || sent_.immediate_next || partial_ > 0 || !rest_.empty();
  std::optional<std::uint64_t> near;
  for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail(); ++sequence) {
    if (sequence > sent_.sequence || (sequence == sent_.sequence && !part_taken)) break;
    const SendWork& work = queue_.at(sequence);
    if (tracker_.remote() && work.done) continue;
    if (work.kind != WorkKind::write || work.remote_stag != header.stag || header.offset < work.remote_offset ||
        header.offset - work.remote_offset > work.length) {
      continue;
    }
    const std::uint64_t end = header.offset - work.remote_offset + payload;
    // In another order than that of the addresses the last segment is not the end of the message.
    if (rules_->disorder == 0 && (header.last ? end == work.length : end < work.length)) return sequence;
    if (!near) near = sequence;
  }
  return near;
}

// Returns the entry of the oldest request that was sent, is not answered, and for which `is_it` is true; no value if
// there is none.
template <typename IsIt>
std::optional<std::uint64_t> Transmitter::find_unanswered(IsIt is_it) const {
  for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail() && sequence <= sent_.sequence; ++sequence) {
    const SendWork& work = queue_.at(sequence);
    if (is_answered(work.kind) && read_queue_.is_followed(sequence) && is_it(work)) return sequence;
  }
  return std::nullopt;
}

// Finds a Read or an atomic operation by the MSN of its request. The MSN is compared with `request_msn` of each entry
// and not counted back as in find_send(), since probes use MSNs of the Read Request Queue, too. If the kernel's siw
// finds an error while it answers a Read, the MSN in its Terminate is not that of the Read. So if no request has this
// MSN, or the Read with this MSN has another sink than the Read Request in the Terminate, the Read is found by its
// sink.
std::optional<std::uint64_t> Transmitter::find_request(Msn msn, const Terminate& terminate) const {
  const auto by_msn = find_unanswered([msn](const SendWork& work) { return work.request_msn == msn; });
  if (!terminate.has_read_request) return by_msn;
  const auto request = decode_read_request(terminate.read_request);
  if (!request || (by_msn && names(*request, queue_.at(*by_msn)))) return by_msn;
  const auto by_sink = find_unanswered([&](const SendWork& work) { return names(*request, work); });
  return by_sink ? by_sink : by_msn;
}

// Finds the entry whose message has this MSN of the Send Queue, by counting back from the next MSN to be sent.
std::optional<std::uint64_t> Transmitter::find_send(Msn msn) const {
  const auto ahead = static_cast<std::uint32_t>(sent_.send_msn) - static_cast<std::uint32_t>(msn);
  std::uint32_t seen = 0;
  // The message that is sent next, a part of which may be sent already, has the MSN sent_.send_msn.
  if (ahead == 0) {
    if (sent_.sequence >= queue_.tail() || sent_.sequence < queue_.head()) return std::nullopt;
    return uses_queue(queue_.at(sent_.sequence), kSendQueue) ? std::optional(sent_.sequence) : std::nullopt;
  }
  for (std::uint64_t sequence = sent_.sequence; sequence-- > queue_.head();) {
    if (uses_queue(queue_.at(sequence), kSendQueue) && ++seen == ahead) return sequence;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Transmitter::find_terminated(const Terminate& terminate) const {
  if (!terminate.has_ddp_header) return std::nullopt;
  const Octets headers = Octets(terminate.ddp_header).first(terminate.ddp_header_size);
  if (headers.size() == ddp::kTaggedHeaderSize) {
    const auto header = ddp::decode_tagged(headers);
    if (!header || decode_control(header->ulp_control).opcode != Opcode::write) return std::nullopt;
    const std::uint64_t length = std::max<std::uint64_t>(terminate.segment_length, ddp::kTaggedHeaderSize);
    return find_write(*header, length - ddp::kTaggedHeaderSize);
  }
  const auto header = ddp::decode_untagged(headers);
  if (!header) return std::nullopt;
  if (header->queue == kReadRequestQueue) return find_request(header->msn, terminate);
  return header->queue == kSendQueue ? find_send(header->msn) : std::nullopt;
}

std::optional<std::uint64_t> Transmitter::oldest_sent() const {
  for (std::uint64_t sequence = queue_.head(); sequence < queue_.tail(); ++sequence) {
    if (queue_.at(sequence).done) continue;
    const bool begun =
        sequence < sent_.sequence || (sequence == sent_.sequence && (sent_.offset > 0 || sent_.immediate_next));
    return begun ? std::optional(sequence) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace uiw::rdmap
