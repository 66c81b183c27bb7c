// SPDX-License-Identifier: MIT
// The fields of the IP header of a datagram that an address handle sets, and that its receiver finds in the header in
// front of the payload (grh.h). By annex A17 of the InfiniBand specification they are those of the GRH.
#pragma once

#include <cstdint>

namespace uiw::provider {

struct IpFields {
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;    // in an address handle, 0 is the kernel's default
  std::uint32_t flow_label = 0;  // 20 bits, IPv6 alone

  bool operator==(const IpFields&) const = default;
};

}  // namespace uiw::provider
