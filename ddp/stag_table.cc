// SPDX-License-Identifier: MIT
#include "ddp/stag_table.h"

namespace uiw::ddp {

namespace {

constexpr std::uint64_t kValid = std::uint64_t{1} << 32;

// A well-mixed step (splitmix64): the table needs unpredictable, not cryptographic, keys on top of its secret.
std::uint64_t mix(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint32_t half_round(std::uint32_t half, std::uint32_t key) {
  return (((half ^ key) * 0x9E3779B1U) >> 15) & 0xFFF;
}

}  // namespace

StagTable::StagTable(std::uint64_t secret) : random_(secret) {
  for (auto& key : round_keys_) key = static_cast<std::uint32_t>(mix(random_));
}

StagTable::~StagTable() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

// A Feistel permutation of 24 bits: dense slot numbers outside, unpredictable indices in STags.
std::uint32_t StagTable::scatter(std::uint32_t dense) const {
  std::uint32_t left = dense >> 12, right = dense & 0xFFF;
  for (const std::uint32_t key : round_keys_) {
    const std::uint32_t next = left ^ half_round(right, key);
    left = right;
    right = next;
  }
  return left << 12 | right;
}

std::uint32_t StagTable::gather(std::uint32_t index) const {
  std::uint32_t left = index >> 12, right = index & 0xFFF;
  for (std::size_t i = round_keys_.size(); i-- > 0;) {
    const std::uint32_t previous = right ^ half_round(left, round_keys_[i]);
    right = left;
    left = previous;
  }
  return left << 12 | right;
}

const StagTable::Slot* StagTable::slot(Stag stag) const {
  const std::uint32_t dense = gather(static_cast<std::uint32_t>(stag) >> 8);
  if (dense >= kMaxRegions) return nullptr;
  const Slot* chunk = chunks_[dense / kChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[dense % kChunk];
}

std::optional<Stag> StagTable::add(const Region& region) {
  std::uint64_t end;
  if (__builtin_add_overflow(region.base, region.length, &end)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::uint32_t dense;
  if (!free_.empty()) {
    dense = free_.back();
    free_.pop_back();
  } else if (used_ < kMaxRegions) {
    dense = used_++;
  } else {
    return std::nullopt;
  }
  Slot* chunk = chunks_[dense / kChunk].load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new Slot[kChunk];
    chunks_[dense / kChunk].store(chunk, std::memory_order_release);
  }
  Slot& slot = chunk[dense % kChunk];
  // A new key each time, so that a stale STag does not find the next region of its slot; nor may the STag be 0,
  // which programs take for none.
  std::uint32_t stag;
  do {
    slot.key = static_cast<std::uint8_t>(slot.key + 1 + mix(random_) % 255);
    stag = scatter(dense) << 8 | slot.key;
  } while (stag == 0);
  slot.region = region;
  slot.region.rights |= kLocalRead;
  slot.stag.store(kValid | stag, std::memory_order_release);
  return static_cast<Stag>(stag);
}

bool StagTable::retire(Stag stag) {
  const std::lock_guard lock(mutex_);
  Slot* found = const_cast<Slot*>(slot(stag));
  if (found == nullptr || found->stag.load(std::memory_order_relaxed) != (kValid | static_cast<std::uint32_t>(stag))) {
    return false;
  }
  found->stag.store(0, std::memory_order_seq_cst);
  return true;
}

void StagTable::recycle(Stag stag) {
  const std::lock_guard lock(mutex_);
  free_.push_back(gather(static_cast<std::uint32_t>(stag) >> 8));
}

Access StagTable::find(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
                       std::uint32_t rights) const {
  const Slot* found = slot(stag);
  if (found == nullptr || found->stag.load(std::memory_order_acquire) != (kValid | static_cast<std::uint32_t>(stag))) {
    return {nullptr, AccessError::invalid_stag};
  }
  const Region& region = found->region;
  if (region.domain != domain) return {nullptr, AccessError::not_associated};
  if ((region.rights & rights) != rights) return {nullptr, AccessError::rights};
  std::uint64_t end;
  if (__builtin_add_overflow(offset, length, &end)) return {nullptr, AccessError::wrap};
  if (offset < region.base || end > region.base + region.length) return {nullptr, AccessError::bounds};
  return {region.memory + (offset - region.base), AccessError::none};
}

std::optional<Region> StagTable::region(Stag stag) const {
  const Slot* found = slot(stag);
  if (found == nullptr || found->stag.load(std::memory_order_acquire) != (kValid | static_cast<std::uint32_t>(stag))) {
    return std::nullopt;
  }
  return found->region;
}

}  // namespace uiw::ddp
