// SPDX-License-Identifier: MIT
// The fields of a datagram's IP header that the sender's address handle sets and that the receiver finds in front of
// the payload (grh.h). Annex A17 of the InfiniBand specification derives them from the fields of the GRH.
#pragma once

#include <cstdint>

namespace uiw::provider {

struct IpFields {
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;    // in an address handle, 0 stands for the kernel's default
  std::uint32_t flow_label = 0;  // 20 bits, only in IPv6

  bool operator==(const IpFields&) const = default;
};

}  // namespace uiw::provider
