// SPDX-License-Identifier: MIT
// Hears what the stream sends, and checks that it is well-formed and what it should be: posted work in its order, the
// answers to the peer's requests in theirs, octets of memory that they may come from, and nothing behind a Terminate
// (RFC 5040 sections 4 and 5, RFC 5041 section 4, RFC 7306 sections 5 and 6).
#pragma once

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

#include "rdmap/read_queue.h"
#include "tests/fuzz/stream/ledger.h"
#include "tests/fuzz/stream/step.h"
#include "tests/fuzz/stream/wire.h"

namespace uiw::fuzz {

class Judge {
 public:
  // A request that the stream has sent.
  struct Request {
    bool atomic = false;
    std::uint32_t name = 0;  // the STag of the sink, or the Request Identifier
    std::uint64_t offset = 0;
    std::uint32_t size = 0, done = 0;
  };

  Judge(Memory& memory, Ledger& ledger) : memory_(memory), ledger_(ledger) {}
  void start(const Agreed& agreed) {
    reader_.start(agreed.crc, agreed.markers_out);
    agreed_ = &agreed;
    rtr_due_ = agreed.initiator && agreed.rtr != mpa::ReadyToReceive::none;
    send_msn_ = read_msn_ = atomic_msn_ = 1;
    writes_ = 0;
    in_message_ = closed_ = terminated_ = greeted_ = false;
    peer_ = agreed.peer;
    asked_.clear(), requests.clear();
    answered_ = 0;
    last_.clear();
    frozen_.clear();
  }
  // The stream has found out what the peer is.
  void peer_known(mpa::PeerKind peer) { peer_ = peer; }
  // The stream has taken a request of the peer.
  void asked(const rdmap::SharedReads::Inbound& request) {
    asked_.push_back({request});
    const auto* const atomic = std::get_if<rdmap::SharedReads::AtomicInbound>(&request.request);
    if (atomic != nullptr && atomic->executed) execute(atomic->request, asked_.back());
  }
  // True if memory has changed: atomic operations are executed as their answers are built, in the order of the
  // requests, each once (RFC 7306 section 5); an Atomic Write when it has come.
  bool check_executed(rdmap::SharedReads& reads) {
    const bool changed = memory_.changed();
    for (std::uint64_t i = reads.inbound.popped(); i < reads.inbound.pushed(); ++i) {
      const auto* const atomic = std::get_if<rdmap::SharedReads::AtomicInbound>(&reads.inbound.at(i).request);
      if (atomic == nullptr || !atomic->executed) continue;
      Asked& asked = asked_.at(i - answered_);
      if (!asked.original) execute(atomic->request, asked);
    }
    check(!memory_.changed());
    return changed;
  }
  // The next octets. `steady`: memory has not changed since they were gathered.
  void hear(View octets, bool steady) {
    steady_ = steady;
    check(!closed_ || octets.empty());
    reader_.add(octets, [this](View ulpdu, bool whole) { hear_ulpdu(ulpdu, whole); });
  }
  // FIN.
  void close() {
    check(reader_.at_boundary());
    closed_ = true;
  }
  // Work is about to be flushed, and then its memory is the program's again. So the rest of an FPDU that has begun is
  // what is there now. (With CRC or markers, it may be what was there as the FPDU was built.)
  void freeze() {
    frozen_.clear();
    const View begun = reader_.begun();
    const Posted* const posted = ledger_.next_to_send();
    if (agreed_->crc || agreed_->markers_out || begun.size() < 4 || posted == nullptr || posted->work.inlined) return;
    if ((begun[3] & 0x0F) != 0 && ((begun[3] & 0x0F) < 3 || (begun[3] & 0x0F) > 6)) return;  // no Write, no Send
    for (unsigned i = 0; i < posted->count; ++i) {
      const Piece& piece = posted->pieces[i];
      if (piece.region >= Memory::kRegions || !memory_.usable(piece, ddp::kLocalRead)) return frozen_.clear();
      const auto* const from = reinterpret_cast<const std::uint8_t*>(memory_.at(piece.range.at));
      frozen_.insert(frozen_.end(), from, from + piece.range.size);
    }
    const std::size_t headers = (begun[2] & 0x80) != 0 ? 16 : 20;
    frozen_from_ = posted->sent + begun.size() - std::min(headers, begun.size());
  }
  bool at_boundary() const { return reader_.at_boundary(); }
  bool terminated() const { return terminated_; }
  View last() const { return last_; }  // the headers of the last segment
  std::uint32_t send_msn() const { return send_msn_; }
  std::uint32_t writes() const { return writes_; }

  std::deque<Request> requests;

 private:
  struct Asked {
    rdmap::SharedReads::Inbound inbound;
    std::uint32_t done = 0;
    std::optional<std::uint64_t> original = std::nullopt;  // of an atomic operation that has been executed
  };

  void forget_asked() {
    asked_.pop_front();
    ++answered_;
  }

  // RFC 7306 section 5.1.1, written for this test alone: no carry leaves a bit that is set in the mask.
  static std::uint64_t masked_sum(std::uint64_t a, std::uint64_t b, std::uint64_t mask) {
    std::uint64_t sum = 0, carry = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
      const std::uint64_t here = (a >> bit & 1) + (b >> bit & 1) + carry;
      sum |= (here & 1) << bit;
      carry = (mask >> bit & 1) != 0 ? 0 : here >> 1;
    }
    return sum;
  }
  void execute(const rdmap::AtomicRequest& request, Asked& asked) {
    if (is_uiws_own(request.opcode)) {
      check(peer_ == mpa::PeerKind::uiw);
      asked.original = 0;
      if (request.opcode == rdmap::AtomicOpcode::flush) return;
      const std::byte* const word = memory_.accessed(request.stag, request.offset, 8, ddp::kRemoteWrite);
      check(word != nullptr);
      return memory_.expect(word, be64toh(request.operands.data));
    }
    const std::byte* const target = memory_.accessed(request.stag, request.offset, 8, ddp::kRemoteAtomic);
    check(target != nullptr);
    const std::uint64_t original = memory_.expected(target);
    const rdmap::AtomicOperands& with = request.operands;
    std::uint64_t result = original;
    if (request.opcode == rdmap::AtomicOpcode::fetch_add)
      result = masked_sum(original, with.data, with.mask);
    else if (((original ^ with.compare) & with.compare_mask) == 0)
      result = (original & ~with.mask) | (with.data & with.mask);
    memory_.expect(target, result);
    asked.original = original;
  }

  void hear_ulpdu(View ulpdu, bool whole) {
    check(!terminated_ && ulpdu.size() <= std::max(agreed_->mulpdu, agreed_->mulpdu_to_uiw));
    begins_ = whole;
    whole_ = whole && steady_;
    last_.assign(ulpdu.begin(), ulpdu.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(ulpdu.size(), 46)));
    if (rtr_due_ && ready_to_receive(ulpdu)) return;
    check(ulpdu.size() >= 14);
    check((ulpdu[0] & 0x3F) == 1);     // reserved bits and the version of DDP
    check((ulpdu[1] & 0xF0) == 0x40);  // those of RDMAP
    last_segment_ = (ulpdu[0] & 0x40) != 0;
    if (!agreed_->initiator && agreed_->peer != peer_ && peer_ == mpa::PeerKind::uiw && !greeted_) {
      // Its hello is due, and only the last words of a stream come before it.
      check(ulpdu[1] == 0x47 || ulpdu[1] == 0x42 || ulpdu[1] == 0x4B || (ulpdu[0] == 0xC1 && ulpdu[1] == 0x40));
    }
    if ((ulpdu[0] & 0x80) != 0) return tagged(ulpdu);
    check(ulpdu.size() >= 18);
    untagged(ulpdu);
  }

  // False for a Terminate, and for answers before it, which go out before anything else.
  bool ready_to_receive(View ulpdu) {
    rtr_due_ = false;
    if (ulpdu.size() >= 14 && (ulpdu[1] == 0x47 || ulpdu[1] == 0x42 || ulpdu[1] == 0x4B)) return false;
    if (agreed_->rtr == mpa::ReadyToReceive::fulpdu) check(ulpdu.empty());
    if (agreed_->rtr == mpa::ReadyToReceive::write) check(ulpdu.size() == 14 && ulpdu[0] == 0xC1 && ulpdu[1] == 0x40);
    if (agreed_->rtr != mpa::ReadyToReceive::read) return true;
    check(ulpdu.size() == 46 && ulpdu[1] == 0x41 && number(ulpdu.subspan(30, 4)) == 0);
    ++read_msn_;
    requests.push_back({});
    return true;
  }

  void tagged(View ulpdu) {
    const auto stag = static_cast<std::uint32_t>(number(ulpdu.subspan(2, 4)));
    const std::uint64_t offset = number(ulpdu.subspan(6, 8));
    const View payload = ulpdu.subspan(14);
    if (ulpdu[1] == 0x42) return response(stag, offset, payload);
    if (ulpdu[1] == 0x40 && rdmap::is_own(Stag{stag})) {
      check(peer_ == mpa::PeerKind::uiw && last_segment_ && payload.empty() && between_messages());
      const bool hello = rdmap::is_hello(Stag{stag}, offset);
      check(hello ? !agreed_->initiator && !greeted_ : (stag & 0xFF) <= 2);
      greeted_ = greeted_ || hello;
      return;
    }
    check(ulpdu[1] == 0x40);
    Posted& posted = ledger_.sending(begins_);
    check(posted.work.kind == WorkKind::write && !posted.data_sent);
    check(Stag{stag} == posted.work.remote_stag && offset == posted.work.remote_offset + posted.sent);
    data(posted, payload);
    if (!last_segment_) return;
    ++writes_;
    posted.data_sent = true;
    in_message_ = posted.work.has_immediate;  // nothing comes between the two messages
    if (!posted.work.has_immediate) ledger_.sent_whole();
  }

  // Or the rest of a message is not sent, since work has been flushed.
  bool between_messages() const { return !in_message_ || ledger_.all_complete(); }
  // Payload of posted work.
  void data(Posted& posted, View payload) {
    if (whole_) compare(posted, payload);
    for (std::size_t at = posted.sent, i = 0; i < payload.size() && !begins_; ++i, ++at) {
      check(at < frozen_from_ || at >= frozen_.size() || payload[i] == frozen_[at]);
    }
    posted.sent += static_cast<std::uint32_t>(payload.size());
    check(posted.sent <= posted.work.length && last_segment_ == (posted.sent == posted.work.length));
    check(last_segment_ || !payload.empty());
    in_message_ = !last_segment_;
  }
  void compare(const Posted& posted, View payload) const {
    std::size_t skip = posted.sent;
    if (posted.work.inlined) {
      for (const std::uint8_t octet : payload) check(octet == inline_octet(posted.work.id, skip++));
      return;
    }
    for (unsigned i = 0; i < posted.count && !payload.empty(); ++i) {
      const Piece& piece = posted.pieces[i];
      if (skip >= piece.range.size) {
        skip -= piece.range.size;
        continue;
      }
      const std::size_t take = std::min(piece.range.size - skip, payload.size());
      check(memory_.usable(piece, ddp::kLocalRead));
      if (piece.region < Memory::kRegions)
        check(std::memcmp(memory_.at(piece.range.at + skip), payload.data(), take) == 0);
      payload = payload.subspan(take);
      skip = 0;
    }
    check(payload.empty());
  }

  void response(std::uint32_t stag, std::uint64_t offset, View payload) {
    check(!asked_.empty());
    Asked& asked = asked_.front();
    const auto* const read = std::get_if<rdmap::ReadRequest>(&asked.inbound.request);
    check(read != nullptr && (asked.done > 0 || between_messages()));
    check(Stag{stag} == read->sink_stag && offset == read->sink_offset + asked.done);
    check(payload.size() <= read->size - asked.done);
    if (whole_ && !payload.empty()) {
      const std::byte* const source =
          memory_.accessed(read->source_stag, read->source_offset + asked.done, payload.size(), ddp::kRemoteRead);
      check(source != nullptr && std::memcmp(source, payload.data(), payload.size()) == 0);
    }
    asked.done += static_cast<std::uint32_t>(payload.size());
    check(last_segment_ == (asked.done == read->size));
    in_message_ = !last_segment_;
    if (last_segment_) forget_asked();
  }

  void untagged(View ulpdu) {
    const std::uint64_t queue = number(ulpdu.subspan(6, 4)), msn = number(ulpdu.subspan(10, 4));
    const std::uint64_t offset = number(ulpdu.subspan(14, 4));
    const View body = ulpdu.subspan(18);
    if (queue == 0) return send_queue(ulpdu, msn, offset, body);
    check(last_segment_ && offset == 0);
    if (queue == 2) {
      check(ulpdu[1] == 0x47 && msn == 1);
      return terminate(body);
    }
    check(between_messages());
    if (queue == 1) {
      check(msn == read_msn_++);
      return ulpdu[1] == 0x41 ? read_request(body) : atomic_request(ulpdu, body);
    }
    check(queue == 3 && ulpdu[1] == 0x4B && msn == atomic_msn_++ && body.size() == 12 && !asked_.empty());
    const auto* const atomic = std::get_if<rdmap::SharedReads::AtomicInbound>(&asked_.front().inbound.request);
    check(atomic != nullptr && number(body.first(4)) == atomic->request.identifier);
    check(asked_.front().original == number(body.subspan(4, 8)));
    forget_asked();
  }

  void send_queue(View ulpdu, std::uint64_t msn, std::uint64_t offset, View body) {
    check(msn == send_msn_);
    Posted& posted = ledger_.sending(begins_);
    const rdmap::SendWork& work = posted.work;
    const unsigned opcode = ulpdu[1] & 0x0F;
    const std::uint64_t word = number(ulpdu.subspan(2, 4));
    if (opcode == 8 || opcode == 9) {
      check(work.kind == WorkKind::immediate ||
            (work.kind == WorkKind::write && work.has_immediate && posted.data_sent));
      check(last_segment_ && offset == 0 && (opcode == 9) == work.solicited && body.size() == 8);
      check(std::memcmp(body.data(), work.immediate.data(), 8) == 0);
      in_message_ = false;
    } else {
      check(work.kind == WorkKind::send && offset == posted.sent);
      const unsigned plain = (work.invalidates ? 4U : 3U) + (work.solicited ? 2U : 0U);
      check(ulpdu[1] == (work.has_immediate ? 0x4FU - (work.solicited ? 1U : 0U) : 0x40U | plain));
      if (work.has_immediate)
        check(peer_ == mpa::PeerKind::uiw &&
              word == number(View(reinterpret_cast<const std::uint8_t*>(work.immediate.data()), 4)));
      if (work.invalidates && !work.has_immediate) check(Stag{static_cast<std::uint32_t>(word)} == work.invalidate);
      data(posted, body);
    }
    if (!last_segment_) return;
    ++send_msn_;
    ledger_.sent_whole();
  }

  void read_request(View body) {
    check(body.size() == 28);
    const auto name = static_cast<std::uint32_t>(number(body.first(4)));
    const auto size = static_cast<std::uint32_t>(number(body.subspan(12, 4)));
    requests.push_back({false, name, number(body.subspan(4, 8)), size, 0});
    if (name == 0) return check(size == 0 && agreed_->remote_completion);  // a probe
    const rdmap::SendWork& work = ledger_.sending(begins_).work;
    check(work.kind == WorkKind::read && Stag{name} == work.sink_stag && size == work.length);
    check(number(body.subspan(4, 8)) == work.sink_offset);
    check(Stag{static_cast<std::uint32_t>(number(body.subspan(16, 4)))} == work.remote_stag);
    check(number(body.subspan(20, 8)) == work.remote_offset);
    ledger_.sent_whole();
  }
  void atomic_request(View ulpdu, View body) {
    const rdmap::SendWork& work = ledger_.sending(begins_).work;
    check(ulpdu[1] == 0x4A && body.size() == 52 && work.kind == WorkKind::atomic);
    check(number(body.first(4)) == static_cast<unsigned>(work.atomic));
    check(Stag{static_cast<std::uint32_t>(number(body.subspan(8, 4)))} == work.remote_stag);
    check(number(body.subspan(12, 8)) == work.remote_offset);
    check(number(body.subspan(20, 8)) == work.id);  // each operand is the identifier of the work
    requests.push_back({true, static_cast<std::uint32_t>(number(body.subspan(4, 4))), 0, 8, 0});
    ledger_.sent_whole();
  }

  void terminate(View body) {
    check(body.size() >= 4);
    terminated_ = true;
    const unsigned layer = body[0] >> 4, bits = body[2] >> 5;
    check(layer <= 2 && (body[0] & 0x0F) <= 2 && (body[2] & 0x1F) == 0 && body[3] == 0);
    std::size_t size = 4;
    if ((bits & 4) != 0) size += 2;
    if ((bits & 2) != 0) {
      check((bits & 4) != 0 && body.size() > size);
      size += (body[size] & 0x80) != 0 ? 14 : 18;
    }
    if ((bits & 1) != 0) size += 28;
    check(body.size() == size);
  }

  Memory& memory_;
  Ledger& ledger_;
  const Agreed* agreed_ = nullptr;
  FpduReader reader_;
  std::deque<Asked> asked_;
  std::uint64_t answered_ = 0;  // requests that came before those
  Bytes last_;
  Bytes frozen_;  // the octets of the work in progress as it was flushed, from this one on
  std::size_t frozen_from_ = 0;
  std::uint32_t send_msn_ = 1, read_msn_ = 1, atomic_msn_ = 1, writes_ = 0;
  bool rtr_due_ = false, begins_ = false, steady_ = false, whole_ = false, last_segment_ = false, in_message_ = false;
  bool greeted_ = false;  // it has said that it is uiw
  mpa::PeerKind peer_ = mpa::PeerKind::other;
  bool closed_ = false, terminated_ = false;
};

}  // namespace uiw::fuzz
