// SPDX-License-Identifier: MIT
// The blocks of a capture file (draft-ietf-opsawg-pcapng): a section header, one interface without a link layer, and a
// packet for each TCP segment. Numbers are in the byte order of the host, which the section header tells.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace uiw::provider::pcapng {

inline constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;
inline constexpr std::uint32_t kByteOrder = 0x1A2B3C4D;
inline constexpr std::uint32_t kInterfaceDescription = 1;
inline constexpr std::uint32_t kEnhancedPacket = 6;
inline constexpr std::uint32_t kLeftOver = 0x80000000;  // a partial packet; readers skip blocks of this local type
inline constexpr std::uint16_t kLinkTypeRaw = 101;      // a packet starts with its IP header
inline constexpr std::uint16_t kOptionComment = 1;
inline constexpr std::uint16_t kSectionApplication = 4;
inline constexpr std::uint16_t kInterfaceName = 2;
inline constexpr std::uint16_t kInterfaceResolution = 9;
inline constexpr std::uint8_t kNanoseconds = 9;  // a resolution of 10^-9 seconds
inline constexpr std::uint16_t kPacketFlags = 2;

// Blocks and options are padded to a multiple of this many octets.
inline constexpr std::size_t kAlignment = 4;
inline constexpr std::uint32_t kSmallestBlock = 12;
constexpr std::size_t padding_of(std::size_t size) { return (kAlignment - size % kAlignment) % kAlignment; }

// The start of every block. `length` covers the whole block, and is repeated at the end of the block.
struct BlockStart {
  std::uint32_t type;
  std::uint32_t length;

  // Whether this may be the start of a block that uiw has written.
  bool is_valid() const {
    return (type == kSectionHeader || type == kInterfaceDescription || type == kEnhancedPacket || type == kLeftOver) &&
           length >= kSmallestBlock && length % kAlignment == 0;
  }
};

// Which way a packet went, as in the option kPacketFlags.
enum class Way : std::uint32_t { inbound = 1, outbound = 2 };

// Builds a block, front to back.
class BlockBuilder {
 public:
  explicit BlockBuilder(std::uint32_t type) {
    add(type);
    add(std::uint32_t{0});  // the length, which is known at the end
  }
  template <typename Number>
  void add(Number value) {
    const auto* const first = reinterpret_cast<const std::byte*>(&value);
    octets_.insert(octets_.end(), first, first + sizeof value);
  }
  void add_option(std::uint16_t code, std::string_view value) {
    add(code);
    add(static_cast<std::uint16_t>(value.size()));
    const auto* const first = reinterpret_cast<const std::byte*>(value.data());
    octets_.insert(octets_.end(), first, first + value.size());
    octets_.resize(octets_.size() + padding_of(value.size()));
  }
  // Ends the options and the block.
  std::vector<std::byte> finish() {
    add(std::uint32_t{0});
    const auto length = static_cast<std::uint32_t>(octets_.size() + sizeof(std::uint32_t));
    add(length);
    std::memcpy(octets_.data() + sizeof(std::uint32_t), &length, sizeof length);
    return std::move(octets_);
  }

 private:
  std::vector<std::byte> octets_;
};

// The start of a file: its section and the interface that all packets name. Throws std::bad_alloc.
inline std::vector<std::byte> encode_start(std::string_view application, std::string_view comment) {
  BlockBuilder section(kSectionHeader);
  section.add(kByteOrder);
  section.add(std::uint16_t{1});  // version 1.0
  section.add(std::uint16_t{0});
  section.add(~std::uint64_t{0});  // the section's length is not given
  section.add_option(kSectionApplication, application);
  section.add_option(kOptionComment, comment);
  BlockBuilder interface(kInterfaceDescription);
  interface.add(kLinkTypeRaw);
  interface.add(std::uint16_t{0});
  interface.add(std::uint32_t{0});  // snap length: packets are not cut
  interface.add_option(kInterfaceName, "uiw");
  interface.add_option(kInterfaceResolution, {reinterpret_cast<const char*>(&kNanoseconds), 1});
  std::vector<std::byte> start = section.finish();
  const std::vector<std::byte> second = interface.finish();
  start.insert(start.end(), second.begin(), second.end());
  return start;
}

// The part of a packet's block in front of the packet's octets. The packet has `size` octets, of which the block has
// `captured`.
struct PacketStart {
  std::uint32_t type = kEnhancedPacket;
  std::uint32_t block_length;
  std::uint32_t interface = 0;
  std::uint32_t time_high, time_low;  // nanoseconds since 1970
  std::uint32_t captured_length, original_length;

  PacketStart(std::uint64_t nanoseconds, std::size_t captured, std::size_t size);
};
static_assert(sizeof(PacketStart) == 28);

// The part of a packet's block after the packet's octets: padding, options, and the length of the block again. Only the
// size of the padding varies, so octets_ begins with the largest padding, and its first `skipped_` octets are left out.
class PacketEnd {
 public:
  PacketEnd(std::size_t captured, Way way, std::uint32_t block_length)
      : skipped_(kAlignment - 1 - padding_of(captured)) {
    struct {
      std::uint16_t code = kPacketFlags, length = sizeof(std::uint32_t);
      std::uint32_t way = 0;
      std::uint32_t end_of_options = 0;
      std::uint32_t block_length = 0;
    } fixed;
    fixed.way = static_cast<std::uint32_t>(way);
    fixed.block_length = block_length;
    static_assert(sizeof fixed == kFixed);
    std::memcpy(octets_.data() + kAlignment - 1, &fixed, sizeof fixed);
  }
  std::byte* data() { return octets_.data() + skipped_; }
  std::size_t size() const { return octets_.size() - skipped_; }

  static constexpr std::size_t kFixed = 16;

 private:
  std::array<std::byte, kAlignment - 1 + kFixed> octets_{};
  std::size_t skipped_;
};

inline PacketStart::PacketStart(std::uint64_t nanoseconds, std::size_t captured, std::size_t size)
    : block_length(
          static_cast<std::uint32_t>(sizeof(PacketStart) + captured + padding_of(captured) + PacketEnd::kFixed)),
      time_high(static_cast<std::uint32_t>(nanoseconds >> 32)),
      time_low(static_cast<std::uint32_t>(nanoseconds)),
      captured_length(static_cast<std::uint32_t>(captured)),
      original_length(static_cast<std::uint32_t>(size)) {}

}  // namespace uiw::provider::pcapng
