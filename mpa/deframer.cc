// SPDX-License-Identifier: MIT
// RFC 5044 section 4.1 (FPDU format), section 4.3 (markers) and section 4.4 (CRC).
#include "mpa/deframer.h"

#include <algorithm>
#include <utility>

#include "base/guarded_copy.h"
#include "mpa/crc32c.h"
#include "mpa/fpdu_buffer.h"
#include "mpa/markers.h"

namespace uiw::mpa {

namespace {

bool crc_matches(const std::byte* fpdu, std::size_t size) {
  Crc32c crc;
  crc.add(fpdu, size - kCrcSize);
  return crc.value() == load_crc(fpdu + size - kCrcSize);
}

// The outcome after the sink was given `piece` octets and has not returned go_on; `before` octets were consumed before.
// If the sink pauses, the `piece` octets do not count as consumed, since the caller passes them in again; if the sink
// stops, they do.
Deframer::Outcome halted(UlpduSink::Verdict verdict, std::size_t before, std::size_t piece) {
  if (verdict == UlpduSink::Verdict::pause) return {Deframer::Result::paused, before};
  return {Deframer::Result::stopped, before + piece};
}

}  // namespace

Deframer::Outcome Deframer::receive(Octets bytes, UlpduSink& sink) {
  if (kind_ == Kind::marked) return receive_marked(bytes, sink);
  if (crc_) return receive_checked(bytes, sink);
  return kind_ == Kind::shared ? receive_shared(bytes, sink) : receive_unchecked(bytes, sink);
}

MutableOctets Deframer::wanted(UlpduSink& sink) {
  if (!keeps()) {
    const bool any = kind_ == Kind::plain && in_body_ && ulpdu_done_ < ulpdu_size_;
    return any ? sink.destination(ulpdu_size_ - ulpdu_done_) : MutableOctets();
  }
  if (!kept_ || kept_total_ == 0) return {};
  return {kept_.get() + kept_size_, kept_total_ - kept_size_};
}

Deframer::Result Deframer::filled(std::size_t octets, UlpduSink& sink) {
  if (!keeps()) {
    const std::size_t before = std::exchange(ulpdu_done_, ulpdu_done_ + octets);
    return sink.placed(octets, before, ulpdu_size_) == UlpduSink::Verdict::go_on ? Result::more : Result::stopped;
  }
  kept_size_ += octets;
  return kept_size_ == kept_total_ ? take_kept(sink) : Result::more;
}

// For a complete FPDU in kept_: checks its CRC, and checks and removes its markers, if the stream has these.
Deframer::Result Deframer::check_kept() {
  if (crc_ && !crc_matches(kept_.get(), kept_total_)) return Result::bad_crc;
  if (kind_ == Kind::marked) {
    if (!remove_markers({kept_.get(), kept_total_}, position_)) return Result::bad_marker;
    position_ = (position_ + kept_total_) % kMarkerSpacing;
  }
  kept_checked_ = true;
  return Result::more;
}

// For a complete FPDU: passes its ULPDU to the sink, again if the sink has paused before.
Deframer::Result Deframer::take_kept(UlpduSink& sink) {
  if (!kept_checked_) {
    if (const Result result = check_kept(); result != Result::more) return result;
  }
  const std::size_t ulpdu = load_be<std::uint16_t>(kept_.get());
  const auto verdict = sink.ulpdu({kept_.get() + kFpduLengthSize, ulpdu}, 0, ulpdu);
  if (verdict != UlpduSink::Verdict::go_on) return halted(verdict, 0, 0).result;
  taken_ += kept_total_;
  give_back_fpdu_buffer(std::move(kept_));
  kept_size_ = kept_total_ = 0;
  kept_checked_ = false;
  return Result::more;
}

// Adds octets of the input to the FPDU in kept_. True once that FPDU is complete; if the sink has paused when it got
// this FPDU, the FPDU is complete already. False if the input ends before.
bool Deframer::gather_kept(Octets bytes, std::size_t& done) {
  if (kept_total_ == 0) {
    const std::size_t head = (kind_ == Kind::marked ? length_offset(position_) : 0) + kFpduLengthSize;
    while (kept_size_ < head && done < bytes.size()) kept_[kept_size_++] = bytes[done++];
    if (kept_size_ < head) return false;
    kept_total_ = fpdu_size(load_be<std::uint16_t>(kept_.get() + head - kFpduLengthSize));
    if (kind_ == Kind::marked) kept_total_ = marked_size(position_, kept_total_);
  }
  const std::size_t take = std::min(kept_total_ - kept_size_, bytes.size() - done);
  if (take > 0) std::memcpy(kept_.get() + kept_size_, bytes.data() + done, take);
  kept_size_ += take;
  done += take;
  return kept_size_ == kept_total_;
}

Deframer::Outcome Deframer::receive_checked(Octets bytes, UlpduSink& sink) {
  std::size_t done = 0;
  if (kept_) {
    if (!gather_kept(bytes, done)) return {Result::more, done};
    if (const Result result = take_kept(sink); result != Result::more) return {result, done};
  }
  while (done < bytes.size()) {
    const Octets rest = bytes.subspan(done);
    const bool length_known = rest.size() >= kFpduLengthSize;
    const std::size_t ulpdu = length_known ? load_be<std::uint16_t>(rest.data()) : 0;
    const std::size_t size = length_known ? fpdu_size(ulpdu) : 0;
    if (!length_known || rest.size() < size) {
      kept_ = take_fpdu_buffer();
      if (!kept_) return {Result::no_memory, done};
      std::memcpy(kept_.get(), rest.data(), rest.size());
      kept_size_ = rest.size();
      kept_total_ = size;
      return {Result::more, bytes.size()};
    }
    if (!crc_matches(rest.data(), size)) return {Result::bad_crc, done};
    const auto verdict = sink.ulpdu(rest.subspan(kFpduLengthSize, ulpdu), 0, ulpdu);
    if (verdict != UlpduSink::Verdict::go_on) return halted(verdict, done, size);
    taken_ += size;
    done += size;
  }
  return {Result::more, done};
}

// Copies each FPDU and removes the markers in the copy. Peers with markers are rare, so the cost of the copy does not
// matter.
Deframer::Outcome Deframer::receive_marked(Octets bytes, UlpduSink& sink) {
  std::size_t done = 0;
  while (kept_ || done < bytes.size()) {
    if (!kept_) kept_ = take_fpdu_buffer();
    if (!kept_) return {Result::no_memory, done};
    if (!gather_kept(bytes, done)) break;
    if (const Result result = take_kept(sink); result != Result::more) return {result, done};
  }
  return {Result::more, done};
}

// To be called when the sink has taken the first `there` octets of a ULPDU.
void Deframer::begin_body(std::size_t ulpdu, std::size_t there) {
  in_body_ = true;
  ulpdu_size_ = ulpdu;
  ulpdu_done_ = there;
  trailer_left_ = pad_size(ulpdu) + kCrcSize;
}

// Takes the rest of the ULPDU and skips PAD and CRC. Returns true at the end of the FPDU, false if the input ends
// before or the sink does not go on; then `outcome` is filled in.
bool Deframer::take_body(Octets bytes, UlpduSink& sink, Outcome& outcome) {
  std::size_t& done = outcome.consumed;
  if (ulpdu_done_ < ulpdu_size_) {
    const std::size_t take = std::min(ulpdu_size_ - ulpdu_done_, bytes.size() - done);
    if (take == 0) return false;
    const auto verdict = sink.ulpdu(bytes.subspan(done, take), ulpdu_done_, ulpdu_size_);
    if (verdict != UlpduSink::Verdict::go_on) {
      outcome = halted(verdict, done, take);
      return false;
    }
    ulpdu_done_ += take;
    done += take;
    if (ulpdu_done_ < ulpdu_size_) return false;
  }
  const std::size_t skip = std::min(trailer_left_, bytes.size() - done);
  trailer_left_ -= skip;
  done += skip;
  if (trailer_left_ != 0) return false;
  in_body_ = false;
  taken_ += fpdu_size(ulpdu_size_);
  return true;
}

// Copies octets of the input to head_ until it has `size` octets. False if the input ends before.
bool Deframer::gather_head(std::size_t size, Octets bytes, Outcome& outcome) {
  if (head_size_ >= size) return true;
  const std::size_t take = std::min(size - head_size_, bytes.size() - outcome.consumed);
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(outcome.consumed), take,
              head_.begin() + static_cast<std::ptrdiff_t>(head_size_));
  head_size_ += take;
  outcome.consumed += take;
  return head_size_ == size;
}

// Gathers the length field and the headers in head_, perhaps from several inputs, and passes the headers to the sink.
// False if the input ends before, or the sink does not go on; then `outcome` is filled in.
bool Deframer::take_head(Octets bytes, UlpduSink& sink, Outcome& outcome) {
  std::size_t& done = outcome.consumed;
  if (!gather_head(kFpduLengthSize, bytes, outcome)) return false;
  const std::size_t ulpdu = load_be<std::uint16_t>(head_.data());
  const std::size_t head = kFpduLengthSize + std::min(ulpdu, kHeadSize);
  if (!gather_head(head, bytes, outcome)) return false;
  const auto verdict = sink.ulpdu(Octets(head_).subspan(kFpduLengthSize, head - kFpduLengthSize), 0, ulpdu);
  if (verdict != UlpduSink::Verdict::go_on) {
    outcome = halted(verdict, done, 0);
    return false;
  }
  head_size_ = 0;
  begin_body(ulpdu, head - kFpduLengthSize);
  return true;
}

Deframer::Outcome Deframer::receive_unchecked(Octets bytes, UlpduSink& sink) {
  Outcome outcome{Result::more, 0};
  for (;;) {
    if (in_body_ && !take_body(bytes, sink, outcome)) return outcome;
    const Octets rest = bytes.subspan(outcome.consumed);
    if (rest.empty() && head_size_ == 0) return outcome;
    if (head_size_ == 0 && rest.size() >= kFpduLengthSize) {
      const std::size_t ulpdu = load_be<std::uint16_t>(rest.data());
      const std::size_t size = fpdu_size(ulpdu);
      const bool whole = rest.size() >= size;
      if (whole || rest.size() >= kFpduLengthSize + std::min(ulpdu, kHeadSize)) {
        // The usual case: the headers are complete in the input, so nothing is copied.
        const std::size_t take = whole ? ulpdu : std::min(ulpdu, rest.size() - kFpduLengthSize);
        const auto verdict = sink.ulpdu(rest.subspan(kFpduLengthSize, take), 0, ulpdu);
        if (verdict != UlpduSink::Verdict::go_on) return halted(verdict, outcome.consumed, kFpduLengthSize + take);
        if (whole) {
          ulpdu_size_ = ulpdu;
          taken_ += size;
          outcome.consumed += size;
        } else {
          outcome.consumed += kFpduLengthSize + take;
          begin_body(ulpdu, take);
        }
        continue;
      }
    }
    if (!take_head(bytes, sink, outcome)) return outcome;
  }
}

// Octets that may be headers are copied before they are checked, since the peer can change octets in shared memory at
// any time. The copy has room for several small FPDUs; after a long FPDU only the headers of the next one are copied.
// Payload that was not copied is passed to the sink in place.
Deframer::Outcome Deframer::receive_shared(Octets bytes, UlpduSink& sink) {
  Outcome outcome{Result::more, 0};
  std::array<std::byte, kCopied> copy;
  for (;;) {
    if (in_body_ && !take_body(bytes, sink, outcome)) return outcome;
    const std::size_t left = bytes.size() - outcome.consumed;
    // After a pause head_ may have all octets of the input already: then the sink is asked again without further
    // octets.
    if (left == 0 && (head_size_ == 0 || !bytes.empty())) return outcome;
    const std::size_t take = std::min(left, ulpdu_size_ > copy.size() ? head_.size() : copy.size());
    if (!guarded_copy_unordered(copy.data(), bytes.data() + outcome.consumed, take)) {
      outcome.result = Result::no_memory;
      return outcome;
    }
    const Outcome part = receive_unchecked(Octets(copy).first(take), sink);
    outcome.consumed += part.consumed;
    outcome.result = part.result;
    if (part.result != Result::more || left == 0) return outcome;
  }
}

}  // namespace uiw::mpa
