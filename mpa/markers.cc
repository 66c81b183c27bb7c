// SPDX-License-Identifier: MIT
#include "mpa/markers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace uiw::mpa {

namespace {

// A marker is two reserved octets, zero when sent and ignored when received, and FPDUPTR: the number of octets from the
// first one of the ULPDU_Length field to the first one of the marker. The two low bits of a received FPDUPTR are
// ignored.
void encode_marker(std::byte* to, std::uint16_t pointer) {
  store_be<std::uint16_t>(to, 0);
  store_be<std::uint16_t>(to + 2, pointer);
}

std::uint16_t decode_marker(const std::byte* from) {
  return static_cast<std::uint16_t>(load_be<std::uint16_t>(from + 2) & ~3U);
}

// FPDUPTR of the marker at `offset` in its FPDU; `length` is the offset of ULPDU_Length.
std::uint16_t pointer_at(std::size_t offset, std::size_t length) {
  return static_cast<std::uint16_t>(offset < length ? 0 : offset - length);
}

// The number of octets from `offset` in an FPDU at `position` to the next marker, `most` at most.
std::size_t run(std::size_t position, std::size_t offset, std::size_t most) {
  return std::min(most, kMarkerSpacing - (position + offset) % kMarkerSpacing);
}

bool is_marker(std::size_t position, std::size_t offset) { return (position + offset) % kMarkerSpacing == 0; }

}  // namespace

void insert_markers(MutableOctets marked, std::size_t size, std::size_t position) {
  const std::size_t length = length_offset(position);
  std::size_t to = 0;
  for (std::size_t from = marked.size() - size; from < marked.size();) {
    if (is_marker(position, to)) {
      encode_marker(marked.data() + to, pointer_at(to, length));
      to += kMarkerSize;
    }
    const std::size_t octets = run(position, to, marked.size() - from);
    std::memmove(marked.data() + to, marked.data() + from, octets);
    from += octets;
    to += octets;
  }
}

bool remove_markers(MutableOctets marked, std::size_t position) {
  const std::size_t length = length_offset(position);
  std::size_t to = 0;
  for (std::size_t from = 0; from < marked.size();) {
    if (is_marker(position, from)) {
      if (decode_marker(marked.data() + from) != pointer_at(from, length)) return false;
      from += kMarkerSize;
    }
    const std::size_t octets = run(position, from, marked.size() - from);
    std::memmove(marked.data() + to, marked.data() + from, octets);
    from += octets;
    to += octets;
  }
  return true;
}

}  // namespace uiw::mpa
