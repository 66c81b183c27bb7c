// SPDX-License-Identifier: MIT
// The frames by which the two ends of a TCP connection, both uiw's, agree to go on in shared memory (shared_stream.h).
// The caller sends a frame after it has received the MPA Reply, and the called end answers with a frame. Each frame
// carries the random number that its sender got from the other end over the Unix socket. This proves that the process
// that shares the memory has the other end of this TCP connection. A called end that cannot use the memory after all
// answers with the number 0, and both ends stay on TCP.
//
// No FPDU begins like this frame: reserved bits of the DDP control octet would be set (RFC 5041 section 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace uiw {

using SwitchNonce = std::array<std::byte, 16>;

//   0  kSwitchKey
//  16  the random number
constexpr std::string_view kSwitchKey = "uiw shared rings";
constexpr std::size_t kSwitchFrameSize = 32;
static_assert(kSwitchKey.size() + std::tuple_size_v<SwitchNonce> == kSwitchFrameSize);
using SwitchFrame = std::array<std::byte, kSwitchFrameSize>;

constexpr SwitchNonce kSwitchRefused{};

inline SwitchFrame encode(const SwitchNonce& nonce) {
  SwitchFrame frame;
  std::memcpy(frame.data(), kSwitchKey.data(), kSwitchKey.size());
  std::memcpy(frame.data() + kSwitchKey.size(), nonce.data(), nonce.size());
  return frame;
}

// Whether a frame may begin with these octets, which are at most as many as a frame has.
inline bool begins_switch_frame(Octets octets) {
  return std::memcmp(octets.data(), kSwitchKey.data(),
                     octets.size() < kSwitchKey.size() ? octets.size() : kSwitchKey.size()) == 0;
}

inline SwitchNonce decode_switch_frame(const SwitchFrame& frame) {
  SwitchNonce nonce;
  std::memcpy(nonce.data(), frame.data() + kSwitchKey.size(), nonce.size());
  return nonce;
}

}  // namespace uiw
