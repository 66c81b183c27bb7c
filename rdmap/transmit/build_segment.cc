// SPDX-License-Identifier: MIT
// Builds the next segment to be sent: its headers, and the list of memory that has its payload.
#include "rdmap/transmit/transmitter.h"

#include "rdmap/atomic.h"
#include "rdmap/scatter_gather.h"
#include "rdmap/transmit/disorder.h"

namespace uiw::rdmap {

namespace {

Opcode send_opcode(const SendWork& work) {
  if (work.has_immediate) return work.solicited ? Opcode::send_immediate_solicited : Opcode::send_immediate;
  if (work.invalidates) return work.solicited ? Opcode::send_solicited_invalidate : Opcode::send_invalidate;
  return work.solicited ? Opcode::send_solicited : Opcode::send;
}

std::uint32_t send_word(const SendWork& work) {
  if (work.has_immediate) return word_of(work.immediate);
  return work.invalidates ? static_cast<std::uint32_t>(work.invalidate) : 0;
}

}  // namespace

void Transmitter::set_mulpdu(std::size_t mulpdu) {
  mulpdu_ = mulpdu;
  segment_payload_ = payload_of(ddp::kUntaggedHeaderSize, ~0U);
}

// The payload size of the next segment. `header`: size of its DDP header; `left`: octets of the message still to send.
std::uint32_t Transmitter::payload_of(std::size_t header, std::uint32_t left) const {
  std::size_t most = mulpdu_ - header;
  if (left <= most) return left;
  constexpr std::size_t kPage = 4096;
  if (most < 2 * kPage) return static_cast<std::uint32_t>(most);
  // The payload of long segments, except the last one, is a multiple of a page, so that the copies on both sides stay
  // aligned. The segments of a message have about the same length, so that one side copies a segment while the other
  // side copies the segment before it.
  most -= most % kPage;
  const std::size_t segments = (left + most - 1) / most;
  const std::size_t even = (left + segments - 1) / segments;
  return static_cast<std::uint32_t>((even + kPage - 1) / kPage * kPage);
}

void Transmitter::build_tagged(Segment& segment, Opcode opcode, Stag stag, std::uint64_t offset, std::uint32_t left) {
  segment.payload = payload_of(ddp::kTaggedHeaderSize, left);
  segment.last = segment.payload == left;
  encode(ddp::TaggedHeader{segment.last, control_of(opcode), stag, offset}, segment.header);
  segment.header_size = ddp::kTaggedHeaderSize;
}

void Transmitter::build_untagged(Segment& segment, Opcode opcode, std::uint32_t queue, Msn msn, std::uint32_t word,
                                 std::uint32_t offset, std::uint32_t left) {
  segment.payload = payload_of(ddp::kUntaggedHeaderSize, left);
  segment.last = segment.payload == left;
  encode(ddp::UntaggedHeader{segment.last, control_of(opcode), word, queue, msn, offset}, segment.header);
  segment.header_size = ddp::kUntaggedHeaderSize;
}

// For all sources but posted work. False if the memory of a response is not available.
bool Transmitter::build(const Cursor& at, Segment& segment) {
  switch (at.source) {
    case Cursor::Source::none:
    case Cursor::Source::work: break;
    case Cursor::Source::rtr: {
      const Stag stag = rules_->hello ? kHello : Stag{0};
      const std::uint64_t offset = rules_->hello ? kHelloOffset : 0;
      switch (rules_->rtr) {
        case mpa::ReadyToReceive::none:
        case mpa::ReadyToReceive::fulpdu: segment.header_size = 0; break;
        case mpa::ReadyToReceive::write: build_tagged(segment, Opcode::write, stag, offset, 0); break;
        case mpa::ReadyToReceive::read: build_empty_read(at, segment, stag, offset); break;
      }
      break;
    }
    case Cursor::Source::probe: build_empty_read(at, segment, Stag{0}, 0); break;
    case Cursor::Source::report: {
      const ReportQueue::Report& report = reports_.at(at.reports);
      const std::uint64_t offset = report.occasion == kHello ? kHelloOffset : encode(report.progress);
      build_tagged(segment, Opcode::write, report.occasion, offset, 0);
      break;
    }
    case Cursor::Source::terminate: {
      build_untagged(segment, Opcode::terminate, kTerminateQueue, Msn{1}, 0, 0, 0);
      segment.header_size += encode(*terminate_, segment.header + segment.header_size);
      break;
    }
    case Cursor::Source::response: return build_response(at, segment);
  }
  return true;
}

// Builds an RDMA Read Request for no octets.
void Transmitter::build_empty_read(const Cursor& at, Segment& segment, Stag source, std::uint64_t offset) {
  ReadRequest request;
  request.source_stag = source;
  request.source_offset = offset;
  build_untagged(segment, Opcode::read_request, kReadRequestQueue, at.read_msn, 0, 0, 0);
  encode(request, segment.header + segment.header_size);
  segment.header_size += kReadRequestSize;
}

// Carries out what the peer has requested; an Atomic Write has been carried out by the receiver.
bool Transmitter::carry_out(const AtomicRequest& request, std::byte* memory, std::uint64_t length,
                            std::uint64_t& original) {
  if (request.opcode == AtomicOpcode::flush) {
    // For all who read the memory nothing is left to do: what came before the request was placed before it was taken.
    return !flush_of(request.operands).persistent || length == 0 || host_.make_persistent(memory, length);
  }
  if (rules_->watched) return host_.execute(request, memory, original);
  return execute(request.opcode, request.operands, memory, original);
}

bool Transmitter::build_response(const Cursor& at, Segment& segment) {
  SharedReads::Inbound& inbound = reads_->inbound.at(at.response);
  if (auto* atomic = std::get_if<SharedReads::AtomicInbound>(&inbound.request)) {
    const AtomicRequest& request = atomic->request;
    if (!atomic->executed) {
      const AtomicTarget wanted = target_of(request, memory_);
      const ddp::Hold target = memory_.hold(request.stag, wanted.offset, wanted.length, wanted.rights);
      segment.refused = target.error();
      if (segment.refused != ddp::AccessError::none) return false;
      if (!carry_out(request, target.memory(), wanted.length, atomic->original)) return false;
      atomic->executed = true;
    }
    build_untagged(segment, Opcode::atomic_response, kAtomicResponseQueue, at.atomic_msn, 0, 0, 0);
    encode(AtomicResponse{request.identifier, atomic->original}, segment.header + segment.header_size);
    segment.header_size += kAtomicResponseSize;
    return true;
  }
  const ReadRequest& request = std::get<ReadRequest>(inbound.request);
  const std::uint32_t left = request.size - at.offset;
  build_tagged(segment, Opcode::read_response, request.sink_stag, request.sink_offset + at.offset, left);
  if (segment.payload > 0) {
    // The source is looked up for every segment, since the program may deregister it in the middle of a long response.
    segment.source =
        memory_.hold(request.source_stag, request.source_offset + at.offset, segment.payload, ddp::kRemoteRead);
    segment.refused = segment.source.error();
    if (segment.refused != ddp::AccessError::none) return false;
    segment.response = {segment.source.memory(), segment.payload};
  }
  return true;
}

// Builds the segment of an RDMA Write whose octets are sent in another order.
void Transmitter::build_piece(const Cursor& at, Segment& segment, Stag target) {
  const SendWork& work = queue_.at(at.sequence);
  if (work.length == 0) return build_tagged(segment, Opcode::write, target, work.remote_offset, 0);
  const Piece piece = piece_at(work.remote_offset, work.length, at.offset, rules_->disorder + at.sequence);
  build_tagged(segment, Opcode::write, target, work.remote_offset + piece.from, piece.size);
  segment.from = piece.from;
  // A piece that is longer than a segment ends between two words, too.
  if (segment.payload < piece.size) {
    const auto beyond = static_cast<std::uint32_t>((work.remote_offset + piece.from + segment.payload) % kWord);
    if (beyond < segment.payload) segment.payload -= beyond;
  }
  if (at.offset + segment.payload == work.length) return;
  segment.last = false;
  ddp::clear_last(segment.header);
}

void Transmitter::build_work(const Cursor& at, Segment& segment) {
  const SendWork& work = queue_.at(at.sequence);
  segment.from = at.offset;
  const std::uint32_t left = work.length - at.offset;
  if (work.kind == WorkKind::immediate || at.immediate_next) {
    build_untagged(segment, work.solicited ? Opcode::immediate_solicited : Opcode::immediate, kSendQueue, at.send_msn,
                   0, 0, 0);
    encode(work.immediate, segment.header + segment.header_size);
    segment.header_size += kImmediateSize;
    return;
  }
  switch (work.kind) {
    case WorkKind::send:
      build_untagged(segment, send_opcode(work), kSendQueue, at.send_msn, send_word(work), at.offset, left);
      break;
    case WorkKind::write: {
      // A Write of no octets from the program must not look like a message of uiw's own. So an STag that uiw uses for
      // such messages (is_own()) is replaced by 0. The STag of a Write of no octets has no effect otherwise.
      const Stag target = work.length == 0 && is_own(work.remote_stag) ? Stag{0} : work.remote_stag;
      if (rules_->disorder != 0) [[unlikely]] {
        build_piece(at, segment, target);
      } else {
        build_tagged(segment, Opcode::write, target, work.remote_offset + at.offset, left);
      }
      break;
    }
    case WorkKind::read:
      build_untagged(segment, Opcode::read_request, kReadRequestQueue, at.read_msn, 0, 0, 0);
      encode(ReadRequest{work.sink_stag, work.sink_offset, work.length, work.remote_stag, work.remote_offset},
             segment.header + segment.header_size);
      segment.header_size += kReadRequestSize;
      break;
    case WorkKind::atomic:
      build_untagged(segment, Opcode::atomic_request, kReadRequestQueue, at.read_msn, 0, 0, 0);
      encode(AtomicRequest{work.atomic, static_cast<std::uint32_t>(at.sequence), work.remote_stag, work.remote_offset,
                           queue_.operands(at.sequence)},
             segment.header + segment.header_size);
      segment.header_size += kAtomicRequestSize;
      break;
    case WorkKind::choice: build_tagged(segment, Opcode::write, kSharedQueue, work.remote_offset, 0); break;
    case WorkKind::immediate:
    case WorkKind::local_invalidate:
    case WorkKind::bind: break;
  }
}

// Finds the payload of the segment. If the payload is in too many memory segments, the FPDU gets only a part of it.
std::size_t Transmitter::payload(const Cursor& at, Segment& segment, MemorySegment* pieces) {
  if (segment.payload == 0) return 0;
  if (at.source == Cursor::Source::response) {
    pieces[0] = segment.response;
    return 1;
  }
  const std::uint32_t whole = segment.payload;
  const std::size_t count = gather(memory_, queue_, at.sequence, segment.from, segment.payload, pieces);
  if (segment.payload != whole) {
    segment.last = false;
    ddp::clear_last(segment.header);
  }
  return count;
}

static_assert(kMaxHeaders <= mpa::Framer::kHeaderRoom);

mpa::Framer::Result Transmitter::append(const Cursor& at, Segment& segment, mpa::Batch& batch) {
  segment.header = mpa::Framer::header_room(batch);
  if (at.source == Cursor::Source::work) {
    build_work(at, segment);
  } else if (!build(at, segment)) {
    return mpa::Framer::Result::bad_address;
  }
  MemorySegment pieces[kMaxPieces];
  const std::size_t count = payload(at, segment, pieces);
  if (count == kUnavailable) return mpa::Framer::Result::bad_address;
  return framer_.add(batch, segment.header_size, {pieces, count}, segment.source.counted());
}

}  // namespace uiw::rdmap
