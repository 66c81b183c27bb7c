// SPDX-License-Identifier: MIT
// What are the octets of the next segment: DDP and RDMAP headers (RFC 5041 section 4, RFC 5040 section 4, RFC 7306
// sections 5.2.1, 5.2.2 and 6.2) and the pieces of memory behind them.
#include <algorithm>

#include "rdmap/atomic.h"
#include "rdmap/transmitter.h"

namespace uiw::rdmap {

namespace {

constexpr std::size_t kMaxPieces = 64;  // of one FPDU; the message goes on in the next

Opcode send_opcode(const SendWork& work) {
  if (work.has_immediate) return Opcode::send_immediate;
  if (work.invalidates) return work.solicited ? Opcode::send_solicited_invalidate : Opcode::send_invalidate;
  return work.solicited ? Opcode::send_solicited : Opcode::send;
}

std::uint32_t send_word(const SendWork& work) {
  if (work.has_immediate) return word_of(work.immediate);
  return work.invalidates ? static_cast<std::uint32_t>(work.invalidate) : 0;
}

}  // namespace

std::uint32_t Transmitter::payload_of(std::size_t header, std::uint32_t left) const {
  std::size_t most = mulpdu_ - header;
  if (left <= most) return left;
  // Whole pages where segments are large: the copies on both sides stay aligned.
  constexpr std::size_t kPage = 4096;
  if (most >= 2 * kPage) most -= most % kPage;
  return static_cast<std::uint32_t>(most);
}

void Transmitter::build_tagged(Segment& segment, Opcode opcode, Stag stag, std::uint64_t offset, std::uint32_t left,
                               unsigned bits) {
  segment.payload = payload_of(ddp::kTaggedHeaderSize, left);
  segment.last = segment.payload == left;
  const auto control = static_cast<std::uint8_t>(control_of(opcode) | bits);
  encode(ddp::TaggedHeader{segment.last, control, stag, offset}, segment.header.data());
  segment.header_size = ddp::kTaggedHeaderSize;
}

void Transmitter::build_untagged(Segment& segment, Opcode opcode, std::uint32_t queue, Msn msn, std::uint32_t word,
                                 std::uint32_t offset, std::uint32_t left, bool solicited) {
  segment.payload = payload_of(ddp::kUntaggedHeaderSize, left);
  segment.last = segment.payload == left;
  encode(ddp::UntaggedHeader{segment.last, control_of(opcode, solicited), word, queue, msn, offset},
         segment.header.data());
  segment.header_size = ddp::kUntaggedHeaderSize;
}

// False if a read response's source is registered no more.
bool Transmitter::build(const Cursor& cursor, Segment& segment) {
  switch (cursor.source) {
    case Source::none: break;
    case Source::rtr:
      if (rtr_ == mpa::ReadyToReceive::fulpdu) {
        segment.header_size = 0;
        break;
      }
      if (rtr_ == mpa::ReadyToReceive::write) {
        build_tagged(segment, Opcode::write, Stag{0}, 0, 0);
        break;
      }
      [[fallthrough]];  // a Read of no octets too
    case Source::probe:
      build_untagged(segment, Opcode::read_request, kReadRequestQueue, cursor.read_msn, 0, 0, 0);
      encode(ReadRequest{}, segment.header.data() + segment.header_size);
      segment.header_size += kReadRequestSize;
      break;
    case Source::notice:
      build_tagged(segment, Opcode::write, notice(cursor.notices).occasion, encode(notice(cursor.notices).dealt_with),
                   0, kNoticeBit);
      break;
    case Source::terminate: {
      build_untagged(segment, Opcode::terminate, kTerminateQueue, cursor.terminate_msn, 0, 0, 0);
      segment.header_size += encode(*terminate_, segment.header.data() + segment.header_size);
      break;
    }
    case Source::response: return build_response(cursor, segment);
    case Source::work: build_work(cursor, segment); break;
  }
  return true;
}

bool Transmitter::build_response(const Cursor& cursor, Segment& segment) {
  SharedReads::Inbound& inbound = reads_->inbound.at(cursor.response);
  if (auto* atomic = std::get_if<SharedReads::AtomicInbound>(&inbound.request)) {
    const AtomicRequest& request = atomic->request;
    if (!atomic->executed) {
      const ddp::Hold target =
          stags_.hold(request.stag, domain_, request.offset, kAtomicSize, ddp::kRemoteAtomic, stream_);
      if (target.error() != ddp::AccessError::none ||
          !execute(request.opcode, request.operands, target.memory(), atomic->original)) {
        return false;
      }
      atomic->executed = true;
    }
    build_untagged(segment, Opcode::atomic_response, kAtomicResponseQueue, cursor.atomic_msn, 0, 0, 0);
    encode(AtomicResponse{request.identifier, atomic->original}, segment.header.data() + segment.header_size);
    segment.header_size += kAtomicResponseSize;
    return true;
  }
  const ReadRequest& request = std::get<ReadRequest>(inbound.request);
  const std::uint32_t left = request.size - cursor.offset;
  build_tagged(segment, Opcode::read_response, request.sink_stag, request.sink_offset + cursor.offset, left);
  if (segment.payload > 0) {
    // Looked up for every segment: the program may deregister in the middle of a long answer.
    segment.source = stags_.hold(request.source_stag, domain_, request.source_offset + cursor.offset, segment.payload,
                                 ddp::kRemoteRead, stream_);
    if (segment.source.error() != ddp::AccessError::none) return false;
    segment.response = {segment.source.memory(), segment.payload};
  }
  return true;
}

void Transmitter::build_work(const Cursor& cursor, Segment& segment) {
  const SendWork& work = queue_.at(cursor.sequence);
  const std::uint32_t left = work.length - cursor.offset;
  if (work.kind == WorkKind::immediate || cursor.second) {
    build_untagged(segment, work.solicited ? Opcode::immediate_solicited : Opcode::immediate, kSendQueue,
                   cursor.send_msn, 0, 0, 0);
    std::copy(work.immediate.begin(), work.immediate.end(), segment.header.data() + segment.header_size);
    segment.header_size += kImmediateSize;
    return;
  }
  switch (work.kind) {
    case WorkKind::send:
      build_untagged(segment, send_opcode(work), kSendQueue, cursor.send_msn, send_word(work), cursor.offset, left,
                     work.has_immediate && work.solicited);
      break;
    case WorkKind::write:
      build_tagged(segment, Opcode::write, work.remote_stag, work.remote_offset + cursor.offset, left);
      break;
    case WorkKind::read:
      build_untagged(segment, Opcode::read_request, kReadRequestQueue, cursor.read_msn, 0, 0, 0);
      encode(ReadRequest{work.sink_stag, work.sink_offset, work.length, work.remote_stag, work.remote_offset},
             segment.header.data() + segment.header_size);
      segment.header_size += kReadRequestSize;
      break;
    case WorkKind::atomic:
      build_untagged(segment, Opcode::atomic_request, kReadRequestQueue, cursor.read_msn, 0, 0, 0);
      encode(AtomicRequest{work.atomic, static_cast<std::uint32_t>(cursor.sequence), work.remote_stag,
                           work.remote_offset, queue_.operands(cursor.sequence)},
             segment.header.data() + segment.header_size);
      segment.header_size += kAtomicRequestSize;
      break;
    case WorkKind::immediate:
    case WorkKind::local_invalidate:
    case WorkKind::bind: break;
  }
}

// The pieces of memory that hold the next `size` octets of the work in progress; fewer octets where they are many pieces.
// Empty if some of it is not registered any more as it was.
std::optional<std::size_t> Transmitter::gather(const Cursor& cursor, std::uint32_t& size, MemorySegment* pieces) {
  const SendWork& work = queue_.at(cursor.sequence);
  if (work.inlined) {
    pieces[0] = {queue_.inline_room(cursor.sequence) + cursor.offset, size};
    return 1;
  }
  if (work.sges == 1) {
    const ddp::Access source =
        find(stags_, *queue_.sge_room(cursor.sequence), domain_, cursor.offset, size, ddp::kLocalRead);
    if (source.error != ddp::AccessError::none) return std::nullopt;
    pieces[0] = {source.memory, size};
    return 1;
  }
  std::size_t count = 0;
  std::uint32_t left = size, offset = cursor.offset;
  for (const Sge& sge : queue_.sges(cursor.sequence)) {
    if (left == 0 || count == kMaxPieces) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint32_t take = std::min(sge.length - offset, left);
    const ddp::Access source = find(stags_, sge, domain_, offset, take, ddp::kLocalRead);
    if (source.error != ddp::AccessError::none) return std::nullopt;
    pieces[count++] = {source.memory, take};
    offset = 0;
    left -= take;
  }
  size -= left;
  return count;
}

// Of the segment; empty if it cannot be had. Very many small pieces end the FPDU early.
std::optional<std::size_t> Transmitter::payload(const Cursor& cursor, Segment& segment, MemorySegment* pieces) {
  if (segment.payload == 0) return 0;
  if (cursor.source == Source::response) {
    pieces[0] = segment.response;
    return 1;
  }
  std::uint32_t size = segment.payload;
  const auto count = gather(cursor, size, pieces);
  if (size != segment.payload) {
    segment.payload = size;
    segment.last = false;
    segment.header[0] &= ~std::byte{0x40};
  }
  return count;
}

// Puts the next segment of the message at the cursor into the batch; bad_address where its memory is gone.
mpa::Framer::Result Transmitter::append(const Cursor& cursor, Segment& segment, mpa::Batch& batch) {
  if (!build(cursor, segment)) return mpa::Framer::Result::bad_address;
  MemorySegment pieces[kMaxPieces];
  const auto count = payload(cursor, segment, pieces);
  if (!count) return mpa::Framer::Result::bad_address;
  return framer_.add(batch, Octets(segment.header).first(segment.header_size), {pieces, *count},
                     segment.source.counted());
}

}  // namespace uiw::rdmap
