// SPDX-License-Identifier: MIT
// Makes a gather list of FPDUs for one sendmsg: the sending half of MPA full operation (RFC 5044 section 4; FPDU format
// section 4.1, markers section 4.3, CRC section 4.4).
//
// A Batch collects whole FPDUs. Headers are built in the batch's own memory, and trailers and small payload are put
// there, too, so that many small FPDUs become one iovec. Without CRC and markers, payload of kCopyBelow octets or more
// is sent from the program's memory without a copy; this memory must remain live and registered until the batch is sent
// or cleared. With CRC or markers, all payload is copied first, and the CRC is computed over the copy: it covers
// exactly the octets that are sent, even if the program changes the source meanwhile. A batch belongs to the thread
// that sends, not to a stream. Not thread-safe; no I/O.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "mpa/markers.h"

namespace uiw::mpa {

// A part of the payload, in the program's memory.
struct MemorySegment {
  const std::byte* data;
  std::size_t size;
};

class Batch {
 public:
  // The most octets that one sendmsg sends; larger calls are not faster. If the payload is copied to the batch first
  // (`copies`), a batch of kMaxBytes would not stay in the cache until it is sent, so its limit is half of that.
  static constexpr std::size_t kMaxBytes = 1024 * 1024;
  static constexpr std::size_t limit(bool copies) { return copies ? kMaxBytes / 2 : kMaxBytes; }
  static constexpr std::size_t kMaxFpdus = 256;

  // Throws std::bad_alloc.
  Batch() : memory_(std::make_unique_for_overwrite<std::byte[]>(kMemory)) {}

  void clear() { iov_count_ = 0, used_ = 0, bytes_ = 0, fpdus_ = 0; }
  bool empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }
  std::size_t fpdus() const { return fpdus_; }
  // Octets on the wire of the i-th FPDU; of an FPDU that an earlier sendmsg has sent in part, those that remain.
  std::size_t fpdu_bytes(std::size_t i) const { return fpdu_bytes_[i]; }
  std::span<iovec> vectors() { return {iov_.data(), iov_count_}; }

  // Drops the first `octets` octets, fewer than the first FPDU has, since an earlier sendmsg has sent them.
  void skip(std::size_t octets);

  // Copies the octets [from, to) of the batch, counted over all vectors. False if payload memory is no longer
  // accessible.
  bool copy_out(std::size_t from, std::size_t to, std::byte* out) const;

  // Adds the rest of an FPDU that an earlier batch has begun to send. `rest` is not copied and must remain live until
  // this batch is sent.
  void add_remainder(Octets rest) {
    add_external(rest.data(), rest.size());
    fpdu_bytes_[fpdus_++] = static_cast<std::uint32_t>(rest.size());
  }

 private:
  friend class Framer;
  static constexpr std::size_t kMaxVectors = 512;  // below IOV_MAX
  // At most kMaxBytes and one FPDU are used, so there is always room for the headers of another FPDU.
  static constexpr std::size_t kMemory = kMaxBytes + 2 * marked_size(0, kMaxUlpdu + 64);

  std::byte* end() { return memory_.get() + used_; }
  void add_own(std::size_t size);
  void add_external(const std::byte* data, std::size_t size);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t used_ = 0;
  std::array<iovec, kMaxVectors> iov_;
  std::size_t iov_count_ = 0;
  std::size_t bytes_ = 0;
  std::array<std::uint32_t, kMaxFpdus> fpdu_bytes_;
  std::size_t fpdus_ = 0;
};

class Framer {
 public:
  // Payload below this size is copied next to its header, which is cheaper than two more vectors.
  static constexpr std::size_t kCopyBelow = 1024;

  enum class Result {
    added,
    full,         // no room in the batch; nothing was added
    bad_address,  // payload memory is not accessible; nothing was added
  };

  // Called once, before the first FPDU, with what start-up has negotiated.
  void start(bool crc, bool markers = false) { crc_ = crc, markers_ = markers; }
  // Whether all payload is copied to the batch.
  bool copies() const { return crc_ || markers_; }
  // To be called when TCP has accepted the first `octets` octets of a batch. The next batch begins with the octet after
  // these, in the middle of an FPDU or at its start. Where the markers of the next batch stand depends on its position.
  void sent(std::size_t octets) {
    if (markers_) position_ = (position_ + octets) % kMarkerSpacing;
  }

  // Where the caller puts the headers of the next FPDU before it calls add(): kHeaderRoom octets. After each add() the
  // caller asks again, and writes all headers again, since the room moves, and add() may overwrite it.
  static constexpr std::size_t kHeaderRoom = 128;
  static std::byte* header_room(Batch& batch) { return batch.end() + kFpduLengthSize; }
  // Adds one FPDU whose ULPDU is the first `header_size` octets of header_room() followed by `payload`; the caller
  // keeps their sum within kMaxUlpdu, with markers within kMaxMulpdu. With `copy` the payload is copied, and the batch
  // does not refer to its memory.
  Result add(Batch& batch, std::size_t header_size, std::span<const MemorySegment> payload, bool copy = false);
  // As add() above, for headers of at most kHeaderRoom octets that are elsewhere.
  Result add(Batch& batch, Octets header, std::span<const MemorySegment> payload, bool copy = false) {
    std::copy(header.begin(), header.end(), header_room(batch));
    return add(batch, header.size(), payload, copy);
  }

 private:
  bool crc_ = true, markers_ = false;
  std::size_t position_ = 0;  // position of the next octet to be sent (mpa/markers.h)
};

}  // namespace uiw::mpa
