// SPDX-License-Identifier: MIT
// Reads and writes the big-endian fields of wire formats in octet buffers. These functions do not check the length of
// the buffer; the caller has checked it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace uiw {

using Octets = std::span<const std::byte>;
using MutableOctets = std::span<std::byte>;

namespace detail {
template <typename T>
constexpr T swap_if_little(T value) {
  if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    return __builtin_bswap64(value);
  }
}
}  // namespace detail

template <typename T>
T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return detail::swap_if_little(value);
}

template <typename T>
void store_be(std::byte* to, T value) {
  value = detail::swap_if_little(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace uiw
