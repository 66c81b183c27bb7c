// SPDX-License-Identifier: MIT
// The peer: sends segments of all kinds, which are right where a step does not say otherwise: their MSNs and offsets
// continue, they answer what was asked, and they name memory that there is.
#pragma once

#include <cstdint>
#include <deque>

#include "tests/fuzz/stream/judge.h"

namespace uiw::fuzz {

class Peer {
 public:
  Peer(const Memory& memory, Judge& judge) : memory_(memory), judge_(judge) {}
  void start(const Agreed& agreed) {
    writer_.start(agreed.crc, agreed.markers_in);
    wire.clear();
    messages.clear(), answers.clear();
    message_.clear(), answer_.clear();
    damaged_ = odd_ = false;
    send_msn_ = read_msn_ = atomic_msn_ = 1;
    message_opcode_ = 0;
    fill_ = 0;
  }

  void segment(const Step& step) {
    last_ = (step.a & 0x10) == 0;
    length_ = step.c * ((step.a & 0x80) != 0 ? 8U : 1U);
    ulpdu_.clear();
    build(step);
    Damage damage;
    if ((step.a & 0x40) != 0) damage = spoil(step);
    writer_.add(wire, ulpdu_, damage);
  }
  void octets(const Step& step) {
    const std::uint8_t all[] = {step.b, step.c, step.d, step.e, step.f, step.g};
    const std::size_t size = 1 + step.a % sizeof all;
    wire.insert(wire.end(), all, all + size);
    writer_.note_raw(size);
    damaged_ = true;
  }
  // Something that is sent may not be what `messages` and `answers` say.
  bool damaged() const { return damaged_; }
  // Some segment may not be one that the stream could take at that time, whatever the program does.
  bool odd() const { return damaged_ || odd_; }

  Bytes wire;                  // what the stream has not taken yet is at its end
  std::deque<Bytes> messages;  // the payload of each Send that has some
  std::deque<Bytes> answers;   // the payload of the answer to each request

 private:
  static constexpr std::uint32_t kHelloStag = 0x756977FF;
  static constexpr std::uint64_t kHelloOffset = 0x7569776957415250;

  void build(const Step& step) {
    switch (step.a & 15) {
      case 3:
      case 13: return write(step);
      case 4:
      case 14: return read_request(step);
      case 5:
      case 15: return answer();
      case 6: return atomic_request(step);
      case 7: untagged(0x48 | (step.e & 1U), 0, 0, send_msn_++, 0); return payload(8);
      case 8: return terminate(step);
      case 9: return report(step);
      case 10: odd_ = true; return;
      case 11: return any(step);
      default: return send(step);
    }
  }
  void untagged(unsigned control, std::uint32_t word, std::uint32_t queue, std::uint32_t msn, std::uint64_t offset) {
    put(ulpdu_, last_ ? 0x41 : 0x01, 1);
    put(ulpdu_, control, 1);
    put(ulpdu_, word, 4);
    put(ulpdu_, queue, 4);
    put(ulpdu_, msn, 4);
    put(ulpdu_, offset, 4);
  }
  void tagged(unsigned control, std::uint32_t stag, std::uint64_t offset) {
    put(ulpdu_, last_ ? 0xC1 : 0x81, 1);
    put(ulpdu_, control, 1);
    put(ulpdu_, stag, 4);
    put(ulpdu_, offset, 8);
  }
  // Octets that differ from those before.
  void payload(std::size_t size, Bytes* copy = nullptr) {
    const std::size_t begin = ulpdu_.size();
    ulpdu_.resize(begin + size);
    for (std::size_t i = begin; i < ulpdu_.size(); ++i) {
      fill_ = fill_ % 127 + 1;
      ulpdu_[i] = fill_;
    }
    if (copy != nullptr) copy->insert(copy->end(), ulpdu_.begin() + static_cast<std::ptrdiff_t>(begin), ulpdu_.end());
  }

  struct Name {
    std::uint32_t stag;
    std::uint64_t base;
  };
  Name name(unsigned which) const {
    const unsigned n = which & 15;
    if (n < Memory::kRegions) return {static_cast<std::uint32_t>(memory_.regions[n].stag), memory_.regions[n].base};
    if (n >= 8 && n < 8 + Memory::kWindows) {
      return {static_cast<std::uint32_t>(memory_.windows[n - 8].stag), memory_.windows[n - 8].base};
    }
    const Registered& region = memory_.regions[which >> 4 & 3];
    return {n == 6 ? 0 : static_cast<std::uint32_t>(region.stag) ^ (1U << n), region.base};
  }

  void send(const Step& step) {
    static constexpr unsigned kOpcodes[] = {0x43, 0x44, 0x45, 0x46, 0x4F, 0x4E};
    if (message_opcode_ == 0 || (step.e & 0x80) != 0) message_opcode_ = kOpcodes[step.e % 6];
    odd_ = odd_ || (step.e & 0x80) != 0 || (!last_ && length_ == 0);
    const bool immediate = message_opcode_ >= 0x4E;
    untagged(message_opcode_, immediate ? step.b : name(step.b).stag, 0, send_msn_, message_.size());
    payload(length_, &message_);
    if (!last_) return;
    ++send_msn_;
    message_opcode_ = 0;
    if (!message_.empty()) messages.push_back(message_);
    message_.clear();
  }
  void write(const Step& step) {
    const Name target = name(step.b);
    odd_ = odd_ || (!last_ && length_ == 0);
    tagged(0x40, target.stag, target.base + step.d * 8U);
    payload(length_);
  }
  void read_request(const Step& step) {
    last_ = true;
    const std::uint32_t msn = read_msn_++;
    const Name source = name(step.b);
    untagged(0x41, 0, 1, msn, 0);
    put(ulpdu_, 0x7000 + msn, 4);
    put(ulpdu_, (step.e & 1) != 0 ? ~std::uint64_t{0} - step.e : msn * 0x10000U, 8);
    put(ulpdu_, length_, 4);
    const bool hello = length_ == 0 && (step.e & 4) != 0;
    put(ulpdu_, hello ? kHelloStag : source.stag, 4);
    put(ulpdu_, hello ? kHelloOffset : source.base + step.d * 8U, 8);
  }
  void atomic_request(const Step& step) {
    last_ = true;
    const Name target = name(step.b);
    untagged(0x4A, 0, 1, read_msn_++, 0);
    // Fetch-and-add or compare-and-swap; or uiw's own Atomic Write or Flush; or what is none of these.
    put(ulpdu_, (step.e & 0xC0) == 0xC0 ? 14 + (step.e & 1U) : step.e % 8 == 7 ? 1 : (step.e & 1) * 2U, 4);
    put(ulpdu_, step.c, 4);
    put(ulpdu_, target.stag, 4);
    put(ulpdu_, target.base + step.d, 8);
    put(ulpdu_, 0x0102030405060708, 8);
    put(ulpdu_, (step.e & 16) != 0 ? 0x8000'0000'8000'0000 : (step.e & 1) != 0 ? ~std::uint64_t{0} : 0, 8);
    put(ulpdu_, 0, 8);
    put(ulpdu_, (step.e & 32) != 0 ? 0xFF : 0, 8);
  }
  // To the oldest request that is not answered; length 0 is all that is left.
  void answer() {
    odd_ = odd_ || judge_.requests.empty();
    Judge::Request none, &request = judge_.requests.empty() ? none : judge_.requests.front();
    if (request.atomic) {
      last_ = true;
      untagged(0x4B, 0, 3, atomic_msn_++, 0);
      put(ulpdu_, request.name, 4);
      Bytes number;
      payload(8, &number);
      answers.emplace_back(number.rbegin(), number.rend());
      judge_.requests.pop_front();
      return;
    }
    const std::uint32_t left = request.size - request.done;
    const std::uint32_t size =
        length_ == 0 ? std::min(left, 1000U) : std::min(left, static_cast<std::uint32_t>(length_));
    last_ = size == left;
    tagged(0x42, request.name, request.offset + request.done);
    payload(size, &answer_);
    request.done += size;
    if (!last_ || judge_.requests.empty()) return;
    judge_.requests.pop_front();
    answers.push_back(answer_);
    answer_.clear();
  }
  void terminate(const Step& step) {
    last_ = true;
    untagged(0x47, 0, 2, 1, 0);
    const View about = judge_.last();
    const bool header = (step.b & 1) != 0 && about.size() >= 14;
    const std::size_t size = header ? ((about[0] & 0x80) != 0 ? 14U : std::min<std::size_t>(18, about.size())) : 0;
    const bool read = (step.b & 2) != 0 && about.size() == 46;
    put(ulpdu_, step.e, 1);
    put(ulpdu_, step.c, 1);
    put(ulpdu_, (header ? 0xC000U : 0U) | (read ? 0x2000U : 0U), 2);
    if (header) put(ulpdu_, about.size(), 2);
    ulpdu_.insert(ulpdu_.end(), about.begin(), about.begin() + static_cast<std::ptrdiff_t>(size));
    if (read) ulpdu_.insert(ulpdu_.end(), about.begin() + 18, about.end());
  }
  void report(const Step& step) {
    last_ = true;
    const std::uint64_t writes = judge_.writes() - step.c % 4U, sends = judge_.send_msn() - step.d % 4U;
    if (step.e % 4 == 3) return tagged(0x40, kHelloStag, kHelloOffset);
    tagged(0x40, 0x75697700 + step.e % 4, (writes & 0xFFFFFFFF) << 32 | (sends & 0xFFFFFFFF));
  }
  void any(const Step& step) {
    for (const std::uint8_t octet : {step.b, step.d, step.e, step.f, step.g}) ulpdu_.push_back(octet);
    payload(step.c);
    damaged_ = true;
  }

  // Damages the ULPDU, or says what to damage in its FPDU.
  Damage spoil(const Step& step) {
    damaged_ = true;
    switch (step.f >> 6) {
      case 0:
      case 1:
        if (step.f < ulpdu_.size()) ulpdu_[step.f] ^= step.g;
        return {};
      case 2:
        if ((step.f & 32) != 0) {
          payload(step.g);
        } else if (!ulpdu_.empty()) {
          ulpdu_.resize(step.g % ulpdu_.size());
        }
        return {};
      default: return {static_cast<Damage::Place>(1 + step.f % 4), step.g};
    }
  }

  const Memory& memory_;
  Judge& judge_;
  FpduWriter writer_;
  Bytes ulpdu_, message_, answer_;
  bool damaged_ = false, odd_ = false, last_ = true;
  std::size_t length_ = 0;
  std::uint32_t send_msn_ = 1, read_msn_ = 1, atomic_msn_ = 1;
  unsigned message_opcode_ = 0;
  std::uint8_t fill_ = 0;
};

}  // namespace uiw::fuzz
