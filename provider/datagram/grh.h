// SPDX-License-Identifier: MIT
// Writes the IP header that stands in front of a received datagram in the receive buffer. On RoCE v2, programs and
// libibverbs (ibv_init_ah_from_wc) read the IP header there. Formats: RFC 791 section 3.1, RFC 8200 section 3.
#pragma once

#include <cstring>

#include "base/bytes.h"
#include "provider/datagram/datagram_target.h"

namespace uiw::provider {

// How many octets a RoCE v2 packet with a message has after its UDP header (IBA, annex A17): BTH, DETH, the immediate,
// the message with its padding, ICRC. uiw's datagrams have other headers, which the program does not see.
constexpr std::size_t roce_octets(std::size_t message, bool immediate) {
  constexpr std::size_t kBth = 12, kDeth = 8, kImmediate = 4, kIcrc = 4;
  return kBth + kDeth + (immediate ? kImmediate : 0) + (message + 3) / 4 * 4 + kIcrc;
}

// `udp_payload`: the number of octets after the UDP header.
inline Grh grh_of(const Gid& from, const Gid& to, const IpFields& ip, std::size_t udp_payload) {
  constexpr std::byte kUdp{17};
  constexpr std::size_t kUdpHeader = 8, kIpv4Header = 20, kMapped = 12;
  Grh grh{};
  if (!is_ipv4(to)) {
    constexpr std::uint32_t kVersion = 6;
    store_be<std::uint32_t>(grh.data(), kVersion << 28 | std::uint32_t{ip.traffic_class} << 20 | ip.flow_label);
    store_be<std::uint16_t>(grh.data() + 4, static_cast<std::uint16_t>(udp_payload + kUdpHeader));
    grh[6] = kUdp;
    grh[7] = std::byte{ip.hop_limit};
    std::memcpy(grh.data() + 8, from.data(), from.size());
    std::memcpy(grh.data() + 24, to.data(), to.size());
    return grh;
  }
  std::byte* const header = grh.data() + kGrhSize - kIpv4Header;
  header[0] = std::byte{0x45};
  header[1] = std::byte{ip.traffic_class};
  store_be<std::uint16_t>(header + 2, static_cast<std::uint16_t>(udp_payload + kUdpHeader + kIpv4Header));
  header[6] = std::byte{0x40};  // do not fragment
  header[8] = std::byte{ip.hop_limit};
  header[9] = kUdp;
  std::memcpy(header + 12, from.data() + kMapped, 4);
  std::memcpy(header + 16, to.data() + kMapped, 4);
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Header; i += 2) sum += load_be<std::uint16_t>(header + i);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  store_be<std::uint16_t>(header + 10, static_cast<std::uint16_t>(~sum));
  return grh;
}

}  // namespace uiw::provider
