// SPDX-License-Identifier: MIT
// Octets on the wire as the specifications have them, written and read without the product's own encoders: FPDUs with
// and without markers (RFC 5044 sections 4.1, 4.3 and 4.4).
#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/stream/check.h"

namespace uiw::fuzz {

using Bytes = std::vector<std::uint8_t>;
using View = std::span<const std::uint8_t>;

inline std::uint64_t number(View octets) {
  std::uint64_t value = 0;
  for (const std::uint8_t octet : octets) value = value << 8 | octet;
  return value;
}
inline void put(Bytes& to, std::uint64_t value, unsigned size) {
  while (size-- > 0) to.push_back(static_cast<std::uint8_t>(value >> (8 * size)));
}

inline std::uint32_t crc32c(View octets) {
  return ~crc32_iscsi(const_cast<unsigned char*>(octets.data()), static_cast<int>(octets.size()), ~0U);
}

// What is wrong with an FPDU that the peer sends.
struct Damage {
  enum class Place { none, crc, length, marker, pad } place = Place::none;
  std::uint8_t bits = 0;
};

// Sends FPDUs.
class FpduWriter {
 public:
  void start(bool crc, bool markers) { crc_ = crc, markers_ = markers, position_ = 0; }
  // The CRC covers damage other than its own, so that this damage is seen where it is.
  void add(Bytes& to, View ulpdu, Damage damage) {
    const std::size_t start = to.size();
    const std::size_t length = ulpdu.size() ^ (damage.place == Damage::Place::length ? damage.bits : 0U);
    length_at_ = 0;
    put_octet(to, start, length >> 8, damage);
    length_at_ = to.size() - 1 - start;
    begun_ = true;
    put_octet(to, start, length, damage);
    if (markers_) {
      for (const std::uint8_t octet : ulpdu) put_octet(to, start, octet, damage);
    } else {
      to.insert(to.end(), ulpdu.begin(), ulpdu.end());
    }
    const std::uint8_t pad = damage.place == Damage::Place::pad ? damage.bits : 0;
    for (std::size_t i = (ulpdu.size() + 2) % 4; i % 4 != 0; ++i) put_octet(to, start, pad, damage);
    marker(to, start, damage);
    std::uint32_t sum = crc_ ? crc32c(View(to).subspan(start)) : 0;
    if (damage.place == Damage::Place::crc) sum ^= damage.bits;
    for (unsigned i = 0; i < 4; ++i) to.push_back(static_cast<std::uint8_t>(sum >> (8 * i)));
    position_ += to.size() - start;
    begun_ = false;
  }
  // Octets that are no FPDU.
  void note_raw(std::size_t size) { position_ += size; }

 private:
  void put_octet(Bytes& to, std::size_t start, std::size_t octet, Damage damage) {
    marker(to, start, damage);
    to.push_back(static_cast<std::uint8_t>(octet));
  }
  void marker(Bytes& to, std::size_t start, Damage damage) {
    const std::size_t in_fpdu = to.size() - start;
    if (!markers_ || (position_ + in_fpdu) % 512 != 0) return;
    std::size_t pointer = begun_ ? in_fpdu - length_at_ : 0;
    if (damage.place == Damage::Place::marker) pointer ^= damage.bits;
    put(to, pointer, 4);
  }

  bool crc_ = true, markers_ = false, begun_ = false;
  std::size_t position_ = 0, length_at_ = 0;
};

// Takes FPDUs apart, and checks all of them.
class FpduReader {
 public:
  void start(bool crc, bool markers) { crc_ = crc, markers_ = markers, position_ = 0, octets_.clear(); }
  // Calls take(ulpdu, whole) for each ULPDU; `whole`: all of its FPDU has come with these octets.
  template <typename Take>
  void add(View octets, Take take) {
    std::size_t at = 0, old = octets_.size();
    octets_.insert(octets_.end(), octets.begin(), octets.end());
    const View all(octets_);
    while (const std::size_t size = fpdu(all.subspan(at))) {
      position_ += size;
      take(View(ulpdu_), old == 0);
      at += size;
      old = 0;
    }
    octets_.erase(octets_.begin(), octets_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // Whether the last FPDU is complete, and what there is of it.
  bool at_boundary() const { return octets_.empty(); }
  View begun() const { return octets_; }

 private:
  // The octets of the FPDU that `octets` begin with, 0 if it is not complete. Its ULPDU is then in `ulpdu_`.
  std::size_t fpdu(View octets) {
    const std::size_t front = markers_ && position_ % 512 == 0 ? 4 : 0;
    if (octets.size() < front + 2) return 0;
    const std::size_t length = number(octets.subspan(front, 2));
    std::size_t left = 2 + length;
    left += (4 - left % 4) % 4;
    ulpdu_.clear();
    std::size_t at = 0;
    for (; left > 0;) {
      if (!pass_marker(octets, at, front)) return 0;
      std::size_t take = std::min(left, octets.size() - at);
      if (markers_) take = std::min(take, 512 - (position_ + at) % 512);
      if (take == 0) return 0;
      ulpdu_.insert(ulpdu_.end(), octets.begin() + static_cast<std::ptrdiff_t>(at),
                    octets.begin() + static_cast<std::ptrdiff_t>(at + take));
      at += take;
      left -= take;
    }
    if (!pass_marker(octets, at, front) || octets.size() < at + 4) return 0;
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < 4; ++i) sum |= static_cast<std::uint32_t>(octets[at + i]) << (8 * i);
    if (crc_) check(sum == crc32c(octets.first(at)));
    check(std::all_of(ulpdu_.begin() + static_cast<std::ptrdiff_t>(2 + length), ulpdu_.end(),
                      [](std::uint8_t octet) { return octet == 0; }));
    ulpdu_.resize(2 + length);
    ulpdu_.erase(ulpdu_.begin(), ulpdu_.begin() + 2);
    return at + 4;
  }
  // False if the marker has not come as a whole.
  bool pass_marker(View octets, std::size_t& at, std::size_t front) const {
    if (!markers_ || (position_ + at) % 512 != 0) return true;
    if (octets.size() < at + 4) return false;
    check(number(octets.subspan(at, 4)) == (at == 0 ? 0 : at - front));
    at += 4;
    return true;
  }

  bool crc_ = true, markers_ = false;
  std::size_t position_ = 0;  // of the next FPDU
  Bytes octets_, ulpdu_;
};

}  // namespace uiw::fuzz
