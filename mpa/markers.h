// SPDX-License-Identifier: MIT
// Markers (RFC 5044 section 4.3): with them a receiver finds the start of an FPDU in a TCP stream of which parts are
// missing. A marker stands at every kMarkerSpacing octets of the stream, markers included, and contains its distance
// from the ULPDU_Length field of its FPDU. A marker between two FPDUs belongs to the second FPDU and precedes its
// ULPDU_Length field. Each direction of a stream has markers if its receiver has asked for them.
//
// The position of an octet is the number of octets before it in its direction of the stream, from the start of full
// operation on; only its remainder modulo kMarkerSpacing matters. FPDUs begin at multiples of four, so no marker
// divides a field of MPA.
//
// No I/O. Only remove_markers() can fail. Thread-safe if no other thread uses the memory that is passed.
#pragma once

#include <algorithm>
#include <cstddef>

#include "mpa/mpa_format.h"

namespace uiw::mpa {

constexpr std::size_t kMarkerSpacing = 512;
constexpr std::size_t kMarkerSize = 4;

// The offset of ULPDU_Length in an FPDU at `position`: kMarkerSize if the FPDU begins with a marker, else 0.
constexpr std::size_t length_offset(std::size_t position) { return position % kMarkerSpacing == 0 ? kMarkerSize : 0; }

// Octets on the wire of an FPDU at `position` that has `size` octets without markers.
constexpr std::size_t marked_size(std::size_t position, std::size_t size) {
  const std::size_t before = (kMarkerSpacing - position % kMarkerSpacing) % kMarkerSpacing;
  if (size <= before) return size;
  constexpr std::size_t kBetween = kMarkerSpacing - kMarkerSize;
  return size + ((size - before - 1) / kBetween + 1) * kMarkerSize;
}
// FPDUPTR, a marker's distance from ULPDU_Length, has 16 bits. This is enough for each FPDU that uiw sends. If a
// received FPDU is longer, only the low 16 bits of the distance are compared.
static_assert(marked_size(0, fpdu_size(kMaxMulpdu)) <= 0x10000);

// The largest ULPDU whose FPDU fits the effective maximum segment size wherever the markers stand in the FPDU (RFC 5044
// section 4.5), but at least kMinMulpdu and at most kMaxMulpdu.
constexpr std::size_t marked_mulpdu(std::size_t emss) {
  const std::size_t markers = kMarkerSize * ((emss + kMarkerSpacing - 1) / kMarkerSpacing);
  return mulpdu(emss - std::min(emss, markers));
}

// `marked` has marked_size() octets; the last `size` of them are the FPDU without markers. Inserts the markers, so that
// the FPDU fills `marked`. The caller computes the CRC afterwards, since it covers the markers (RFC 5044 section 4.4).
void insert_markers(MutableOctets marked, std::size_t size, std::size_t position);

// Removes the markers of a whole FPDU; the FPDU without them is then at the beginning of `marked`. False if a marker
// does not point to the ULPDU_Length field; the two low bits of the pointer are ignored.
bool remove_markers(MutableOctets marked, std::size_t position);

}  // namespace uiw::mpa
