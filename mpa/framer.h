// SPDX-License-Identifier: MIT
// From ULPDUs to a gather list for one sendmsg: the sending half of MPA full operation (RFC 5044 section 4).
//
// A Batch collects whole FPDUs. Headers, trailers and small payload stand in its own memory, so that many small
// FPDUs become one iovec; large payload is taken from where it lies when CRC is off. With CRC on all payload is
// copied first, summed there and sent from there: the CRC covers exactly the octets that go out even while the
// program changes them. A batch belongs to the thread that sends, not to a stream. No I/O.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "mpa/mpa_format.h"

namespace uiw::mpa {

// A piece of payload in the program's memory.
struct MemorySegment {
  const std::byte* data;
  std::size_t size;
};

class Batch {
 public:
  static constexpr std::size_t kMaxBytes = 512 * 1024;  // enough for one sendmsg; more is no faster
  static constexpr std::size_t kMaxFpdus = 256;

  Batch() : memory_(std::make_unique_for_overwrite<std::byte[]>(kMemory)) {}

  void clear() { iov_count_ = 0, used_ = 0, bytes_ = 0, fpdus_ = 0; }
  bool empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }
  std::size_t fpdus() const { return fpdus_; }
  // Octets on the wire of the i-th FPDU.
  std::size_t fpdu_bytes(std::size_t i) const { return fpdu_bytes_[i]; }
  std::span<iovec> vectors() { return {iov_.data(), iov_count_}; }

  // Drops the first octets of the first FPDU: they went out before. Fewer than the FPDU has.
  void skip(std::size_t octets);

  // Copies what stands from the octet `from` up to octet `to` of the batch (both counted over all vectors). False if
  // payload memory is not there any more.
  bool copy_out(std::size_t from, std::size_t to, std::byte* out) const;

  // The rest of an FPDU that was begun in an earlier batch; it stays where it is until this batch is sent.
  void add_remainder(Octets rest) {
    add_external(rest.data(), rest.size());
    fpdu_bytes_[fpdus_++] = static_cast<std::uint32_t>(rest.size());
  }

 private:
  friend class Framer;
  static constexpr std::size_t kMaxVectors = 512;  // below IOV_MAX
  static constexpr std::size_t kMemory = kMaxBytes + 2 * (kMaxUlpdu + 64);

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
  // Below this size payload is copied next to its header: cheaper than two more vectors.
  static constexpr std::size_t kCopyBelow = 1024;

  enum class Result {
    added,
    full,         // the batch takes no more; nothing was added
    bad_address,  // payload memory is not there; nothing was added
  };

  // There are no markers (RFC 5044 section 4.3): start-up refuses a peer that asks for them.
  void start(bool crc) { crc_ = crc; }
  bool crc() const { return crc_; }

  // Adds one FPDU whose ULPDU is `header` (copied) followed by `payload`. The caller keeps their sum within 65535.
  // `copy`: nothing refers to the payload's memory after this.
  Result add(Batch& batch, Octets header, std::span<const MemorySegment> payload, bool copy = false);

 private:
  bool crc_ = true;
};

}  // namespace uiw::mpa
