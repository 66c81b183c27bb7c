// SPDX-License-Identifier: MIT
// The messages by which a caller of rdma_cm's port space UDP finds the queue pair of a service. They do what SIDR_REQ
// and SIDR_REP do on InfiniBand (InfiniBand Architecture Specification volume 1, section 12.11). Each is the payload of
// a UDP datagram. docs/datagrams.md describes them for other implementations.
//
// Encoding and decoding stand side by side. Octets from the wire are hostile: the decoder accepts only what the encoder
// makes, never reads past the end, allocates nothing and does not throw.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "mpa/crc32c.h"

namespace uiw::provider {

//   octet  0..3   "uiwl"
//          4      version, 1
//          5      kind: 1 request, 2 reply, 3 rejection
//          6..7   the size of the private data
//          8..15  a number that the caller has chosen for its request; the answer has the same number
//         16..19  in a reply: the queue pair number of the service, of 24 bits; else zero
//         20..23  in a reply: the Q_Key of this queue pair; else zero
//         24..    private data
//         the last four: CRC32c of all octets before, least significant octet first, as in an FPDU
// Numbers are big-endian.
constexpr std::string_view kLookupKey = "uiwl";
constexpr std::uint8_t kLookupVersion = 1;
constexpr std::size_t kLookupHeaderSize = 24, kLookupCrcSize = 4;
constexpr std::size_t kMostLookupData = 255;
constexpr std::size_t kMostLookupSize = kLookupHeaderSize + kMostLookupData + kLookupCrcSize;
constexpr std::uint32_t kNoService = 0xFFFFFF;  // the QP number of multicast; a reply has a smaller QP number

enum class LookupKind : std::uint8_t { request = 1, reply = 2, rejection = 3 };

struct LookupMessage {
  LookupKind kind = LookupKind::request;
  std::uint64_t request = 0;
  std::uint32_t qp_number = 0, qkey = 0;  // in a reply
  Octets private_data;                    // at most kMostLookupData octets
};

struct EncodedLookup {
  std::array<std::byte, kMostLookupSize> room{};
  std::size_t size = 0;
  Octets octets() const { return Octets(room).first(size); }
};

inline EncodedLookup encode(const LookupMessage& message) {
  EncodedLookup encoded;
  std::byte* const to = encoded.room.data();
  std::memcpy(to, kLookupKey.data(), kLookupKey.size());
  to[4] = std::byte{kLookupVersion};
  to[5] = static_cast<std::byte>(message.kind);
  store_be<std::uint16_t>(to + 6, static_cast<std::uint16_t>(message.private_data.size()));
  store_be<std::uint64_t>(to + 8, message.request);
  store_be<std::uint32_t>(to + 16, message.qp_number);
  store_be<std::uint32_t>(to + 20, message.qkey);
  if (!message.private_data.empty()) {
    std::memcpy(to + kLookupHeaderSize, message.private_data.data(), message.private_data.size());
  }
  const std::size_t covered = kLookupHeaderSize + message.private_data.size();
  mpa::Crc32c crc;
  crc.add(Octets(encoded.room).first(covered));
  mpa::store_crc(to + covered, crc.value());
  encoded.size = covered + kLookupCrcSize;
  return encoded;
}

// `from` is a whole UDP payload. The result refers to the octets of `from`. Empty if encode() cannot have made the
// payload.
inline std::optional<LookupMessage> decode_lookup(Octets from) {
  if (from.size() < kLookupHeaderSize + kLookupCrcSize || from.size() > kMostLookupSize) return std::nullopt;
  const std::byte* const octets = from.data();
  if (std::memcmp(octets, kLookupKey.data(), kLookupKey.size()) != 0) return std::nullopt;
  if (octets[4] != std::byte{kLookupVersion}) return std::nullopt;
  const Octets covered = from.first(from.size() - kLookupCrcSize);
  mpa::Crc32c crc;
  crc.add(covered);
  if (mpa::load_crc(octets + covered.size()) != crc.value()) return std::nullopt;
  LookupMessage message;
  message.kind = static_cast<LookupKind>(octets[5]);
  message.request = load_be<std::uint64_t>(octets + 8);
  message.qp_number = load_be<std::uint32_t>(octets + 16);
  message.qkey = load_be<std::uint32_t>(octets + 20);
  message.private_data = covered.subspan(kLookupHeaderSize);
  if (load_be<std::uint16_t>(octets + 6) != message.private_data.size()) return std::nullopt;
  switch (message.kind) {
    case LookupKind::reply:
      if (message.qp_number >= kNoService) return std::nullopt;
      return message;
    case LookupKind::request:
    case LookupKind::rejection:
      if (message.qp_number != 0 || message.qkey != 0) return std::nullopt;
      return message;
  }
  return std::nullopt;
}

}  // namespace uiw::provider
