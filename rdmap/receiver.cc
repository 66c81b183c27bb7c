// SPDX-License-Identifier: MIT
#include "rdmap/receiver.h"

#include <algorithm>
#include <utility>

#include "base/guarded_copy.h"
#include "rdmap/atomic.h"
#include "rdmap/terminate.h"

namespace uiw::rdmap {

Receiver::Verdict Receiver::ulpdu(Octets piece, std::size_t offset, std::size_t total) {
  if (offset == 0) {
    const Verdict verdict = begin(piece, total);
    if (verdict != Verdict::go_on) return verdict;
  } else if (!place(piece)) {
    return Verdict::stop;
  }
  if (offset + piece.size() == total && segment_.target != Target::none) return end_segment();
  return Verdict::go_on;
}

ddp::Hold Receiver::hold(Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) {
  return memory_.hold(known_, stag, offset, length, rights);
}

ddp::Access Receiver::find(Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) {
  const ddp::Hold found = hold(stag, offset, length, rights);
  if (found.error() == ddp::AccessError::none && (denied_.load(std::memory_order_relaxed) & rights) != 0) {
    return {nullptr, ddp::AccessError::rights};
  }
  return {found.memory(), found.error()};
}

Receiver::Verdict Receiver::begin(Octets ulpdu, std::size_t total) {
  segment_.target = Target::none;
  // An empty FPDU is a ready-to-receive message (RFC 6581 section 9): it must be the first message.
  if (total == 0 && heard_) return fail_cut_short();
  Verdict verdict = Verdict::go_on;
  if (total > 0) {
    const bool tagged = ddp::decode_control(ulpdu[0]).tagged;
    verdict = tagged ? begin_tagged(ulpdu, total) : begin_untagged(ulpdu, total);
  }
  if (verdict == Verdict::stop || heard_) return verdict;
  heard_ = true;                // also if the message is a Send that waits for a receive
  learn(mpa::PeerKind::other);  // no effect if the message was a hello, which says that the peer is uiw
  return verdict;
}

void Receiver::learn(mpa::PeerKind peer) {
  if (!std::exchange(learns_, false)) return;
  host_.peer_known(peer, rules_->rtr_to_come() != mpa::ReadyToReceive::none);
}

// Handles an RDMA Write of no octets to one of uiw's own STags (rdmap_format.h). False if the peer is not uiw; then the
// message is an ordinary Write. A message of uiw with an STag that this end does not know has no effect.
bool Receiver::take_own(const ddp::TaggedHeader& header) {
  if (is_hello(header.stag, header.offset)) learn(mpa::PeerKind::uiw);
  if (!peer_is_uiw()) return false;
  const bool rnr = header.stag == kRnrReport;
  if (rnr || header.stag == kProgressReport) {
    peer_waits_.store(rnr, std::memory_order_relaxed);
    host_.progress_reported(decode_progress(header.offset));
  } else if (header.stag == kReportsWanted) {
    host_.reports_wanted();
  } else if (header.stag == kSharedQueue && rules_->xrc_target && !message_.begun) {
    choose_domain(nullptr);  // also if there is no memory to choose one
    choose_domain(host_.choose_queue(header.offset));
  }
  return true;
}

Receiver::Verdict Receiver::begin_tagged(Octets ulpdu, std::size_t total) {
  const auto decoded = ddp::decode_tagged(ulpdu);
  if (!decoded) return fail_cut_short();
  if (ddp::decode_control(ulpdu[0]).version != ddp::kDdpVersion) {
    return fail(ulpdu, total, ddp::TaggedError::version);
  }
  const ddp::TaggedHeader& header = *decoded;
  const Control control = decode_control(header.ulp_control);
  if (control.version != kRdmapVersion) {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::version});
  }
  const std::size_t size = total - ddp::kTaggedHeaderSize;
  segment_.last = header.last;
  if (control.opcode == Opcode::write) {
    const Write before = write_;
    write_.length = (write_.begun ? write_.length : 0) + static_cast<std::uint32_t>(size);
    write_.begun = !header.last;
    segment_.target = Target::nothing;
    if (size > 0) {
      if (!takes(ddp::kRemoteWrite)) {
        return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
      }
      const ddp::Access access = find(header.stag, header.offset, size, ddp::kRemoteWrite);
      if (access.error != ddp::AccessError::none) return fail(ulpdu, total, tagged_error(access.error));
      std::copy_n(ulpdu.begin(), ddp::kTaggedHeaderSize, segment_.header.begin());
      segment_.total = total;
      segment_.write_stag = header.stag;
      segment_.write_offset = header.offset;
      segment_.target = write_target_;
    } else if (!header.last) {
      return fail(ulpdu, total, ddp::TaggedError::base_or_bounds);
    } else if (is_own(header.stag) && take_own(header)) {
      segment_.last = false;  // so end_segment() does not count this message as a Write of the program
      write_ = before;        // Immediate Data that follows belongs to the Write before this message
    } else if (!heard_ && rules_->rtr_to_come() == mpa::ReadyToReceive::write) {
      segment_.last = false;
    }
  } else if (control.opcode == Opcode::read_response) {
    // A Read Response is placed only where the oldest outstanding Read says, and in order.
    if (reads_->outstanding.empty() || reads_->outstanding.front().atomic) {
      return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
    }
    SharedReads::Outstanding& read = reads_->outstanding.front();
    // STag and offset of a message of no octets are not checked (RFC 5041 section 5.2).
    const bool has_place = size > 0 || !header.last || read.received > 0;
    if (has_place && read.sink_stag != header.stag) return fail(ulpdu, total, ddp::TaggedError::invalid_stag);
    // The kernel's siw puts octets into some answers to Reads of no octets. If uiw has added the Read itself
    // (is_own()), the octets are dropped, so the answer may have any length.
    const bool fits =
        read.is_own() || (size <= read.size - read.received && header.last == (size == read.size - read.received));
    const bool in_place = !has_place || header.offset == read.sink_offset + read.received;
    if (!in_place || !fits || (size == 0 && !header.last)) {
      return fail(ulpdu, total, ddp::TaggedError::base_or_bounds);
    }
    if (peer_waits()) peer_waits_.store(false, std::memory_order_relaxed);  // an answer makes an RNR report out of date
    if (read.received == 0) read_at_ = {};
    segment_.sges = {read.sges, read.sge_count};
    segment_.sge_domain = memory_.domain();
    read.received += static_cast<std::uint32_t>(size);
    segment_.target = read.is_own() ? Target::own_response : response_target_;
    if (read.is_own() && size > 0) host_.answer_dropped(size);
  } else {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
  }
  return place(ulpdu.subspan(ddp::kTaggedHeaderSize)) ? Verdict::go_on : Verdict::stop;
}

Receiver::Verdict Receiver::begin_untagged(Octets ulpdu, std::size_t total) {
  const auto decoded = ddp::decode_untagged(ulpdu);
  if (!decoded) return fail_cut_short();
  if (ddp::decode_control(ulpdu[0]).version != ddp::kDdpVersion) {
    return fail(ulpdu, total, ddp::UntaggedError::version);
  }
  const ddp::UntaggedHeader& header = *decoded;
  const Control control = decode_control(header.ulp_control);
  if (header.queue > kAtomicResponseQueue) return fail(ulpdu, total, ddp::UntaggedError::invalid_queue);
  if (control.version != kRdmapVersion) {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::version});
  }
  if (is_send(control.opcode) && header.queue == kSendQueue && (!is_send_immediate(control.opcode) || peer_is_uiw())) {
    return begin_send(header, control, ulpdu, total);
  }
  if (control.opcode == Opcode::read_request && header.queue == kReadRequestQueue) {
    return read_request(header, ulpdu, total);
  }
  if (is_immediate(control.opcode) && header.queue == kSendQueue) {
    return immediate(header, control.opcode, ulpdu, total);
  }
  if (control.opcode == Opcode::atomic_request && header.queue == kReadRequestQueue) {
    return atomic_request(header, ulpdu, total);
  }
  if (control.opcode == Opcode::atomic_response && header.queue == kAtomicResponseQueue) {
    return atomic_response(header, ulpdu, total);
  }
  if (control.opcode == Opcode::terminate && header.queue == kTerminateQueue) {
    // A Terminate is one segment and the only message of its queue (RFC 5040 sections 5.1 and 7.2).
    if (header.msn != Msn{1}) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
    if (header.offset != 0) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
    if (!header.last) return fail(ulpdu, total, ddp::UntaggedError::too_long);
    peer_terminate_ = decode_terminate(ulpdu.subspan(ddp::kUntaggedHeaderSize));
    if (!peer_terminate_) peer_terminate_ = Terminate{};
    return Verdict::stop;
  }
  return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
}

Receiver::Verdict Receiver::begin_send(const ddp::UntaggedHeader& header, Control control, Octets ulpdu,
                                       std::size_t total) {
  if (header.msn != send_msn_) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
  if (header.offset != message_.received) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  if (message_.begun && control != message_.control) {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
  }
  const std::size_t size = total - ddp::kUntaggedHeaderSize;
  if (size == 0 && !header.last) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  const bool bare = size == 0 && header.last && control.opcode == Opcode::send;
  if (!message_.begun && rules_->rtr_to_come() == mpa::ReadyToReceive::fulpdu && !heard_ && bare) {
    send_msn_ = next(send_msn_);
    return Verdict::go_on;
  }
  if (!message_.begun) {
    message_.lost = !host_.next_receive(message_.buffer);
    if (message_.lost && !has_queue()) return fail(ulpdu, total, ddp::UntaggedError::invalid_queue);
    if (message_.lost && rules_->reliable) return Verdict::pause;
    message_.begun = true;
    message_.at = {};
  }
  write_.length = 0;
  message_.control = control;
  message_.word = header.ulp_word;
  if (!message_.lost && size > message_.buffer.length - message_.received) {
    abandon(Status::local_length);
    return fail(ulpdu, total, ddp::UntaggedError::too_long);
  }
  std::copy_n(ulpdu.begin(), ddp::kUntaggedHeaderSize, segment_.header.begin());
  segment_.total = total;
  segment_.last = header.last;
  segment_.sges = message_.buffer.sges;
  segment_.sge_domain = message_.buffer.domain;
  message_.received += static_cast<std::uint32_t>(size);
  segment_.target = message_.lost ? Target::lost_send : Target::send;
  return place(ulpdu.subspan(ddp::kUntaggedHeaderSize)) ? Verdict::go_on : Verdict::stop;
}

Receiver::Verdict Receiver::read_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total) {
  if (header.msn != read_msn_) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
  if (header.offset != 0) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  const auto decoded = decode_read_request(ulpdu.subspan(ddp::kUntaggedHeaderSize));
  if (!decoded || total != ddp::kUntaggedHeaderSize + kReadRequestSize || !header.last) {
    return fail(ulpdu, total, ddp::UntaggedError::too_long);
  }
  const ReadRequest& request = *decoded;
  if (request.size > 0) {
    if (!takes(ddp::kRemoteRead)) {
      return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
    }
    const ddp::Access access = find(request.source_stag, request.source_offset, request.size, ddp::kRemoteRead);
    if (access.error != ddp::AccessError::none) {
      return fail(ulpdu, total, {ErrorType::remote_protection, protection_error(access.error)}, true);
    }
    std::uint64_t end;
    if (__builtin_add_overflow(request.sink_offset, std::uint64_t{request.size}, &end)) {
      return fail(ulpdu, total, {ErrorType::remote_protection, ErrorCode::wrap}, true);
    }
  }
  const bool ready_to_receive = !heard_ && request.size == 0 && rules_->rtr_to_come() == mpa::ReadyToReceive::read;
  if (ready_to_receive && is_hello(request.source_stag, request.source_offset)) learn(mpa::PeerKind::uiw);
  return take_request(ulpdu, total, request, ready_to_receive);
}

// Whether the peer may have another request outstanding, by the negotiated IRD (RFC 5040 section 6.1, RFC 7306 section
// 5.2).
bool Receiver::has_room_for_request() const {
  const std::uint64_t answering = reads_->answering.load(std::memory_order_acquire);
  const std::uint64_t open = reads_->inbound.pushed() - answering;
  return open < reads_->inbound_limit + (rtr_read_ && answering == 0 ? 1U : 0U);
}

// Accepts a request of the peer, unless it exceeds the negotiated IRD or there is no memory.
Receiver::Verdict Receiver::take_request(Octets ulpdu, std::size_t total,
                                         const std::variant<ReadRequest, SharedReads::AtomicInbound>& request,
                                         bool ready_to_receive) {
  if (ready_to_receive) rtr_read_ = true;
  const SharedReads::Inbound inbound{request, progress()};
  if (!has_room_for_request()) return fail(ulpdu, total, ddp::UntaggedError::no_buffer);
  if (!reads_->inbound.push(inbound)) {
    return fail(ulpdu, total, kCatastrophicStream);
  }
  read_msn_ = next(read_msn_);
  host_.read_requested(SharedReads::is_probe(inbound));
  return Verdict::go_on;
}

Receiver::Verdict Receiver::atomic_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total) {
  if (header.msn != read_msn_) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
  if (header.offset != 0) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  const auto decoded = decode_atomic_request(ulpdu.subspan(ddp::kUntaggedHeaderSize));
  if (!decoded || total != ddp::kUntaggedHeaderSize + kAtomicRequestSize || !header.last) {
    return fail(ulpdu, total, ddp::UntaggedError::too_long);
  }
  const AtomicRequest& request = *decoded;
  const bool known = request.opcode == AtomicOpcode::fetch_add || request.opcode == AtomicOpcode::compare_swap ||
                     (is_uiws_own(request.opcode) && peer_is_uiw());
  const AtomicTarget target = target_of(request, memory_);
  if (!known || !takes(target.rights)) {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
  }
  const ddp::Access access = find(request.stag, target.offset, target.length, target.rights);
  if (access.error != ddp::AccessError::none) {
    return fail(ulpdu, total, {ErrorType::remote_protection, protection_error(access.error)});
  }
  // RFC 7306 section 8.2: the address must be aligned, not the tagged offset.
  if (target.aligned && reinterpret_cast<std::uintptr_t>(access.memory) % kAtomicSize != 0) {
    return fail(ulpdu, total, kCatastrophicStream);
  }
  if (request.opcode == AtomicOpcode::write) {
    SharedReads::AtomicInbound inbound{request};
    // It is a Write, so what the peer sends behind it finds it done.
    if (!has_room_for_request()) return fail(ulpdu, total, ddp::UntaggedError::no_buffer);
    if (rules_->watched) {
      const Octets octets(reinterpret_cast<const std::byte*>(&request.operands.data), kAtomicSize);
      host_.write_comes({request.stag, request.offset, octets, true, true});
    }
    const ddp::Hold held = hold(request.stag, target.offset, target.length, target.rights);
    inbound.executed = held.error() == ddp::AccessError::none &&
                       execute(request.opcode, request.operands, held.memory(), inbound.original);
    if (!inbound.executed) return fail(ulpdu, total, kCatastrophicStream);
    return take_request(ulpdu, total, inbound, false);
  }
  return take_request(ulpdu, total, SharedReads::AtomicInbound{request}, false);
}

Receiver::Verdict Receiver::atomic_response(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total) {
  if (header.msn != atomic_msn_) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
  if (reads_->outstanding.empty()) return fail(ulpdu, total, ddp::UntaggedError::no_buffer);
  if (header.offset != 0) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  const auto response = decode_atomic_response(ulpdu.subspan(ddp::kUntaggedHeaderSize));
  if (!response || total != ddp::kUntaggedHeaderSize + kAtomicResponseSize || !header.last) {
    return fail(ulpdu, total, ddp::UntaggedError::too_long);
  }
  const SharedReads::Outstanding& request = reads_->outstanding.front();
  if (!request.atomic) return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
  if (response->identifier != request.identifier()) {
    return fail(ulpdu, total, kCatastrophicStream);
  }
  if (peer_waits()) peer_waits_.store(false, std::memory_order_relaxed);
  atomic_msn_ = next(atomic_msn_);
  if (request.sge_count == 0) {
    host_.read_complete();
    return Verdict::go_on;
  }
  // The result is stored as a number in the byte order of the host.
  segment_.sges = {request.sges, request.sge_count};
  segment_.sge_domain = memory_.domain();
  read_at_ = {};
  segment_.target = response_target_;
  const bool placed = place({reinterpret_cast<const std::byte*>(&response->original), sizeof response->original});
  segment_.target = Target::none;
  if (!placed) return Verdict::stop;
  host_.read_complete();
  return Verdict::go_on;
}

Receiver::Verdict Receiver::immediate(const ddp::UntaggedHeader& header, Opcode opcode, Octets ulpdu,
                                      std::size_t total) {
  if (header.msn != send_msn_) return fail(ulpdu, total, ddp::UntaggedError::msn_range);
  if (message_.begun) return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unexpected_opcode});
  if (header.offset != 0) return fail(ulpdu, total, ddp::UntaggedError::invalid_offset);
  // RFC 7306 section 6.3: Immediate Data has exactly 8 octets.
  const auto decoded = decode_immediate(ulpdu.subspan(ddp::kUntaggedHeaderSize));
  if (!decoded || total != ddp::kUntaggedHeaderSize + kImmediateSize || !header.last) {
    return fail(ulpdu, total, {ErrorType::remote_operation, ErrorCode::unspecified});
  }
  const bool lost = !host_.next_receive(message_.buffer);
  if (lost && !has_queue()) return fail(ulpdu, total, ddp::UntaggedError::invalid_queue);
  if (lost && rules_->reliable) return Verdict::pause;
  send_msn_ = next(send_msn_);
  note_progress();
  if (lost) {
    write_.length = 0;
    return Verdict::go_on;
  }
  ReceiveHost::Message message;
  message.length = write_.length;
  message.solicited = is_solicited(opcode);
  message.has_immediate = true;
  message.is_send = false;
  message.immediate = *decoded;
  message.ulpdu = total;
  write_.length = 0;
  host_.receive_complete(message_.buffer, Status::success, message);
  return Verdict::go_on;
}

// Reports that the program's memory cannot be used: it is unmapped or no longer registered, its STag names other memory
// now, or it was never registered for this use. Always returns false.
bool Receiver::memory_error() {
  if (segment_.target == Target::read_response) {
    failed_read_ = reads_->outstanding.front().sequence;
    fail({}, 0, kLocalCatastrophic);
  } else {
    // A Terminate about a message of the peer has the header of that message, so that the peer knows which message has
    // failed.
    fail(segment_.header, segment_.total, kCatastrophicStream);
  }
  abandon(Status::local_protection);
  return false;
}

// Looks the STag up again, since the region may be deregistered, or the window invalidated, between two parts of a
// segment.
bool Receiver::place_write(Octets payload) {
  const ddp::Hold target = hold(segment_.write_stag, segment_.write_offset, payload.size(), ddp::kRemoteWrite);
  if (target.error() != ddp::AccessError::none) {
    fail(segment_.header, segment_.total, tagged_error(target.error()));
    return false;
  }
  if (!guarded_copy(target.memory(), payload.data(), payload.size())) return memory_error();
  segment_.write_offset += payload.size();
  return true;
}

bool Receiver::place(Octets payload) {
  if (payload.empty()) return true;
  if (segment_.target == Target::write) return place_write(payload);
  if (segment_.target != Target::send && segment_.target != Target::read_response) {
    const bool watched = segment_.target == Target::watched_write || segment_.target == Target::watched_response;
    return !watched || place_watched(payload);
  }
  return scatter(memory_.of(segment_.sge_domain), segment_.sges, position(), payload) || memory_error();
}

// Tells the host, and then places the payload as without it.
bool Receiver::place_watched(Octets payload) {
  const Target watched = segment_.target;
  if (watched == Target::watched_write) {
    const auto header = ddp::decode_tagged(Octets(segment_.header).first(ddp::kTaggedHeaderSize));
    const bool begins = header && header->offset == segment_.write_offset;
    const bool first = begins && write_.length == segment_.total - ddp::kTaggedHeaderSize;
    host_.write_comes({segment_.write_stag, segment_.write_offset, payload, first, segment_.last});
    segment_.target = Target::write;
  } else {
    if (read_at_.sge == 0 && read_at_.offset == 0) host_.answer_comes(reads_->outstanding.front().sequence);
    segment_.target = Target::read_response;
  }
  if (!place(payload)) return false;
  segment_.target = watched;
  return true;
}

// The scatter/gather element is looked up at each call, since the region may be deregistered between two parts of a
// segment. If the region is deregistered, this returns no memory, and place() reports the error.
MutableOctets Receiver::destination(std::size_t most) {
  if (segment_.target != Target::send && segment_.target != Target::read_response) return {};
  const ScatterPosition& at = position();
  if (at.sge >= segment_.sges.size()) return {};
  const Sge& sge = segment_.sges[at.sge];
  const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(most, sge.length - at.offset));
  if (size == 0) return {};
  const ddp::Access target = rdmap::find(memory_.of(segment_.sge_domain), sge, at.offset, size, ddp::kLocalWrite);
  if (target.error != ddp::AccessError::none || target.memory == ddp::discarded) return {};
  return {target.memory, size};
}

Receiver::Verdict Receiver::placed(std::size_t octets, std::size_t offset, std::size_t total) {
  ScatterPosition& at = position();
  at.offset += static_cast<std::uint32_t>(octets);
  if (at.offset == segment_.sges[at.sge].length) at = {at.sge + 1, 0};
  return offset + octets == total ? end_segment() : Verdict::go_on;
}

Receiver::Verdict Receiver::end_segment() {
  const Target target = segment_.target;
  segment_.target = Target::none;
  if (!segment_.last) return Verdict::go_on;
  if (target == Target::write || target == Target::nothing) {
    ++writes_;
    note_progress();
  } else if (target == Target::read_response || target == Target::own_response) {
    host_.read_complete();
  } else if (target == Target::lost_send) {
    message_.begun = false;
    message_.received = 0;
    send_msn_ = next(send_msn_);
    note_progress();
  } else if (target == Target::send) {
    if (invalidates(message_.control.opcode)) {
      // The invalidation comes after the placement of the payload and before the completion of the receive (Verbs draft
      // section 8.2.2.1).
      if (const auto refused = host_.invalidate(static_cast<Stag>(message_.word))) {
        abandon(Status::flushed);
        return fail(segment_.header, segment_.total, {ErrorType::remote_protection, *refused});
      }
    }
    ReceiveHost::Message message;
    message.length = message_.received;
    message.ulpdu = segment_.total;
    message.solicited = is_solicited(message_.control.opcode);
    message.invalidated = invalidates(message_.control.opcode);
    message.stag = static_cast<Stag>(message_.word);
    message.has_immediate = is_send_immediate(message_.control.opcode);
    if (message.has_immediate) message.immediate = immediate_of_word(message_.word);
    message_.begun = false;
    message_.received = 0;
    send_msn_ = next(send_msn_);
    note_progress();
    host_.receive_complete(message_.buffer, Status::success, message);
  } else if (target == Target::watched_write || target == Target::watched_response) {
    segment_.target = target == Target::watched_write ? Target::write : Target::read_response;
    return end_segment();
  }
  return Verdict::go_on;
}

void Receiver::abandon(Status status) {
  if (const auto buffer = forget_message()) host_.receive_complete(*buffer, status, {});
}

std::optional<ReceiveBuffer> Receiver::forget_message() {
  if (!std::exchange(message_.begun, false) || message_.lost) return std::nullopt;
  return message_.buffer;
}

Receiver::Verdict Receiver::fail(Octets ulpdu, std::size_t total, TerminateError why, bool with_read_request) {
  // Whatever the request is, the peer has named no shared receive queue that it could be for, and is told so.
  if (!has_queue()) why = ddp::UntaggedError::invalid_queue;
  if (!error_) error_ = terminate_for(why, ulpdu, total, with_read_request);
  return Verdict::stop;
}

void Receiver::leave_queue() {
  choose_domain(nullptr);
  if (message_.begun) fail(segment_.header, segment_.total, ddp::UntaggedError::invalid_queue);
}

// For a segment that is too short for its DDP header, or an empty FPDU that is not the first message.
Receiver::Verdict Receiver::fail_cut_short() { return fail({}, 0, {ddp::ErrorType::local_catastrophic, 0}); }

}  // namespace uiw::rdmap
