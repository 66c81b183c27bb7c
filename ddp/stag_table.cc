// SPDX-License-Identifier: MIT
#include "ddp/stag_table.h"

#include <new>
#include <utility>

#include "base/mixed.h"
#include "base/mutex.h"

namespace uiw::ddp {

namespace {

// The next number of a generator whose first state is the secret of the table. The keys of STags must be hard to
// predict, but need not be cryptographically strong.
std::uint64_t mix(std::uint64_t& state) { return mixed(std::exchange(state, state + kMixedStep)); }

std::uint32_t half_round(std::uint32_t half, std::uint32_t key) { return (((half ^ key) * 0x9E3779B1U) >> 15) & 0xFFF; }

}  // namespace

StagTable::StagTable(std::uint64_t secret) : random_(secret) {
  for (auto& key : round_keys_) key = static_cast<std::uint32_t>(mix(random_));
  // No STag has the index 0 (Verbs draft section 7.2.1), so the permutation must not map a slot to it.
  while (gather(0) < kMaxRegions) round_keys_[0] = static_cast<std::uint32_t>(mix(random_));
}

StagTable::~StagTable() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

// A Feistel permutation of 24 bits. It maps slot numbers, which count from 0, to unpredictable indices in STags.
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

StagTable::Slot* StagTable::slot(Stag stag) const { return slot_in(slot_number(stag)); }

StagTable::Slot* StagTable::slot_in(std::uint32_t dense) const {
  if (dense >= kMaxRegions) return nullptr;
  Slot* chunk = chunks_[dense / kChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[dense % kChunk];
}

StagTable::Slot& StagTable::slot_at(std::uint32_t dense) const {
  return chunks_[dense / kChunk].load(std::memory_order_relaxed)[dense % kChunk];
}

std::optional<std::uint32_t> StagTable::take_slot(Use use) {
  std::uint32_t dense;
  if (!free_.empty()) {
    dense = free_.back();
    free_.pop_back();
  } else if (used_ < kMaxRegions) {
    std::atomic<Slot*>& chunk = chunks_[used_ / kChunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      try {
        free_.reserve(used_ + kChunk);  // so that giving a slot back needs no memory
        chunk.store(new Slot[kChunk], std::memory_order_release);
      } catch (const std::bad_alloc&) {
        return std::nullopt;
      }
    }
    dense = used_++;
  } else {
    return std::nullopt;
  }
  Slot& slot = slot_at(dense);
  slot.use = use;
  slot.link = 0;
  return dense;
}

// The key differs from the last key of the slot, so that the slot's last STag does not find the slot's next region.
std::uint32_t StagTable::new_stag(std::uint32_t dense) {
  Slot& slot = slot_at(dense);
  slot.key = static_cast<std::uint8_t>(slot.key + 1 + mix(random_) % 255);
  return scatter(dense) << 8 | slot.key;
}

// Returns the next registration number of the slot, shifted to the bits of Slot::word that hold it. The number 0 is
// skipped, since it stands for Registration::none.
std::uint64_t StagTable::next_registration(Slot& slot) {
  slot.registrations = slot.registrations == kMaxRegistration ? 1 : slot.registrations + 1;
  return std::uint64_t{slot.registrations} << kRegistrationShift;
}

std::optional<Stag> StagTable::add(const Region& region) {
  std::uint64_t end;
  if (__builtin_add_overflow(region.base, region.length, &end)) return std::nullopt;
  const LockGuard lock(mutex_);
  const auto dense = take_slot(Use::region);
  if (!dense) return std::nullopt;
  const auto stag = static_cast<Stag>(new_stag(*dense));
  Slot& slot = slot_at(*dense);
  slot.regions[0] = region;
  slot.regions[0].rights |= kLocalRead;
  slot.word.store(next_registration(slot) | name_of_region(stag), std::memory_order_seq_cst);
  return stag;
}

bool StagTable::retire(Stag stag) {
  const LockGuard lock(mutex_);
  Slot* found = slot(stag);
  if (!is(found, name_of_region(stag)) || found->link > 0) return false;
  found->word.store(0, std::memory_order_seq_cst);
  return true;
}

void StagTable::recycle(Stag stag) {
  const LockGuard lock(mutex_);
  slot(stag)->use = Use::none;
  free_.push_back(gather(static_cast<std::uint32_t>(stag) >> 8));
}

bool StagTable::replace(Stag stag, const Region& region, bool moves) {
  std::uint64_t end;
  if (__builtin_add_overflow(region.base, region.length, &end)) return false;
  const LockGuard lock(mutex_);
  Slot* found = slot(stag);
  if (!is(found, name_of_region(stag)) || found->link > 0) return false;
  const std::uint64_t before = found->word.load(std::memory_order_relaxed);
  const std::uint64_t registration =
      moves ? next_registration(*found) : std::uint64_t{registration_in(before)} << kRegistrationShift;
  const std::uint64_t other = (before & kSecond) ^ kSecond;
  Region& target = found->regions[other != 0 ? 1 : 0];
  target = region;
  target.rights |= kLocalRead;
  found->word.store(registration | other | name_of_region(stag), std::memory_order_seq_cst);
  return true;
}

namespace {

Access check(const Region& region, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
             const void* stream) {
  if (region.domain != domain && domain != kAnyDomain && (stream == nullptr || region.domain != stream)) {
    return {nullptr, AccessError::not_associated};
  }
  if ((region.rights & rights) != rights) return {nullptr, AccessError::rights};
  std::uint64_t end;
  if (__builtin_add_overflow(offset, length, &end)) return {nullptr, AccessError::wrap};
  if (offset < region.base || end > region.base + region.length) return {nullptr, AccessError::bounds};
  if ((region.rights & kNull) != 0) {
    return {(rights & kLocalWrite) != 0 ? discarded : region.memory, AccessError::none};
  }
  // Computes with integers, since pointer arithmetic is undefined for a region that covers all of the address space.
  const auto address = reinterpret_cast<std::uintptr_t>(region.memory) + (offset - region.base);
  return {reinterpret_cast<std::byte*>(address), AccessError::none};
}

}  // namespace

// This load, the stores of the word and the accesses of the grace period (base/grace_period.h) are sequentially
// consistent. So in a ReadSection that is entered after a region was retired, the region is not found.
std::uint64_t StagTable::word_of(const Slot* slot) const {
  return slot == nullptr ? 0 : slot->word.load(std::memory_order_seq_cst);
}

// This function first raises the count of accesses (`holders`), then reads the word again. unbind() first clears the
// word, then reads the count. So either this function sees the cleared word and refuses the access, or unbind() sees
// the count and waits.
Hold StagTable::hold_window(const Slot& window, std::uint64_t word, const void* domain, std::uint64_t offset,
                            std::uint64_t length, std::uint32_t rights, const void* stream) const {
  window.holders.fetch_add(1, std::memory_order_seq_cst);
  Access access{nullptr, AccessError::invalid_stag};
  if (window.word.load(std::memory_order_seq_cst) == word) {
    access = check(window.regions[0], domain, offset, length, rights, stream);
  }
  Hold hold(access, &window.holders);
  if (access.error != AccessError::none) return Hold(access);
  return hold;
}

Access StagTable::find(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
                       const void* stream) const {
  const Hold found = hold(stag, domain, offset, length, rights, stream);
  return {found.memory(), found.error()};
}

Hold StagTable::hold(std::uint32_t number, Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
                     std::uint32_t rights, const void* stream) const {
  const Slot* found = slot_in(number);
  const std::uint64_t word = word_of(found);
  if ((word & kName) == name_of_region(stag)) {
    return Hold(check(found->region(word), domain, offset, length, rights, stream));
  }
  if ((word & kName) != name_of_window(stag)) return Hold();
  return hold_window(*found, word, domain, offset, length, rights, stream);
}

Registered StagTable::registered(std::uint32_t number, Stag stag, const void* domain, std::uint64_t offset,
                                 std::uint64_t length, std::uint32_t rights) const {
  const Slot* found = slot_in(number);
  const std::uint64_t word = word_of(found);
  if ((word & kName) != name_of_region(stag)) return {0, Registration::none};
  const Access access = check(found->region(word), domain, offset, length, rights, nullptr);
  return {number, access.error == AccessError::none ? Registration{registration_in(word)} : Registration::none};
}

// Each registration of a slot has its own number, so the STag need not be compared.
Access StagTable::find(const Registered& registered, const void* domain, std::uint64_t offset, std::uint64_t length,
                       std::uint32_t rights) const {
  if (registered.registration == Registration::none) return {nullptr, AccessError::invalid_stag};
  const Slot& found = slot_at(registered.slot);
  const std::uint64_t word = word_of(&found);
  const bool same =
      (word & (kValid | kWindow)) == kValid && Registration{registration_in(word)} == registered.registration;
  return same ? check(found.region(word), domain, offset, length, rights, nullptr)
              : Access{nullptr, AccessError::invalid_stag};
}

std::optional<Region> StagTable::region(Stag stag) const {
  const LockGuard lock(mutex_);
  const Slot* found = slot(stag);
  if (!is(found, name_of_region(stag)) && !is(found, name_of_window(stag))) return std::nullopt;
  return found->region(found->word.load(std::memory_order_relaxed));
}

Stag StagTable::next_key(Stag window) {
  const LockGuard lock(mutex_);
  const auto stag = static_cast<std::uint32_t>(window);
  return Stag{(stag & ~0xFFU) | ((stag + 1 + static_cast<std::uint32_t>(mix(random_) % 255)) & 0xFFU)};
}

std::optional<Stag> StagTable::add_window(const void* domain, WindowType type) {
  const LockGuard lock(mutex_);
  const auto dense = take_slot(type == WindowType::type1 ? Use::window1 : Use::window2);
  if (!dense) return std::nullopt;
  slot_at(*dense).regions[0] = {};
  slot_at(*dense).regions[0].domain = domain;
  return static_cast<Stag>(new_stag(*dense));
}

}  // namespace uiw::ddp
