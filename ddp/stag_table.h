// SPDX-License-Identifier: MIT
// The STag table: which memory an STag stands for, and whether an access to it is allowed (RFC 5041 section 7,
// RFC 5040 section 7.2; Verbs draft section 7).
//
// An STag is an index of 24 bits and a key of 8 bits. The index is scattered by a permutation and the key is
// random, both from secrets of the table, so that a peer cannot guess an STag it was not told. find() takes no
// lock and writes nothing shared: any number of threads may call it beside add() and retire(). The caller of
// retire() must see to it that every find() that may have returned the region is over before it calls recycle().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ddp/ddp_format.h"

namespace uiw::ddp {

enum Right : std::uint32_t {
  kLocalRead = 1,  // every region has it
  kLocalWrite = 2,
  kRemoteRead = 4,
  kRemoteWrite = 8,
  kRemoteAtomic = 16,
};

// A piece of registered memory. `base` is the tagged offset of its first octet: its address, or 0 for zero-based
// addressing, or what the program chose.
struct Region {
  std::byte* memory = nullptr;
  std::uint64_t base = 0;
  std::uint64_t length = 0;  // base + length does not wrap; add() checks
  std::uint32_t rights = kLocalRead;
  const void* domain = nullptr;  // the protection domain
};

enum class AccessError : std::uint8_t { none, invalid_stag, bounds, wrap, not_associated, rights };

struct Access {
  std::byte* memory;  // of the first octet asked for; valid until the region is retired
  AccessError error;
};

class StagTable {
 public:
  static constexpr std::uint32_t kIndexBits = 24;
  static constexpr std::uint32_t kMaxRegions = 1U << 20;

  // The secrets: 64 random bits.
  explicit StagTable(std::uint64_t secret);
  ~StagTable();
  StagTable(const StagTable&) = delete;
  StagTable& operator=(const StagTable&) = delete;

  // Empty if the table is full or base + length wraps.
  std::optional<Stag> add(const Region& region);

  // The STag finds nothing from here on. False if it was not there.
  bool retire(Stag stag);
  // After retire() and a grace period: the slot may be used again.
  void recycle(Stag stag);

  // Checks an access of `length` octets at tagged offset `offset` by a stream of `domain`.
  Access find(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) const;

  // A copy of what was registered, or empty.
  std::optional<Region> region(Stag stag) const;

 private:
  static constexpr std::uint32_t kChunk = 1024;
  struct Slot {
    std::atomic<std::uint64_t> stag{0};  // the STag and bit 32 while valid
    Region region;
    std::uint8_t key = 0;
  };

  std::uint32_t scatter(std::uint32_t dense) const;
  std::uint32_t gather(std::uint32_t index) const;
  const Slot* slot(Stag stag) const;

  std::array<std::uint32_t, 4> round_keys_;
  std::array<std::atomic<Slot*>, kMaxRegions / kChunk> chunks_{};
  std::mutex mutex_;  // add, retire, recycle
  std::uint64_t random_;
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace uiw::ddp
