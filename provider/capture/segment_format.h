// SPDX-License-Identifier: MIT
// Encodes the IP and TCP headers of captured segments (RFC 791, RFC 8200, RFC 9293). The TCP checksum is zero.
// Analysers accept a wrong checksum, since adapters often compute the checksum only after the segment has been
// captured.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uiw::provider {

// One end of a connection. An IPv4-mapped IPv6 address becomes the IPv4 one, as on the wire.
struct SegmentEndpoint {
  std::array<std::byte, 16> address{};
  std::size_t address_size = 4;  // or 16
  std::uint16_t port = 0;        // in host order

  SegmentEndpoint() = default;
  explicit SegmentEndpoint(const sockaddr_storage& from) {
    if (from.ss_family == AF_INET6) {
      const auto& ip = reinterpret_cast<const sockaddr_in6&>(from);
      const bool mapped = IN6_IS_ADDR_V4MAPPED(&ip.sin6_addr);
      address_size = mapped ? 4 : 16;
      std::memcpy(address.data(), ip.sin6_addr.s6_addr + (mapped ? 12 : 0), address_size);
      port = ntohs(ip.sin6_port);
    } else {
      const auto& ip = reinterpret_cast<const sockaddr_in&>(from);
      std::memcpy(address.data(), &ip.sin_addr, address_size);
      port = ntohs(ip.sin_port);
    }
  }
  std::span<const std::byte> octets() const { return std::span(address).first(address_size); }
  auto operator<=>(const SegmentEndpoint&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
};

enum SegmentFlags : std::uint8_t { kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16 };

struct Segment {
  SegmentEndpoint from, to;
  std::uint32_t sequence = 0, acknowledged = 0;
  std::uint8_t flags = 0;
  std::size_t payload = 0;  // octets, at most kMostSegmentPayload
};

inline constexpr std::size_t kMostSegmentHeaders = 40 + 20 + 4;
// The most octets of payload that a segment can have: the length field of IPv4 has 16 bits and includes the headers.
inline constexpr std::size_t kMostSegmentPayload = 65535 - 20 - 20 - 4;

namespace detail {

// Writes numbers in network byte order, front to back.
class HeaderWriter {
 public:
  explicit HeaderWriter(std::span<std::byte> to) : to_(to) {}
  void put(std::uint64_t value, std::size_t size) {
    for (std::size_t i = size; i-- > 0;) to_[at_++] = static_cast<std::byte>(value >> (8 * i));
  }
  void put(std::span<const std::byte> octets) {
    std::copy(octets.begin(), octets.end(), to_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ += octets.size();
  }
  std::size_t size() const { return at_; }

 private:
  const std::span<std::byte> to_;
  std::size_t at_ = 0;
};

// The Internet checksum (RFC 1071) of an even number of octets.
inline std::uint16_t internet_checksum(std::span<const std::byte> octets) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < octets.size(); i += 2)
    sum += std::to_integer<std::uint32_t>(octets[i]) << 8 | std::to_integer<std::uint32_t>(octets[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace detail

// Writes the IP and TCP headers. Returns their size in octets.
inline std::size_t encode_headers(const Segment& segment, std::span<std::byte, kMostSegmentHeaders> to) {
  constexpr std::uint8_t kTcp = 6, kHopLimit = 64;
  constexpr std::uint64_t kWindowScale = 0x01'03'03'0e;  // NOP, window scale 14: the window never looks full
  const bool opens = (segment.flags & kSyn) != 0;
  const std::size_t tcp_size = opens ? 24 : 20;
  detail::HeaderWriter writer(to);
  if (segment.from.address_size == 4) {
    writer.put(0x4500, 2);
    writer.put(20 + tcp_size + segment.payload, 2);
    writer.put(0x0000'4000, 4);  // identification 0, Don't Fragment
    writer.put(kHopLimit, 1);
    writer.put(kTcp, 1);
    writer.put(0, 2);
    writer.put(segment.from.octets());
    writer.put(segment.to.octets());
    const std::uint16_t sum = detail::internet_checksum(to.first(20));
    to[10] = static_cast<std::byte>(sum >> 8);
    to[11] = static_cast<std::byte>(sum);
  } else {
    writer.put(0x6000'0000, 4);
    writer.put(tcp_size + segment.payload, 2);
    writer.put(kTcp, 1);
    writer.put(kHopLimit, 1);
    writer.put(segment.from.octets());
    writer.put(segment.to.octets());
  }
  writer.put(segment.from.port, 2);
  writer.put(segment.to.port, 2);
  writer.put(segment.sequence, 4);
  writer.put(segment.acknowledged, 4);
  writer.put(tcp_size / 4 << 4, 1);
  writer.put(segment.flags, 1);
  writer.put(0xffff, 2);  // window
  writer.put(0, 4);       // checksum, urgent pointer
  if (opens) writer.put(kWindowScale, 4);
  return writer.size();
}

}  // namespace uiw::provider
