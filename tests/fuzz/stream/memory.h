// SPDX-License-Identifier: MIT
// The memory of the program: an arena of which it registers parts, in any overlap, and binds windows to. What is not
// registered for the access at hand is a canary: after each step that may place something, each octet that has changed
// must lie where such a change is allowed now.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ddp/stag_table.h"
#include "rdmap/work.h"
#include "tests/fuzz/stream/check.h"

namespace uiw::fuzz {

using ddp::Stag;

// Octets of the arena.
struct Range {
  std::size_t at = 0, size = 0;
  bool has(std::size_t octet) const { return octet >= at && octet - at < size; }
  bool meets(const Range& other) const { return at < other.at + other.size && other.at < at + size; }
};

struct Registered {
  Stag stag{};
  Range range;
  std::uint64_t base = 0;
  std::uint32_t rights = 0;
  std::uint32_t translation = 0;  // each registration and each move has its own
  bool valid = false, foreign = false;
};

struct Window {
  Stag stag{};
  Range range;
  std::uint64_t base = 0;
  std::uint32_t rights = 0;
  ddp::WindowType type{};
  bool exists = false, bound = false;
};

// Memory that posted work names, and the registration that it named then.
struct Piece {
  rdmap::Sge sge{};
  Range range;
  std::size_t region = 0;
  std::uint32_t translation = 0;  // 0: it had no right to name it
};

class Memory {
 public:
  static constexpr std::size_t kSize = 4096, kRegions = 6, kWindows = 3;

  Memory() {
    for (std::size_t i = 0; i < kSize; ++i) initial_[i] = static_cast<std::byte>(0x80 | i * 7);
    static std::array<std::byte, kSize> zeros{};
    nothing_.stag = *stags.add({zeros.data(), 0, kSize, ddp::kLocalWrite | ddp::kNull, &domain});
  }

  // As at the start of each input.
  void reset() {
    octets_ = shadow_ = initial_;
    denied = 0;
    constexpr std::uint32_t kAll = ddp::kLocalWrite | ddp::kRemoteRead | ddp::kRemoteWrite | ddp::kRemoteAtomic;
    add(0, {64, 1280}, ddp::kLocalWrite, 0, false);
    add(1, {1408, 512}, ddp::kLocalWrite | ddp::kRemoteWrite, 0, false);
    add(2, {1984, 512}, ddp::kRemoteRead, 1, false);
    add(3, {2560, 64}, kAll, 1, false);
    add(4, {2688, 1024}, kAll | ddp::kBindWindows, 2, false);
  }
  // Gives back all names, so that the table serves the next input.
  void release(const void* stream) {
    stags.release_stream(&domain, stream);
    for (Window& window : windows) {
      if (std::exchange(window.exists, false)) stags.remove_window(window.stag);
    }
    for (std::size_t i = 0; i < kRegions; ++i) check(!regions[i].valid || remove(i));
    windows.fill({});
    regions.fill({});
  }

  bool add(std::size_t slot, Range range, std::uint32_t rights, unsigned base, bool foreign) {
    Registered& region = regions[slot];
    if (region.valid) return false;
    range = fitted(range);
    const std::uint64_t bases[] = {address(range.at), 0, 0xFFFF'FFFF'FFFF'F000 - range.size, 0x1000};
    if (base % 4 == 1) rights |= ddp::kZeroBased;
    const auto stag = stags.add({octets_.data() + range.at, bases[base % 4], range.size, rights, whose(foreign)});
    check(stag.has_value());
    region = {*stag, range, bases[base % 4], rights, ++translations_, true, foreign};
    return true;
  }
  bool remove(std::size_t slot) {
    Registered& region = regions[slot];
    if (!region.valid) return false;
    if (!stags.retire(region.stag)) return false;  // windows are bound to it
    stags.recycle(region.stag);
    region.valid = false;
    return true;
  }
  void change(std::size_t slot, Range range, std::uint32_t rights, bool moves) {
    Registered& region = regions[slot];
    if (!region.valid) return;
    if (!moves) range = region.range;
    range = fitted(range);
    const std::uint64_t base = moves ? address(range.at) : region.base;
    if (!stags.replace(region.stag, {octets_.data() + range.at, base, range.size, rights, whose(region.foreign)},
                       moves)) {
      return;
    }
    if (moves) region.translation = ++translations_;
    region.range = range, region.base = base, region.rights = rights;
  }

  void allocate(std::size_t which, ddp::WindowType type) {
    Window& window = windows[which];
    if (std::exchange(window.exists, true)) {
      stags.remove_window(window.stag);
      window.exists = window.bound = false;
      return;
    }
    window = {*stags.add_window(&domain, type), {}, 0, 0, type, true, false};
  }
  // A work request of the program.
  bool bind(const ddp::Binding& binding, const void* stream) {
    const ddp::WindowError error = stags.bind(binding, &domain, stream);
    if (error != ddp::WindowError::none) return false;
    for (Window& window : windows) {
      if (!window.exists || !same_window(window.stag, binding.window)) continue;
      window.bound = binding.length > 0;
      if (!window.bound) return true;
      const Registered* const region = named(binding.region);
      check(region != nullptr && (region->rights & ddp::kBindWindows) != 0 && !region->foreign);
      check(binding.offset >= region->base && binding.length <= region->range.size);
      window.stag = binding.window;
      window.range = {region->range.at + static_cast<std::size_t>(binding.offset - region->base), binding.length};
      window.base = binding.zero_based ? 0 : binding.offset;
      window.rights = binding.rights;
      return true;
    }
    check(false);  // no window has this name
    return false;
  }
  // Of the program, or of the peer.
  ddp::WindowError invalidate(Stag stag, const void* stream) {
    const ddp::WindowError error = stags.invalidate(stag, &domain, stream);
    if (error != ddp::WindowError::none) return error;
    for (Window& window : windows) {
      if (!window.exists || !same_window(window.stag, stag)) continue;
      check(window.type == ddp::WindowType::type2 && (!window.bound || window.stag == stag));
      window.bound = false;
      return error;
    }
    check(false);
    return error;
  }

  // `which`: 3 bits of region, 5 of offset.
  Piece piece(unsigned which, unsigned size, ddp::Right right) {
    Piece piece;
    piece.region = which & 7;
    const std::size_t length = size < 0xC0 ? size : (size - 0xC0) * 32;
    const std::size_t offset = (which >> 3) * 8;
    if (piece.region >= kRegions) return null_piece(length, offset, right);
    const Registered& region = regions[piece.region];
    piece.range = {region.range.at + offset, length};
    if (!region.valid && named(region.stag) != nullptr) return piece;  // another region has got its STag
    piece.sge = {region.stag, static_cast<std::uint32_t>(length), region.base + offset, {}};
    piece.sge.registered = stags.registered(region.stag, &domain, piece.sge.offset, length, right);
    const bool named = piece.sge.registered.registration != ddp::Registration::none;
    const bool allowed = region.valid && !region.foreign && offset + length <= region.range.size &&
                         (right == ddp::kLocalRead || (region.rights & right) != 0);
    check(named == allowed);
    piece.translation = allowed ? region.translation : 0;
    return piece;
  }
  bool usable(const Piece& piece, ddp::Right right) const {
    if (piece.region >= kRegions) return piece.translation != 0;
    const Registered& region = regions[piece.region];
    return piece.translation != 0 && region.valid && region.translation == piece.translation &&
           (right == ddp::kLocalRead || (region.rights & right) != 0);
  }

  // Where the peer may access an octet; nothing where it may not. `right`: kRemoteRead, and so on.
  bool exposed(std::size_t octet, std::uint32_t right) const {
    return std::any_of(regions.begin(), regions.end(),
                       [&](const Registered& region) {
                         return region.valid && !region.foreign && (region.rights & right) == right &&
                                region.range.has(octet);
                       }) ||
           std::any_of(windows.begin(), windows.end(), [&](const Window& window) {
             return window.bound && (window.rights & right) == right && window.range.has(octet);
           });
  }
  // The octets of an access of the peer; nothing if it is not allowed.
  const std::byte* accessed(Stag stag, std::uint64_t offset, std::size_t size, std::uint32_t right) const {
    const auto at = [&](const Range& range, std::uint64_t base, std::uint32_t rights) -> const std::byte* {
      const std::uint64_t from = offset - base;
      if ((rights & right) != right || offset < base || from > range.size || size > range.size - from) return nullptr;
      return octets_.data() + range.at + from;
    };
    for (const Registered& region : regions) {
      if (region.valid && !region.foreign && region.stag == stag) return at(region.range, region.base, region.rights);
    }
    for (const Window& window : windows) {
      if (window.bound && window.stag == stag) return at(window.range, window.base, window.rights);
    }
    return nullptr;
  }

  // The program writes.
  void scribble(Range range, std::byte value) {
    range = fitted(range);
    std::fill_n(octets_.begin() + static_cast<std::ptrdiff_t>(range.at), range.size, value);
    std::fill_n(shadow_.begin() + static_cast<std::ptrdiff_t>(range.at), range.size, value);
  }
  const std::byte* at(std::size_t octet) const { return octets_.data() + octet; }

  // Checks each octet that has changed since the last call. True if there is one.
  template <typename Allowed>
  bool compare(Allowed allowed) {
    if (std::memcmp(octets_.data(), shadow_.data(), kSize) == 0) return false;
    for (std::size_t at = 0; at < kSize; at += 64) {
      if (std::memcmp(octets_.data() + at, shadow_.data() + at, 64) == 0) continue;
      for (std::size_t i = at; i < at + 64; ++i) check(octets_[i] == shadow_[i] || allowed(i));
      std::memcpy(shadow_.data() + at, octets_.data() + at, 64);
    }
    return true;
  }

  // True if an octet is neither what it was at the last call of compare() nor what expect() has said since.
  bool changed() const { return octets_ != shadow_; }
  // The value that these eight octets, whose address accessed() has returned, should have.
  std::uint64_t expected(const std::byte* accessed) const {
    std::uint64_t word;
    std::memcpy(&word, &shadow_[static_cast<std::size_t>(accessed - octets_.data())], sizeof word);
    return word;
  }
  void expect(const std::byte* accessed, std::uint64_t word) {
    std::memcpy(&shadow_[static_cast<std::size_t>(accessed - octets_.data())], &word, sizeof word);
  }

  int domain = 0, other_domain = 0;
  ddp::StagTable stags{0x5eed};
  std::array<Registered, kRegions> regions;
  std::array<Window, kWindows> windows;
  std::uint32_t denied = 0;

 private:
  static bool same_window(Stag a, Stag b) {
    return (static_cast<std::uint32_t>(a) ^ static_cast<std::uint32_t>(b)) >> 8 == 0;
  }
  static Range fitted(Range range) {
    range.at = std::min(range.at, kSize);
    return {range.at, std::min(range.size, kSize - range.at)};
  }
  std::uint64_t address(std::size_t at) const { return reinterpret_cast<std::uintptr_t>(octets_.data() + at); }
  const void* whose(bool foreign) const { return foreign ? &other_domain : &domain; }
  const Registered* named(Stag stag) const {
    for (const Registered& region : regions) {
      if (region.valid && region.stag == stag) return &region;
    }
    return nullptr;
  }
  // Of the null region, whose octets are zeros and stay so.
  Piece null_piece(std::size_t length, std::size_t offset, ddp::Right right) {
    Piece piece;
    piece.region = kRegions;
    piece.sge = {nothing_.stag, static_cast<std::uint32_t>(length), offset, {}};
    piece.sge.registered = stags.registered(nothing_.stag, &domain, offset, length, right);
    piece.range = {kSize, length};
    piece.translation = piece.sge.registered.registration != ddp::Registration::none ? 1 : 0;
    check((piece.translation != 0) == (offset + length <= kSize));
    return piece;
  }

  alignas(64) std::array<std::byte, kSize> octets_;
  std::array<std::byte, kSize> shadow_, initial_;
  Registered nothing_;
  std::uint32_t translations_ = 0;
};

}  // namespace uiw::fuzz
