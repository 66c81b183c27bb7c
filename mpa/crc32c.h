// SPDX-License-Identifier: MIT
// CRC32c (Castagnoli) as MPA uses it (RFC 5044 section 4.4): the iSCSI polynomial, reflected, initial value and
// final complement all ones, sent least significant octet first.
#pragma once

#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/bytes.h"

namespace uiw::mpa {

class Crc32c {
 public:
  // `size` must be below 2^31; one FPDU is much smaller.
  void add(const void* data, std::size_t size) {
    // ISA-L takes a pointer to non-const but does not write through it.
    state_ = crc32_iscsi(static_cast<unsigned char*>(const_cast<void*>(data)), static_cast<int>(size), state_);
  }
  void add(Octets data) { add(data.data(), data.size()); }
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = std::numeric_limits<std::uint32_t>::max();
};

// Write and read the CRC field of an FPDU, which is 4 octets long.
inline void store_crc(std::byte* to, std::uint32_t crc) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(crc >> (8 * i));
}
inline std::uint32_t load_crc(const std::byte* from) {
  std::uint32_t crc = 0;
  for (int i = 0; i < 4; ++i) crc |= std::to_integer<std::uint32_t>(from[i]) << (8 * i);
  return crc;
}

}  // namespace uiw::mpa
