// SPDX-License-Identifier: MIT
// What two ends of uiw say on a TCP connection before they go over to shared memory (shared_stream.h): the caller
// behind the MPA reply, and then the called end, each a frame with the number that it has got from the other by the
// Unix socket. So each knows that the process with the memory has the other end of this connection. A called end that
// cannot use the memory after all answers with the number 0, which is nobody's, and both stay on TCP.
//
// No FPDU begins like this frame (RFC 5041 section 4: reserved bits of the DDP control octet would be set).
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
//  16  the number
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

// Whether these octets, up to a whole frame, begin as a frame does.
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
