// SPDX-License-Identifier: MIT
// The greeting that each end of a manual connection (made without rdma_cm) sends in the private data of its MPA frame.
// It names the queue pairs of both ends. Encoding and decoding stand side by side; big-endian; nothing here allocates
// or throws.
//
// Different releases of uiw understand each other: the fixed part never changes, and additions are options. An end
// ignores options that it does not know. So an option must take effect only if both ends have sent it, or be harmless
// if only one end knows it.
//
// An end that sends a greeting also supports Send with immediate, and progress reports (rdmap::kRnrReport).
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "provider/process/device.h"

namespace uiw::provider {

struct PairGreeting {
  std::uint32_t source_qp = 0, destination_qp = 0;  // of the sender and of the receiver of the greeting
  Gid source{}, destination{};
  std::uint32_t psn = 0;  // the rq_psn of the source; 0 if its program has set none

  bool operator==(const PairGreeting&) const = default;
  // Compares the two ends only, not the PSN.
  bool same_ends(const PairGreeting& other) const {
    return source_qp == other.source_qp && destination_qp == other.destination_qp && source == other.source &&
           destination == other.destination;
  }
  PairGreeting reversed() const { return {destination_qp, source_qp, destination, source, 0}; }
};

enum class PairRefusal : std::uint8_t {
  none = 0,
  no_such_qp = 1,
  other_peer = 2,  // the queue pair has another peer, or is itself the end that calls
  wrong_address = 3,
  malformed = 4,
  other_user = 5,  // the TCP port of `source_qp` does not belong to the caller's user, or one of the users is unknown
};

//   octet  0..7   "uiw-pair"
//          8      version, 2
//          9      in a rejection the reason (PairRefusal), else 0
//         10..11  size of the options, in octets
//         12..19  QP numbers: source, destination
//         20..51  GIDs: source, destination
//         52..    options: type (16 bits), size of the value in octets (16 bits), value
constexpr std::string_view kPairKey = "uiw-pair";
constexpr std::uint8_t kPairVersion = 2;
constexpr std::size_t kPairFixedSize = 52, kPairOptionHeader = 4;
constexpr std::uint16_t kPairPsn = 1;  // 4 octets: PairGreeting::psn
constexpr std::size_t kPairGreetingSize = kPairFixedSize + kPairOptionHeader + 4;

using PairOctets = std::array<std::byte, kPairGreetingSize>;

inline PairOctets encode(const PairGreeting& greeting, PairRefusal refusal = PairRefusal::none) {
  PairOctets octets{};
  std::memcpy(octets.data(), kPairKey.data(), kPairKey.size());
  octets[8] = std::byte{kPairVersion};
  octets[9] = static_cast<std::byte>(refusal);
  store_be<std::uint16_t>(octets.data() + 10, kPairGreetingSize - kPairFixedSize);
  store_be<std::uint32_t>(octets.data() + 12, greeting.source_qp);
  store_be<std::uint32_t>(octets.data() + 16, greeting.destination_qp);
  std::memcpy(octets.data() + 20, greeting.source.data(), greeting.source.size());
  std::memcpy(octets.data() + 36, greeting.destination.data(), greeting.destination.size());
  std::byte* option = octets.data() + kPairFixedSize;
  store_be<std::uint16_t>(option, kPairPsn);
  store_be<std::uint16_t>(option + 2, 4);
  store_be<std::uint32_t>(option + kPairOptionHeader, greeting.psn);
  return octets;
}

// Decodes a greeting. Empty for another key or version, for a rejection, if `from` is too short for the fixed part or
// the options, or if an option is longer than the options. Octets after the options are ignored.
inline std::optional<PairGreeting> decode_pair_greeting(Octets from) {
  if (from.size() < kPairFixedSize || std::memcmp(from.data(), kPairKey.data(), kPairKey.size()) != 0 ||
      from[8] != std::byte{kPairVersion} || from[9] != std::byte{0}) {
    return std::nullopt;
  }
  PairGreeting greeting;
  greeting.source_qp = load_be<std::uint32_t>(from.data() + 12);
  greeting.destination_qp = load_be<std::uint32_t>(from.data() + 16);
  std::memcpy(greeting.source.data(), from.data() + 20, greeting.source.size());
  std::memcpy(greeting.destination.data(), from.data() + 36, greeting.destination.size());
  const std::size_t size = load_be<std::uint16_t>(from.data() + 10);
  if (size > from.size() - kPairFixedSize) return std::nullopt;
  for (Octets options = from.subspan(kPairFixedSize, size); !options.empty();) {
    if (options.size() < kPairOptionHeader) return std::nullopt;
    const auto type = load_be<std::uint16_t>(options.data());
    const std::size_t length = load_be<std::uint16_t>(options.data() + 2);
    options = options.subspan(kPairOptionHeader);
    if (length > options.size()) return std::nullopt;
    if (type == kPairPsn && length == 4) greeting.psn = load_be<std::uint32_t>(options.data());
    options = options.subspan(length);
  }
  return greeting;
}

}  // namespace uiw::provider
