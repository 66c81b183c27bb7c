// SPDX-License-Identifier: MIT
// The STag table: which memory an STag names, and whether an access to it is allowed (RFC 5041 section 7, RFC 5040
// section 7.2; Verbs draft section 7). Memory windows are in memory_window.cc.
//
// An STag is an index of 24 bits and a key of 8 bits. A secret permutation makes the index and a secret generator makes
// the key, so that a peer cannot guess an STag that it has not received. Each bind of a window replaces the key: for a
// window of type 2 the program chooses the new key (Verbs draft section 7.2), for a window of type 1 next_key() makes
// it.
//
// Threads: find(), hold() and registered() take no lock, and any number of threads may call them at any time. All
// functions that change the table take its lock; for forget_holders() the caller holds it.
//
// Lifetime of memory: a find() that runs while another thread calls retire() or replace() may still return the old
// region. So after retire() or replace() the caller waits for a grace period (base/grace_period.h), in which each such
// find() and the access that follows it end. Only after that may the program use the memory for other purposes, and may
// the caller call recycle() or another replace() for this STag. Windows are bound and invalidated by work requests,
// which cannot wait for a grace period. So each access through a window is counted as long as its Hold object lives,
// and the thread that ends a binding waits until the count is zero.
//
// Posted work names its memory by STag and tagged offset, and the STag may name other memory by the time the work is
// carried out. So each registration of an STag, and each later change of its address range (ibv_rereg_mr), has a number
// (Registration). Posted work keeps the number that was valid when it was posted, and each use of the memory fails if
// the number has changed. A change of rights or of the protection domain gives no new number; both are checked at each
// use.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ddp/ddp_format.h"

namespace uiw::ddp {

enum Right : std::uint32_t {
  kLocalRead = 1,  // every region has it, no window has it
  kLocalWrite = 2,
  kRemoteRead = 4,
  kRemoteWrite = 8,
  kRemoteAtomic = 16,
  kFlushGlobal = 512,  // a peer may flush what was written (rdmap::Flush)
  kFlushPersistent = 1024,
  // Not rights but properties of a region:
  kBindWindows = 32,
  kZeroBased = 64,  // windows cannot be bound to it (Verbs draft figure 19)
  kOnDemand = 128,  // its memory need not be mapped yet
  kNull = 256,      // null region: reads get zeros from `memory`, which has enough for any message; writes are dropped
};

// A range of registered memory. `base` is the tagged offset of its first octet: its address, 0 for zero-based
// addressing, or a value that the program has chosen.
struct Region {
  std::byte* memory = nullptr;
  std::uint64_t base = 0;
  std::uint64_t length = 0;  // base + length does not wrap; add() and replace() check
  std::uint32_t rights = kLocalRead;
  const void* domain = nullptr;  // the protection domain; for a bound window of type 2 the stream
};

// Stands for every protection domain, where it was checked before that the peer may access the memory: an XRC target
// checks that when a request arrives, by the shared receive queue that the request is for.
inline constexpr char any_domain_mark = 0;
inline constexpr const void* kAnyDomain = &any_domain_mark;

enum class AccessError : std::uint8_t { none, invalid_stag, bounds, wrap, not_associated, rights };

// The number of one registration of an STag, or of one later change of its address range (ibv_rereg_mr); `none` matches
// no region. The number has 29 bits and is never 0, so a slot of the table uses a number again only after 2^29 - 1
// registrations.
enum class Registration : std::uint32_t { none = 0 };

// What an STag named when it was looked up: its slot in the table, and the registration at that time.
struct Registered {
  std::uint32_t slot;
  Registration registration;
};

struct Access {
  std::byte* memory;  // the first octet of the access, or `discarded`; null with an error
  AccessError error;
};

// Stands for the memory of a null region in an access that writes.
inline std::byte discarded_octet;
inline std::byte* const discarded = &discarded_octet;

// An access in progress. If the STag names a window, the memory may be used while this object lives. If it names a
// region, the memory may be used until the end of the ReadSection (base/grace_period.h) in which it was looked up.
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
  // True if the access goes through a window. Then nothing may refer to the memory once this object is destroyed.
  bool counted() const { return holders_ != nullptr; }

 private:
  Access access_{nullptr, AccessError::invalid_stag};
  std::atomic<std::uint32_t>* holders_ = nullptr;
};

enum class WindowType : std::uint8_t {
  type1,  // usable by all streams of its domain; a bind ends the previous binding
  type2,  // usable by the stream that has bound it, until it is invalidated (type 2B)
};

// A request to bind a window to a part of a region.
struct Binding {
  Stag window;  // the STag of the window, with the new key
  Stag region;
  std::uint64_t offset;  // the tagged offset of the first octet in the region
  std::uint64_t length;
  std::uint32_t rights;
  WindowType type;
  bool zero_based;  // tagged offsets of the window start at 0; otherwise they are those of the region
};

// The errors of binding and invalidating (Verbs draft sections 7.8 and 7.10).
enum class WindowError : std::uint8_t {
  none,
  deallocated,     // no region or window has this STag
  no_window,       // the STag names a region, or a window of a type that does not allow the request
  no_region,       // the region's STag names no region in the Valid state
  not_invalid,     // the window is of type 2 and is bound already
  not_associated,  // wrong protection domain, or another stream has bound the window
  not_bindable,    // the region does not have kBindWindows
  zero_based,      // the region has kZeroBased
  rights,          // a window with kRemoteWrite or kRemoteAtomic needs a region with kLocalWrite (figure 20)
  bounds,          // the window exceeds the region, or a window of type 2 would have length 0
  windows_bound,   // the region has windows bound to it
};

class StagTable {
 public:
  static constexpr std::uint32_t kIndexBits = 24;
  static constexpr std::uint32_t kMaxRegions = 1U << 20;  // regions and windows together

  // `secret`: 64 random bits.
  explicit StagTable(std::uint64_t secret);
  ~StagTable();
  StagTable(const StagTable&) = delete;
  StagTable& operator=(const StagTable&) = delete;

  // Adds a region. Returns no value if the table is full, base + length wraps, or there is no memory. The region's
  // memory must remain live until the STag is retired and a grace period has passed.
  std::optional<Stag> add(const Region& region);

  // From here on find() refuses this STag (invalid_stag). False, without effect, if no region has this STag, or windows
  // are bound to the region.
  bool retire(Stag stag);
  // To be called after retire() and a grace period: the slot may be used again.
  void recycle(Stag stag);
  // Replaces the region of an STag in one step. `moves`: the address range or the tagged offset of the region changes,
  // so posted work that names the STag fails. A find() in progress may still return the old region. False, without
  // effect, if no region has this STag, windows are bound to the region, or base + length wraps.
  bool replace(Stag stag, const Region& region, bool moves);

  // The number of the slot that an STag belongs to, whether or not the STag exists. The number never changes, and
  // computing it takes longer than the rest of a look-up, so class KnownSlot keeps it for the STag that was used last.
  std::uint32_t slot_number(Stag stag) const { return gather(static_cast<std::uint32_t>(stag) >> 8); }

  // Checks an access of `length` octets at tagged offset `offset` by a stream of `domain`. `stream` identifies the
  // stream for windows of type 2. For a window, find() says only whether the access is allowed; the access itself needs
  // hold().
  Access find(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
              const void* stream = nullptr) const;
  Hold hold(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length, std::uint32_t rights,
            const void* stream = nullptr) const {
    return hold(slot_number(stag), stag, domain, offset, length, rights, stream);
  }
  Hold hold(std::uint32_t number, Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
            std::uint32_t rights, const void* stream = nullptr) const;

  // For posted work: registered() returns what the STag of a region names now, or Registration::none if the access is
  // not allowed. The later find() fails if the STag names something else by then.
  Registered registered(Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
                        std::uint32_t rights) const {
    return registered(slot_number(stag), stag, domain, offset, length, rights);
  }
  Registered registered(std::uint32_t number, Stag stag, const void* domain, std::uint64_t offset, std::uint64_t length,
                        std::uint32_t rights) const;
  Access find(const Registered& registered, const void* domain, std::uint64_t offset, std::uint64_t length,
              std::uint32_t rights) const;

  // A copy of the region or bound window that the STag names; no value if there is none.
  std::optional<Region> region(Stag stag) const;

  // Adds a window that is not bound. Returns no value if the table is full or there is no memory.
  std::optional<Stag> add_window(const void* domain, WindowType type);
  // Removes a window, bound or not; the key of `stag` does not matter.
  void remove_window(Stag stag);
  // Returns the STag of the window with a new key, for the next bind of a window of type 1. A peer that knows the last
  // key cannot compute the new one.
  Stag next_key(Stag window);
  // Called for work requests of a stream; invalidate() also for the peer's Send with Invalidate. When one of the two
  // has succeeded, no access through an earlier binding of the window is in progress.
  WindowError bind(const Binding& binding, const void* domain, const void* stream);
  WindowError invalidate(Stag stag, const void* domain, const void* stream);
  // Ends all bindings of windows of type 2 that this stream has made. To be called when the stream ends.
  void release_stream(const void* domain, const void* stream);
  // Take the table's lock before a fork, and release it afterwards in parent and child.
  void lock_for_fork() UIW_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock_after_fork() UIW_RELEASE(mutex_) { mutex_.unlock(); }
  // To be called in the child of a fork: clears the counts of accesses by the parent's other threads, which do not
  // exist in the child.
  void forget_holders() UIW_REQUIRES(mutex_);

 private:
  static constexpr std::uint32_t kChunk = 1024;
  // The word of a slot: the STag, these bits, and above them the number of the registration. The word is 0 while the
  // slot has no region or bound window in the Valid state.
  static constexpr std::uint64_t kValid = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 33;
  static constexpr std::uint64_t kSecond = std::uint64_t{1} << 34;  // Slot::regions[1] is in use, not [0]
  static constexpr unsigned kRegistrationShift = 35;
  static constexpr std::uint32_t kMaxRegistration = (std::uint32_t{1} << (64 - kRegistrationShift)) - 1;
  static constexpr std::uint64_t kName = (std::uint64_t{1} << 34) - 1;  // the bits of STag, kValid and kWindow

  enum class Use : std::uint8_t { none, region, window1, window2 };
  struct Slot {
    std::atomic<std::uint64_t> word{0};
    mutable std::atomic<std::uint32_t> holders{0};  // window: accesses in progress
    // All members except `holders` change only with the lock held. An entry of `regions` changes only while `word` is 0
    // or selects the other entry.
    std::uint32_t link = 0;  // region: how many windows are bound to it; bound window: the slot number of its region
    std::array<Region, 2> regions;    // a window uses only the first one
    std::uint32_t registrations = 0;  // the number of the last registration
    std::uint8_t key = 0;
    Use use = Use::none;

    const Region& region(std::uint64_t of_word) const { return regions[(of_word & kSecond) != 0 ? 1 : 0]; }
    Region& region() { return regions[(word.load(std::memory_order_relaxed) & kSecond) != 0 ? 1 : 0]; }
  };

  // The value that the word of a slot has in the bits of kName while the slot has a valid region with this STag
  // (name_of_region()) or a bound window with this STag (name_of_window()).
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
  std::optional<std::uint32_t> take_slot(Use use) UIW_REQUIRES(mutex_);
  std::uint32_t new_stag(std::uint32_t dense) UIW_REQUIRES(mutex_);
  void unbind(Slot& window, const void* domain) UIW_REQUIRES(mutex_);
  Hold hold_window(const Slot& window, std::uint64_t word, const void* domain, std::uint64_t offset,
                   std::uint64_t length, std::uint32_t rights, const void* stream) const;

  std::array<std::uint32_t, 4> round_keys_;
  std::array<std::atomic<Slot*>, kMaxRegions / kChunk> chunks_{};
  mutable TableMutex mutex_;  // held by every function that changes the table
  std::uint64_t random_ UIW_GUARDED_BY(mutex_);
  std::uint32_t used_ UIW_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint32_t> free_ UIW_GUARDED_BY(mutex_);
};

// Remembers the slot number of the STag that was used last, since programs use the same memory again and again. Not
// thread-safe.
class KnownSlot {
 public:
  std::uint32_t of(const StagTable& table, Stag stag) {
    if (stag != stag_) {
      stag_ = stag;
      slot_ = table.slot_number(stag);
    }
    return slot_;
  }

 private:
  Stag stag_{0};
  std::uint32_t slot_ = ~std::uint32_t{0};  // beyond the table, since no region or window has STag 0
};

// Accesses registered memory for a stream, or for a thread that posts work requests, in one protection domain. This is
// a value that refers to the table, so the table must live longer.
class Accessor {
 public:
  // `domain` and `stream` are opaque. `stream` owns the windows of type 2 that are bound through this object.
  Accessor(StagTable& table, const void* domain, const void* stream = nullptr)
      : table_(&table), domain_(domain), stream_(stream) {}
  const void* domain() const { return domain_; }
  // An accessor for memory of another domain, such as that of a shared receive queue.
  Accessor of(const void* domain) const { return {*table_, domain, stream_}; }

  // Each of these calls the function of StagTable with the same name, for the domain and the stream of this object.
  // `known` belongs to the caller.
  Hold hold(Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) const {
    return table_->hold(stag, domain_, offset, length, rights, stream_);
  }
  Hold hold(KnownSlot& known, Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) const {
    return table_->hold(known.of(*table_, stag), stag, domain_, offset, length, rights, stream_);
  }
  Registered registered(KnownSlot& known, Stag stag, std::uint64_t offset, std::uint64_t length,
                        std::uint32_t rights) const {
    return table_->registered(known.of(*table_, stag), stag, domain_, offset, length, rights);
  }
  Access find(const Registered& registered, std::uint64_t offset, std::uint64_t length, std::uint32_t rights) const {
    return table_->find(registered, domain_, offset, length, rights);
  }
  WindowError bind(const Binding& binding) const { return table_->bind(binding, domain_, stream_); }
  WindowError invalidate(Stag stag) const { return table_->invalidate(stag, domain_, stream_); }
  std::optional<Region> region(Stag stag) const { return table_->region(stag); }
  void release_stream() const { table_->release_stream(domain_, stream_); }

 private:
  StagTable* table_;
  const void* domain_;
  const void* stream_;
};

}  // namespace uiw::ddp
