// SPDX-License-Identifier: MIT
// Octets for tests: written down by hand, independent of the product's encoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace uiw::test {

using Bytes = std::vector<std::byte>;
using Octets = std::span<const std::byte>;

// Builds big-endian octets: Wire().u16(5).u32(1).bytes(...).
class Wire {
 public:
  Wire& u8(unsigned value) { return number(value, 1); }
  Wire& u16(unsigned value) { return number(value, 2); }
  Wire& u32(std::uint32_t value) { return number(value, 4); }
  Wire& u64(std::uint64_t value) { return number(value, 8); }
  Wire& add(Octets octets) {
    octets_.insert(octets_.end(), octets.begin(), octets.end());
    return *this;
  }
  Wire& text(std::string_view text) { return add(std::as_bytes(std::span(text.data(), text.size()))); }
  Wire& zeros(std::size_t count) {
    octets_.insert(octets_.end(), count, std::byte{0});
    return *this;
  }
  operator const Bytes&() const { return octets_; }
  operator Octets() const { return octets_; }
  const Bytes& bytes() const { return octets_; }
  std::size_t size() const { return octets_.size(); }

 private:
  Wire& number(std::uint64_t value, int size) {
    for (int i = size; i-- > 0;) octets_.push_back(static_cast<std::byte>(value >> (8 * i)));
    return *this;
  }
  Bytes octets_;
};

inline std::uint64_t big_endian(Octets octets) {
  std::uint64_t value = 0;
  for (const std::byte octet : octets) value = value << 8 | std::to_integer<std::uint64_t>(octet);
  return value;
}

// Octets that differ from their neighbours and from those of another seed.
inline Bytes pattern(std::size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  std::uint32_t state = seed * 2654435761U + 12345U;
  for (std::byte& octet : bytes) {
    state = state * 1664525U + 1013904223U;
    octet = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// CRC32c bit by bit, to check the fast one with.
inline std::uint32_t slow_crc32c(Octets octets) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte octet : octets) {
    crc ^= std::to_integer<std::uint32_t>(octet);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

// An FPDU by hand (RFC 5044 section 4.1).
inline Bytes fpdu(Octets ulpdu, bool crc) {
  Wire wire;
  wire.u16(static_cast<unsigned>(ulpdu.size())).add(ulpdu);
  while (wire.size() % 4 != 0) wire.u8(0);
  const std::uint32_t sum = crc ? slow_crc32c(wire.bytes()) : 0;
  for (int i = 0; i < 4; ++i) wire.u8(sum >> (8 * i) & 0xFF);
  return wire;
}

// The same with markers (RFC 5044 section 4.3), behind a stream of such FPDUs.
inline void add_marked_fpdu(Bytes& stream, Octets ulpdu, bool crc) {
  const std::size_t start = stream.size();
  std::size_t length = 0;
  bool begun = false;
  const auto put = [&](std::byte octet) {
    if (stream.size() % 512 == 0) {
      const std::size_t pointer = begun ? stream.size() - length : 0;
      for (const std::size_t part : {std::size_t{0}, std::size_t{0}, pointer >> 8, pointer & 0xFF}) {
        stream.push_back(static_cast<std::byte>(part));
      }
    }
    if (!std::exchange(begun, true)) length = stream.size();
    stream.push_back(octet);
  };
  const Bytes plain = fpdu(ulpdu, false);
  for (const std::byte octet : Octets(plain).first(plain.size() - 4)) put(octet);
  if (stream.size() % 512 == 0) {  // a marker before the CRC, which covers it
    put({});
    stream.pop_back();
  }
  const std::uint32_t sum = crc ? slow_crc32c(Octets(stream).subspan(start)) : 0;
  for (int i = 0; i < 4; ++i) put(static_cast<std::byte>(sum >> (8 * i)));
}

using Random = std::mt19937;
inline std::size_t between(Random& random, std::size_t least, std::size_t most) {
  return std::uniform_int_distribution<std::size_t>(least, most)(random);
}

}  // namespace uiw::test
