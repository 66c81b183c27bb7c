// SPDX-License-Identifier: MIT
// The STag table: which memory an STag stands for, and whether an access to it is allowed (RFC 5041 section 7,
// RFC 5040 section 7.2; Verbs draft section 7). Memory windows are in memory_window.cc.
//
// An STag is an index of 24 bits and a key of 8 bits. The index is scattered by a permutation and the key is
// random, both from secrets of the table, so that a peer cannot guess an STag it was not told; the key of a window
// is its program's choice at each bind (Verbs draft section 7.2). find() and hold() take no lock: any number of
// threads may call them beside all else.
//
// Taking memory away: who retires or replaces a region must see to it that every find() that may have returned it is
// over before the memory is the program's again, and before the slot is recycled or replaced once more. Windows come
// and go with work requests, where nobody can wait for that: an access through a window is counted while its Hold
// lives, and the end of a binding waits for the count.
//
// Posted work names its memory by STag and tagged offset and is checked again at each use. An STag may stand for other
// memory by then: so each registration, and each change of what an STag translates to, has a number of its own, which
// the work keeps. Rights and protection domain may change without a new number; they are looked at again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ddp/ddp_format.h"

namespace uiw::ddp {

enum Right : std::uint32_t {
  kLocalRead = 1,  // every region has it, and no window
  kLocalWrite = 2,
  kRemoteRead = 4,
  kRemoteWrite = 8,
  kRemoteAtomic = 16,
  // Not rights but properties of a region:
  kBindWindows = 32,
  kZeroBased = 64,  // windows cannot be bound to it (Verbs draft figure 19)
  kOnDemand = 128,  // its memory need not be there yet
  kNull = 256,      // reads octets of zero, of which its memory holds enough for any message, and drops what is written
};

// A piece of registered memory. `base` is the tagged offset of its first octet: its address, or 0 for zero-based
// addressing, or what the program chose.
struct Region {
  std::byte* memory = nullptr;
  std::uint64_t base = 0;
  std::uint64_t length = 0;  // base + length does not wrap; add() checks
  std::uint32_t rights = kLocalRead;
  const void* domain = nullptr;  // the protection domain; of a window of type 2, while it is bound, the stream
};

enum class AccessError : std::uint8_t { none, invalid_stag, bounds, wrap, not_associated, rights };

// Which translation of an STag; none matches no region. 29 bits, which come back after that many registrations of one
// slot of the table.
enum class Registration : std::uint32_t { none = 0 };

// What an STag stood for when it was looked up: the place of its entry in the table, and the registration there.
struct Registered {
  std::uint32_t place;
  Registration registration;
};

struct Access {
  std::byte* memory;  // of the first octet asked for; valid until the region is retired. Or discarded.
  AccessError error;
};

// Stands for the memory of a null region where it is written to.
inline std::byte discarded_octet;
inline std::byte* const discarded = &discarded_octet;

// An access in progress. Its memory may be used while this lives, even where the STag is a window's.
class Hold {
 public:
  Hold() = default;
  explicit Hold(Access access, std::atomic<std::uint32_t>* holders = nullptr) : access_(access), holders_(holders) {}
  Hold(Hold&& other) noexcept : access_(other.access_), holders_(std::exchange(other.holders_, nullptr)) {}
  Hold& operator=(Hold&& other) noexcept {
    std::swap(access_, other.access_);
    std::swap(holders_, other.holders_);
    return *this;
  }
  ~Hold() {
    if (holders_ != nullptr) holders_->fetch_sub(1, std::memory_order_release);
  }
  std::byte* memory() const { return access_.memory; }
  AccessError error() const { return access_.error; }
  // Through a window: nothing may refer to the memory after this.
  bool counted() const { return holders_ != nullptr; }

 private:
  Access access_{nullptr, AccessError::invalid_stag};
  std::atomic<std::uint32_t>* holders_ = nullptr;
};

enum class WindowType : std::uint8_t {
  type1,  // for all streams of its domain; each bind ends the one before
  type2,  // for the stream that bound it, until it is invalidated (type 2B)
};

// A request to bind a window to a part of a region.
struct Binding {
  Stag window;  // with the key it is to have
  Stag region;
  std::uint64_t offset;  // of the first octet, as the region counts
  std::uint64_t length;
  std::uint32_t rights;
  WindowType type;
  bool zero_based;  // the window counts from 0; otherwise as the region does
};

// What the Verbs draft forbids in sections 7.8 and 7.10.
enum class WindowError : std::uint8_t {
  none,
  deallocated,     // there is nothing behind the STag
  no_window,       // the STag is a region's, or of a window of the other type, or has another key
  no_region,       // the region's STag is not a region's, or not in the Valid state
  not_invalid,     // the window is bound
  not_associated,  // another protection domain, or bound by another stream
  not_bindable,    // the region does not have kBindWindows
  zero_based,      // the region has kZeroBased
  rights,          // figure 20
  bounds,          // not all of it is within the region
  windows_bound,   // a region with windows bound to it
};

class StagTable {
 public:
  static constexpr std::uint32_t kIndexBits = 24;
  static constexpr std::uint32_t kMaxRegions = 1U << 20;  // and windows

  // The secrets: 64 random bits.
  explicit StagTable(std::uint64_t secret);
  ~StagTable();
  StagTable(const StagTable&) = delete;
  StagTable& operator=(const StagTable&) = delete;

  // Empty if the table is full, base + length wraps, or there is no memory for it.
  std::optional<Stag> add(const Region& region);

  // The STag finds nothing from here on. False if it was not there, or windows are bound to it.
  bool retire(Stag stag);
  // After retire() and a grace period: the slot may be used again.
  void recycle(Stag stag);
  // In one step: the same STag finds this region from here on, whose translation is another one where `moves` says so.
  // A find() that is under way may still return the one before. False, and nothing has changed, if the STag is not
  // there, windows are bound to it, or base + length wraps.
  bool replace(Stag stag, const Region& region, bool moves);

  // Checks an access of `length` octets at tagged offset `offset` by a stream of `domain`; `stream` is what windows
  // of type 2 were bound by. What find() returns for a window tells only whether the access is allowed.
  Access find(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
              const void* stream = nullptr) const;
  Hold hold(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
            const void* stream = nullptr) const;

  // For memory that posted work names: what the STag of a region stands for now, or Registration::none where the access
  // is not allowed; and the access itself, which fails once the STag stands for something else.
  Registered registered(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
                        std::uint32_t rights) const;
  Access find(const Registered& registered, const void* domain, std::uint64_t offset, std::uint64_t length,
              std::uint32_t rights) const;

  // A copy of what was registered, or of what a window is bound to; or empty.
  std::optional<Region> region(Stag stag) const;

  // A window that is not bound. Empty if the table is full, or there is no memory for it.
  std::optional<Stag> add_window(const void* domain, WindowType type);
  // Bound or not; the key does not matter.
  void remove_window(Stag stag);
  // A key for the next bind of a window of type 1, which a peer that knows the last one cannot guess.
  Stag next_key(Stag window);
  // On behalf of a stream. When one of them returns, nothing is accessed through an earlier binding any more.
  WindowError bind(const Binding& binding, const void* domain, const void* stream);
  WindowError invalidate(Stag stag, const void* domain, const void* stream);
  // The stream is gone: ends all bindings that are its own.
  void release_stream(const void* domain, const void* stream);
  // Around a fork: nothing changes meanwhile.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  // In the child, before the lock is released: the threads whose accesses were under way are not there.
  void forget_holders();

 private:
  static constexpr std::uint32_t kChunk = 1024;
  // The word that says what a slot holds: the STag, these bits, and above them the number of the registration. 0 while
  // the slot is not valid.
  static constexpr std::uint64_t kValid = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 33;
  static constexpr std::uint64_t kSecond = std::uint64_t{1} << 34;  // which of the two regions it is
  static constexpr unsigned kRegistrationShift = 35;
  static constexpr std::uint32_t kMaxRegistration = (std::uint32_t{1} << (64 - kRegistrationShift)) - 1;
  static constexpr std::uint64_t kName = (std::uint64_t{1} << 34) - 1;  // STag, kValid and kWindow

  enum class Use : std::uint8_t { none, region, window1, window2 };
  struct Slot {
    std::atomic<std::uint64_t> word{0};
    mutable std::atomic<std::uint32_t> holders{0};  // of a window: accesses under way
    // All else changes under the lock, and a region only while the word does not lead to it.
    std::uint32_t link = 0;           // region: windows bound to it; bound window: the dense number of its region
    std::array<Region, 2> regions;    // a window has the first alone
    std::uint32_t registrations = 0;  // the number of the last one
    std::uint8_t key = 0;
    Use use = Use::none;

    const Region& region(std::uint64_t of_word) const { return regions[(of_word & kSecond) != 0 ? 1 : 0]; }
    Region& region() { return regions[(word.load(std::memory_order_relaxed) & kSecond) != 0 ? 1 : 0]; }
  };

  // The word of a valid region or window with this STag.
  static constexpr std::uint64_t name_of_region(Stag stag) { return kValid | static_cast<std::uint32_t>(stag); }
  static constexpr std::uint64_t name_of_window(Stag stag) { return kWindow | name_of_region(stag); }
  static constexpr std::uint32_t registration_in(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> kRegistrationShift);
  }
  static std::uint64_t next_registration(Slot& slot);
  static bool is(const Slot* slot, std::uint64_t name) {
    return slot != nullptr && (slot->word.load(std::memory_order_relaxed) & kName) == name;
  }

  std::uint32_t scatter(std::uint32_t dense) const;
  std::uint32_t gather(std::uint32_t index) const;
  Slot* slot(Stag stag) const;
  Slot* slot_in(std::uint32_t dense) const;
  std::uint64_t word_of(const Slot* slot) const;
  Slot& slot_at(std::uint32_t dense) const;
  std::optional<std::uint32_t> take_slot(Use use);
  std::uint32_t new_stag(std::uint32_t dense);
  void unbind(Slot& window, const void* domain);
  Hold hold_window(const Slot& window, std::uint64_t word, const void* domain, std::uint64_t offset,
                   std::uint64_t length, std::uint32_t rights, const void* stream) const;

  std::array<std::uint32_t, 4> round_keys_;
  std::array<std::atomic<Slot*>, kMaxRegions / kChunk> chunks_{};
  mutable std::mutex mutex_;  // whatever changes the table
  std::uint64_t random_;
  std::uint32_t used_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace uiw::ddp
