// SPDX-License-Identifier: MIT
// The octets of MPA: start-up frames (RFC 5044 section 7.1; enhanced header RFC 6581 section 9) and FPDUs (RFC 5044
// section 4.1). Encoding and decoding stand side by side. Decoders return no value for octets that are too short or
// invalid; no function here allocates or throws.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace uiw::mpa {

// ---- Start-up frames -------------------------------------------------------------------------------------------

constexpr std::size_t kStartupHeaderSize = 20;
constexpr std::size_t kMaxPdLength = 512;
constexpr std::size_t kEnhancedHeaderSize = 4;
constexpr std::size_t kMaxStartupFrame = kStartupHeaderSize + kMaxPdLength;
constexpr std::string_view kRequestKey = "MPA ID Req Frame";
constexpr std::string_view kReplyKey = "MPA ID Rep Frame";

enum class FrameKind : std::uint8_t { request, reply };

// The first 20 octets of either frame.
struct StartupHeader {
  FrameKind kind = FrameKind::request;
  bool markers = false;     // M: the sender of this frame wants markers in what it receives
  bool crc = false;         // C: the sender of this frame wants CRCs
  bool rejected = false;    // R: reply only
  bool enhanced = false;    // S: the private data starts with the enhanced header (RFC 6581)
  bool long_fpdus = false;  // request: the sender accepts FPDUs longer than a TCP segment; reply: both ends do
  std::uint8_t revision = 2;
  std::uint16_t pd_length = 0;  // octets that follow, including the enhanced header

  bool operator==(const StartupHeader&) const = default;
};

// A reserved flag with which siw offers to accept FPDUs that are longer than a TCP segment (its parameter try_gso). A
// reply has the flag only if the request had it, and no request of uiw has it.
constexpr std::uint8_t kLongFpdusFlag = 0x08;

inline void encode(const StartupHeader& header, std::byte* to) {
  const std::string_view key = header.kind == FrameKind::request ? kRequestKey : kReplyKey;
  std::memcpy(to, key.data(), key.size());
  to[16] = static_cast<std::byte>((header.markers ? 0x80 : 0) | (header.crc ? 0x40 : 0) | (header.rejected ? 0x20 : 0) |
                                  (header.enhanced ? 0x10 : 0) | (header.long_fpdus ? kLongFpdusFlag : 0));
  to[17] = static_cast<std::byte>(header.revision);
  store_be<std::uint16_t>(to + 18, header.pd_length);
}

// Returns no value for fewer than 20 octets, a wrong key, a revision other than 1 and 2, or more than 512 octets of
// private data. Reserved flags other than kLongFpdusFlag are ignored (RFC 5044 section 7.1.1).
inline std::optional<StartupHeader> decode_startup_header(Octets from) {
  if (from.size() < kStartupHeaderSize) return std::nullopt;
  StartupHeader header;
  if (std::memcmp(from.data(), kRequestKey.data(), kRequestKey.size()) == 0) {
    header.kind = FrameKind::request;
  } else if (std::memcmp(from.data(), kReplyKey.data(), kReplyKey.size()) == 0) {
    header.kind = FrameKind::reply;
  } else {
    return std::nullopt;
  }
  const auto flags = std::to_integer<unsigned>(from[16]);
  header.markers = (flags & 0x80) != 0;
  header.crc = (flags & 0x40) != 0;
  header.rejected = (flags & 0x20) != 0;
  header.enhanced = (flags & 0x10) != 0;
  header.long_fpdus = (flags & kLongFpdusFlag) != 0;
  header.revision = std::to_integer<std::uint8_t>(from[17]);
  header.pd_length = load_be<std::uint16_t>(from.data() + 18);
  if (header.revision != 1 && header.revision != 2) return std::nullopt;
  if (header.pd_length > kMaxPdLength) return std::nullopt;
  return header;
}

// The enhanced header (RFC 6581 section 9). If S is set, the private data of a frame of revision 2 begins with this
// header. Its IRD and ORD have 14 bits.
constexpr unsigned kMaxReadDepth = 0x3FFE;
constexpr unsigned kReadDepthNotNegotiated = 0x3FFF;

struct EnhancedHeader {
  bool peer_to_peer = false;  // A: a ready-to-receive message follows the reply
  bool rtr_fulpdu = false;    // B: that message may be an FPDU with an empty ULPDU
  bool rtr_write = false;     // C: that message may be a zero-length RDMA Write
  bool rtr_read = false;      // D: that message may be a zero-length RDMA Read
  std::uint16_t ird = kReadDepthNotNegotiated;
  std::uint16_t ord = kReadDepthNotNegotiated;

  bool operator==(const EnhancedHeader&) const = default;
};

inline void encode(const EnhancedHeader& header, std::byte* to) {
  store_be<std::uint16_t>(to, static_cast<std::uint16_t>((header.peer_to_peer ? 0x8000 : 0) |
                                                         (header.rtr_fulpdu ? 0x4000 : 0) | (header.ird & 0x3FFF)));
  store_be<std::uint16_t>(to + 2, static_cast<std::uint16_t>((header.rtr_write ? 0x8000 : 0) |
                                                             (header.rtr_read ? 0x4000 : 0) | (header.ord & 0x3FFF)));
}

inline std::optional<EnhancedHeader> decode_enhanced_header(Octets from) {
  if (from.size() < kEnhancedHeaderSize) return std::nullopt;
  const auto first = load_be<std::uint16_t>(from.data());
  const auto second = load_be<std::uint16_t>(from.data() + 2);
  EnhancedHeader header;
  header.peer_to_peer = (first & 0x8000) != 0;
  header.rtr_fulpdu = (first & 0x4000) != 0;
  header.ird = first & 0x3FFF;
  header.rtr_write = (second & 0x8000) != 0;
  header.rtr_read = (second & 0x4000) != 0;
  header.ord = second & 0x3FFF;
  return header;
}

// ---- FPDU ------------------------------------------------------------------------------------------------------

constexpr std::size_t kFpduLengthSize = 2;
constexpr std::size_t kCrcSize = 4;
constexpr std::size_t kMaxUlpdu = 0xFFFF;  // the largest ULPDU_Length; a receiver accepts up to this length
// The range of MULPDU, the largest ULPDU that is sent (RFC 5044 section 3).
constexpr std::size_t kMinMulpdu = 128, kMaxMulpdu = 64'768;

// PAD: zero octets between ULPDU and CRC, so that length field, ULPDU and PAD together are a multiple of four octets.
constexpr std::size_t pad_size(std::size_t ulpdu) { return (4 - (kFpduLengthSize + ulpdu) % 4) % 4; }

// Octets on the wire of an FPDU without markers.
constexpr std::size_t fpdu_size(std::size_t ulpdu) { return kFpduLengthSize + ulpdu + pad_size(ulpdu) + kCrcSize; }

// The largest ULPDU whose FPDU fits the effective maximum segment size (RFC 5044 section 4.5), but at least kMinMulpdu
// and at most kMaxMulpdu.
constexpr std::size_t mulpdu(std::size_t emss) {
  return emss < kMinMulpdu + 8 ? kMinMulpdu : std::min(emss - (6 + emss % 4), kMaxMulpdu);
}

// The largest ULPDU that is sent to a peer that accepts FPDUs longer than a TCP segment, if this end reads the payload
// itself, for the CRC or to copy it: 32 KiB of payload and the headers. So the payload stays in the caches, and the
// usual sizes of messages fill whole DDP segments. If only the kernel copies the payload, kMaxMulpdu is faster.
constexpr std::size_t kCachedMulpdu = 32 * 1024 + 18;

// The codes of a Terminate with layer LLP and type MPA (RFC 5044 section 8, RFC 6581 section 8).
enum class MpaError : std::uint8_t {
  closed = 0x01,
  crc = 0x02,
  marker = 0x03,
  invalid_frame = 0x04,
  local_catastrophic = 0x05,
  insufficient_ird = 0x06,
  no_matching_rtr = 0x07,
};

}  // namespace uiw::mpa
