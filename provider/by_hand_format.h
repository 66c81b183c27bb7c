// SPDX-License-Identifier: MIT
// What the two ends of a connection made by hand say of themselves in the private data of their MPA frames: who calls
// whom. Encode and decode side by side; big-endian; nothing here allocates or throws.
//
// An end that speaks this also knows Send with immediate, and the notice of what is dealt with
// (rdmap::kNoticeBit).
#pragma once

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "mpa/bytes.h"
#include "provider/device.h"

namespace uiw::provider {

struct PairGreeting {
  std::uint32_t source_qp = 0, destination_qp = 0;  // of who says it, and of whom it is said to
  Gid source{}, destination{};

  bool operator==(const PairGreeting&) const = default;
  PairGreeting reversed() const { return {destination_qp, source_qp, destination, source}; }
};

enum class PairRefusal : std::uint8_t {
  none = 0,
  no_such_qp = 1,
  other_peer = 2,  // it is connected to somebody else, or is itself the one to call
  wrong_address = 3,
  malformed = 4,
};

//   octet  0..7   "uiw-pair"
//          8      version, 1
//          9      in a rejection why, else 0
//         10..11  reserved: zero on send, ignored on receive
//         12..19  QP numbers: source, destination
//         20..51  GIDs: source, destination
constexpr std::string_view kPairKey = "uiw-pair";
constexpr std::uint8_t kPairVersion = 1;
constexpr std::size_t kPairGreetingSize = 52;

using PairOctets = std::array<std::byte, kPairGreetingSize>;

inline PairOctets encode(const PairGreeting& greeting, PairRefusal refusal = PairRefusal::none) {
  PairOctets octets{};
  std::memcpy(octets.data(), kPairKey.data(), kPairKey.size());
  octets[8] = std::byte{kPairVersion};
  octets[9] = static_cast<std::byte>(refusal);
  mpa::store_be<std::uint32_t>(octets.data() + 12, greeting.source_qp);
  mpa::store_be<std::uint32_t>(octets.data() + 16, greeting.destination_qp);
  std::memcpy(octets.data() + 20, greeting.source.data(), greeting.source.size());
  std::memcpy(octets.data() + 36, greeting.destination.data(), greeting.destination.size());
  return octets;
}

// Empty for another key, version or length, or a rejection.
inline std::optional<PairGreeting> decode_pair_greeting(mpa::Octets from) {
  if (from.size() != kPairGreetingSize || std::memcmp(from.data(), kPairKey.data(), kPairKey.size()) != 0 ||
      from[8] != std::byte{kPairVersion} || from[9] != std::byte{0}) {
    return std::nullopt;
  }
  PairGreeting greeting;
  greeting.source_qp = mpa::load_be<std::uint32_t>(from.data() + 12);
  greeting.destination_qp = mpa::load_be<std::uint32_t>(from.data() + 16);
  std::memcpy(greeting.source.data(), from.data() + 20, greeting.source.size());
  std::memcpy(greeting.destination.data(), from.data() + 36, greeting.destination.size());
  return greeting;
}

}  // namespace uiw::provider
