// SPDX-License-Identifier: MIT
// Builds the next segment of the message at a cursor: its DDP and RDMAP headers (RFC 5041 section 4, RFC 5040 section
// 4, RFC 7306 sections 5.2.1, 5.2.2 and 6.2), and its payload from registered memory, which is looked up again for each
// segment. Called with the sender's lock held. No errors but those of append().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ddp/stag_table.h"
#include "mpa/framer.h"
#include "rdmap/transmit/sender_state.h"

namespace uiw::rdmap {

// One DDP segment: its headers, and how many octets of the message follow.
struct Segment {
  std::array<std::byte, kMaxHeaders> header;
  std::size_t header_size = 0;
  std::uint32_t payload = 0;
  bool last = true;
  MemorySegment response{};  // the payload of a read response
  ddp::Hold source;          // the access to the memory that `response` points to
  // Why the memory of a response may not be used any more; `none` where it may, but is not accessible.
  ddp::AccessError refused = ddp::AccessError::none;
};

class SegmentBuilder {
 public:
  // All arguments must remain live as long as the builder. `stream` identifies the stream for windows of type 2.
  SegmentBuilder(SenderState& state, const ddp::StagTable& stags, const void* domain, const void* stream)
      : state_(state), stags_(stags), domain_(domain), stream_(stream) {}

  void start(const mpa::Framer& framer, std::size_t mulpdu);
  // FPDUs to a uiw may be longer. Not while TCP has a part of an FPDU that is built again.
  void follow_peer() {
    const std::size_t to_uiw = state_.rules->mulpdu_to_uiw;
    if (mulpdu_ != to_uiw && state_.peer() == mpa::PeerKind::uiw) set_mulpdu(to_uiw);
  }
  bool copies() const { return framer_.copies(); }
  void sent(std::size_t octets) { framer_.sent(octets); }
  std::size_t mulpdu() const { return mulpdu_; }

  // Adds the next segment of the message at the cursor to the batch. bad_address: its memory is not registered any more
  // or not accessible; nothing was added.
  mpa::Framer::Result append(const Cursor& at, Segment& segment, mpa::Batch& batch);

 private:
  void set_mulpdu(std::size_t mulpdu);
  bool build(const Cursor& at, Segment& segment);
  // Of the ready-to-receive message.
  Stag rtr_stag() const { return state_.rules->hello ? kHello : Stag{0}; }
  std::uint64_t rtr_offset() const { return state_.rules->hello ? kHelloOffset : 0; }
  void build_empty_read(const Cursor& at, Segment& segment, Stag source, std::uint64_t offset);
  bool build_response(const Cursor& at, Segment& segment);
  void build_work(const Cursor& at, Segment& segment);
  void build_tagged(Segment& segment, Opcode opcode, Stag stag, std::uint64_t offset, std::uint32_t left);
  void build_untagged(Segment& segment, Opcode opcode, std::uint32_t queue, Msn msn, std::uint32_t word,
                      std::uint32_t offset, std::uint32_t left);
  std::uint32_t payload_of(std::size_t header, std::uint32_t left) const;
  // The number of pieces, or kUnavailable. (A std::optional would go through memory here, and the processor waits where
  // two small stores are loaded as one.)
  static constexpr std::size_t kUnavailable = ~std::size_t{0};
  std::size_t payload(const Cursor& at, Segment& segment, MemorySegment* pieces);
  std::size_t gather(const Cursor& at, std::uint32_t& size, MemorySegment* pieces);

  SenderState& state_;
  const ddp::StagTable& stags_;
  const void* domain_;
  const void* stream_;
  mpa::Framer framer_;
  std::size_t mulpdu_ = 0;
};

}  // namespace uiw::rdmap
