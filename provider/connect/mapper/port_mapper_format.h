// SPDX-License-Identifier: MIT
// The messages of the iWARP port mapper, encoded and decoded: each is the whole payload of a UDP datagram. The format
// is that of rdma-core's iwpmd (iwpmd/iwarp_pm.h), by which iWARP adapters find each other's TCP ports.
//
// A caller sends a request, from any UDP port, to UDP port 3935 of the called host. The mapper there answers with an
// accept, which names the TCP port that a listener's RDMA port is mapped to, or with a reject if there is no such
// listener. The caller acknowledges an accept.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "provider/connect/port_space.h"

namespace uiw::provider {

//   0  version (2 bits: 0, or 1 as below), PortMapperKind (2 bits), IP version of all addresses (4 bits, 4 or 6)
//   1  pmtime: in seconds, 0 if not given
//   2  in a request the port that the caller's own port is mapped to, else 0
//   4  port of the called end, in an accept the one to which it is mapped
//   6  port of the calling end
//   8  association: a number that the caller chooses, and that all messages of a query have
//  16  address of the calling end: 16 octets; of an IPv4 address the first four, and the others mean nothing
//  32  address of the called end, as above
//  48  in a request the address to which the caller's is mapped; other messages end here, and so may a request
// Numbers are big-endian.
//
// Version 1 is uiw's own, for rdma_cm's port space UDP: the format is the same, and an accept names a UDP port. Other
// mappers know only version 0.
constexpr std::uint16_t kPortMapperPort = 3935;
constexpr std::size_t kPortMapperSize = 48, kPortMapperRequestSize = 64;

enum class PortMapperKind : std::uint8_t { request = 0, accept = 1, acknowledgement = 2, rejection = 3 };

// All addresses are of the family of `called`, and have their ports in network order.
struct PortMapperMessage {
  PortMapperKind kind = PortMapperKind::request;
  PortSpace space = PortSpace::tcp;
  std::uint8_t time = 0;
  std::uint64_t association = 0;
  sockaddr_storage caller{}, called{};
  sockaddr_storage mapped_caller{};  // in a request
};

struct EncodedPortMapper {
  std::array<std::byte, kPortMapperRequestSize> room{};
  std::size_t size = 0;
  Octets octets() const { return Octets(room).first(size); }
};

namespace detail {

constexpr std::size_t kPortMapperAddress = 16;

inline void encode_mapper_end(const sockaddr_storage& end, std::byte* port, std::byte* address) {
  if (end.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
    std::memcpy(port, &v6.sin6_port, sizeof v6.sin6_port);
    std::memcpy(address, &v6.sin6_addr, sizeof v6.sin6_addr);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    std::memcpy(port, &v4.sin_port, sizeof v4.sin_port);
    std::memcpy(address, &v4.sin_addr, sizeof v4.sin_addr);
  }
}

inline sockaddr_storage decode_mapper_end(bool ipv6, const std::byte* port, const std::byte* address) {
  sockaddr_storage end{};
  if (ipv6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(end);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_port, port, sizeof v6.sin6_port);
    std::memcpy(&v6.sin6_addr, address, sizeof v6.sin6_addr);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(end);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_port, port, sizeof v4.sin_port);
    std::memcpy(&v4.sin_addr, address, sizeof v4.sin_addr);
  }
  return end;
}

}  // namespace detail

inline EncodedPortMapper encode(const PortMapperMessage& message) {
  EncodedPortMapper encoded;
  std::byte* const to = encoded.room.data();
  const unsigned ip = message.called.ss_family == AF_INET6 ? 6 : 4;
  const unsigned version = message.space == PortSpace::tcp ? 0 : 1;
  to[0] = static_cast<std::byte>(version << 6 | static_cast<unsigned>(message.kind) << 4 | ip);
  to[1] = static_cast<std::byte>(message.time);
  detail::encode_mapper_end(message.called, to + 4, to + 32);
  detail::encode_mapper_end(message.caller, to + 6, to + 16);
  store_be<std::uint64_t>(to + 8, message.association);
  encoded.size = kPortMapperSize;
  if (message.kind != PortMapperKind::request) return encoded;
  detail::encode_mapper_end(message.mapped_caller, to + 2, to + 48);
  encoded.size = kPortMapperRequestSize;
  return encoded;
}

// Decodes a whole UDP payload. Empty if the format has no such length, version or IP version.
inline std::optional<PortMapperMessage> decode_port_mapper(Octets from) {
  if (from.size() != kPortMapperSize && from.size() != kPortMapperRequestSize) return std::nullopt;
  const std::byte* const octets = from.data();
  const unsigned first = std::to_integer<unsigned>(octets[0]);
  const unsigned ip = first & 0xF;
  if (first >> 6 > 1 || (ip != 4 && ip != 6)) return std::nullopt;
  PortMapperMessage message;
  message.kind = static_cast<PortMapperKind>(first >> 4 & 3);
  message.space = first >> 6 == 0 ? PortSpace::tcp : PortSpace::udp;
  message.time = std::to_integer<std::uint8_t>(octets[1]);
  message.association = load_be<std::uint64_t>(octets + 8);
  message.called = detail::decode_mapper_end(ip == 6, octets + 4, octets + 32);
  message.caller = detail::decode_mapper_end(ip == 6, octets + 6, octets + 16);
  if (message.kind == PortMapperKind::request && from.size() == kPortMapperRequestSize) {
    message.mapped_caller = detail::decode_mapper_end(ip == 6, octets + 2, octets + 48);
  }
  return message;
}

}  // namespace uiw::provider
