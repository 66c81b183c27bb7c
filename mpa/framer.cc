// SPDX-License-Identifier: MIT
#include "mpa/framer.h"

#include <algorithm>

#include "base/guarded_copy.h"
#include "mpa/crc32c.h"

namespace uiw::mpa {

namespace {
// PAD and CRC have at most 7 octets. Clearing a number of octets that the compiler knows is faster, and what is cleared
// behind the FPDU is not in use.
constexpr std::size_t kTrailerRoom = 8;
}  // namespace

// Adds the next `size` octets of the batch's own memory; octets that are adjacent in memory share a vector.
void Batch::add_own(std::size_t size) {
  std::byte* start = end();
  used_ += size;
  bytes_ += size;
  if (iov_count_ > 0) {
    iovec& last = iov_[iov_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == start) {
      last.iov_len += size;
      return;
    }
  }
  iov_[iov_count_++] = {start, size};
}

void Batch::add_external(const std::byte* data, std::size_t size) {
  iov_[iov_count_++] = {const_cast<std::byte*>(data), size};
  bytes_ += size;
}

void Batch::skip(std::size_t octets) {
  octets = std::min(octets, bytes_);
  bytes_ -= octets;
  fpdu_bytes_[0] -= static_cast<std::uint32_t>(octets);
  std::size_t first = 0;
  while (octets > 0) {
    iovec& vector = iov_[first];
    const std::size_t take = std::min(octets, vector.iov_len);
    vector.iov_base = static_cast<std::byte*>(vector.iov_base) + take;
    vector.iov_len -= take;
    octets -= take;
    if (vector.iov_len == 0) ++first;
  }
  if (first > 0) {
    std::copy(iov_.begin() + static_cast<std::ptrdiff_t>(first), iov_.begin() + static_cast<std::ptrdiff_t>(iov_count_),
              iov_.begin());
    iov_count_ -= first;
  }
}

bool Batch::copy_out(std::size_t from, std::size_t to, std::byte* out) const {
  std::size_t at = 0;
  for (std::size_t i = 0; i < iov_count_ && at < to; ++i) {
    const std::size_t end = at + iov_[i].iov_len;
    if (end > from) {
      const std::size_t begin = std::max(at, from);
      const std::size_t size = std::min(end, to) - begin;
      if (!guarded_copy_unordered(out, static_cast<const std::byte*>(iov_[i].iov_base) + (begin - at), size))
        return false;
      out += size;
    }
    at = end;
  }
  return true;
}

Framer::Result Framer::add(Batch& batch, std::size_t header_size, std::span<const MemorySegment> payload, bool copy) {
  std::size_t payload_size = 0;
  for (const MemorySegment& piece : payload) payload_size += piece.size;
  const std::size_t ulpdu = header_size + payload_size;
  const std::size_t unmarked = fpdu_size(ulpdu);
  const std::size_t position = markers_ ? position_ + batch.bytes_ : 0;
  const std::size_t size = markers_ ? marked_size(position, unmarked) : unmarked;
  if (batch.fpdus_ == Batch::kMaxFpdus || (batch.bytes_ > 0 && batch.bytes_ + size > Batch::limit(copies())) ||
      batch.iov_count_ + payload.size() + 2 > Batch::kMaxVectors ||
      batch.used_ + size + kTrailerRoom > Batch::kMemory) {
    return Result::full;
  }

  std::byte* const fpdu = batch.end();
  std::byte* head = fpdu;
  if (markers_) {
    head += size - unmarked;  // insert_markers() moves the octets to their places
    std::memmove(head + kFpduLengthSize, header_room(batch), header_size);
  }
  store_be<std::uint16_t>(head, static_cast<std::uint16_t>(ulpdu));
  std::byte* to = head + kFpduLengthSize + header_size;
  if (copies() || copy || payload_size < kCopyBelow) {
    for (const MemorySegment& piece : payload) {
      if (!guarded_copy_unordered(to, piece.data, piece.size)) return Result::bad_address;
      to += piece.size;
    }
    std::memset(to, 0, kTrailerRoom);
    if (markers_) insert_markers({fpdu, size}, unmarked, position);
    if (crc_) {
      Crc32c crc;
      crc.add(fpdu, size - kCrcSize);
      store_crc(fpdu + size - kCrcSize, crc.value());
    }
    batch.add_own(size);
  } else {
    batch.add_own(kFpduLengthSize + header_size);
    for (const MemorySegment& piece : payload) {
      if (piece.size > 0) batch.add_external(piece.data, piece.size);
    }
    std::memset(batch.end(), 0, kTrailerRoom);
    batch.add_own(pad_size(ulpdu) + kCrcSize);
  }
  batch.fpdu_bytes_[batch.fpdus_++] = static_cast<std::uint32_t>(size);
  return Result::added;
}

}  // namespace uiw::mpa
