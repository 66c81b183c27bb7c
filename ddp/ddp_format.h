// SPDX-License-Identifier: MIT
// DDP segment headers (RFC 5041 section 4) and the error codes of DDP (section 7.2). Encoding and decoding stand side
// by side. Encoders need room for the whole header. Decoders return no value if the header is cut short; they ignore
// octets after the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace uiw::ddp {

enum class Stag : std::uint32_t {};
enum class Msn : std::uint32_t {};  // counts messages of a queue from 1, modulo 2^32

constexpr Msn next(Msn msn) { return static_cast<Msn>(static_cast<std::uint32_t>(msn) + 1); }

constexpr std::size_t kTaggedHeaderSize = 14;
constexpr std::size_t kUntaggedHeaderSize = 18;
constexpr unsigned kDdpVersion = 1;

// The control octet: T, L, four reserved bits, DV.
struct Control {
  bool tagged = false;
  bool last = false;
  unsigned version = kDdpVersion;

  bool operator==(const Control&) const = default;
};

constexpr std::byte encode(Control control) {
  return static_cast<std::byte>((control.tagged ? 0x80 : 0) | (control.last ? 0x40 : 0) | (control.version & 0x03));
}
constexpr Control decode_control(std::byte octet) {
  const auto bits = std::to_integer<unsigned>(octet);
  return {(bits & 0x80) != 0, (bits & 0x40) != 0, bits & 0x03};
}

// Clears the L flag of an encoded header: the segment is not the last one of its message.
inline void clear_last(std::byte* header) { header[0] &= ~std::byte{0x40}; }

// `ulp_control` is the first RsvdULP octet: the RDMAP control octet.
struct TaggedHeader {
  bool last = false;
  std::uint8_t ulp_control = 0;
  Stag stag{};
  std::uint64_t offset = 0;  // TO

  bool operator==(const TaggedHeader&) const = default;
};

inline void encode(const TaggedHeader& header, std::byte* to) {
  to[0] = encode(Control{true, header.last, kDdpVersion});
  to[1] = static_cast<std::byte>(header.ulp_control);
  store_be(to + 2, static_cast<std::uint32_t>(header.stag));
  store_be(to + 6, header.offset);
}

inline std::optional<TaggedHeader> decode_tagged(Octets from) {
  if (from.size() < kTaggedHeaderSize) return std::nullopt;
  TaggedHeader header;
  header.last = decode_control(from[0]).last;
  header.ulp_control = std::to_integer<std::uint8_t>(from[1]);
  header.stag = static_cast<Stag>(load_be<std::uint32_t>(from.data() + 2));
  header.offset = load_be<std::uint64_t>(from.data() + 6);
  return header;
}

// `ulp_word` is the rest of RsvdULP: the Invalidate STag where the RDMAP opcode has one.
struct UntaggedHeader {
  bool last = false;
  std::uint8_t ulp_control = 0;
  std::uint32_t ulp_word = 0;
  std::uint32_t queue = 0;  // QN
  Msn msn{};
  std::uint32_t offset = 0;  // MO

  bool operator==(const UntaggedHeader&) const = default;
};

inline void encode(const UntaggedHeader& header, std::byte* to) {
  to[0] = encode(Control{false, header.last, kDdpVersion});
  to[1] = static_cast<std::byte>(header.ulp_control);
  store_be(to + 2, header.ulp_word);
  store_be(to + 6, header.queue);
  store_be(to + 10, static_cast<std::uint32_t>(header.msn));
  store_be(to + 14, header.offset);
}

inline std::optional<UntaggedHeader> decode_untagged(Octets from) {
  if (from.size() < kUntaggedHeaderSize) return std::nullopt;
  UntaggedHeader header;
  header.last = decode_control(from[0]).last;
  header.ulp_control = std::to_integer<std::uint8_t>(from[1]);
  header.ulp_word = load_be<std::uint32_t>(from.data() + 2);
  header.queue = load_be<std::uint32_t>(from.data() + 6);
  header.msn = static_cast<Msn>(load_be<std::uint32_t>(from.data() + 10));
  header.offset = load_be<std::uint32_t>(from.data() + 14);
  return header;
}

// Error types and codes of a Terminate with layer DDP.
enum class ErrorType : std::uint8_t { local_catastrophic = 0, tagged = 1, untagged = 2 };

enum class TaggedError : std::uint8_t {
  invalid_stag = 0x00,
  base_or_bounds = 0x01,
  not_associated = 0x02,
  wrap = 0x03,
  version = 0x04,
};

enum class UntaggedError : std::uint8_t {
  invalid_queue = 0x01,
  no_buffer = 0x02,
  msn_range = 0x03,
  invalid_offset = 0x04,
  too_long = 0x05,
  version = 0x06,
};

}  // namespace uiw::ddp
