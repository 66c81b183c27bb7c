// SPDX-License-Identifier: MIT
// Memory in which the peers of a process say which of its streams in shared memory (shared_stream.h) have news: a bit
// for each. A thread that looks at thousands of streams looks at the bits, without a system call. The memory also says
// where nobody looks, so that a peer has to wake a thread (doorbell.h).
//
// A peer may write anything into the memory at any time: whoever finds a bit looks at the stream, and finds nothing. A
// peer that clears bits of others delays their news; it is a process of the same user.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/stream/sealed_memory.h"

namespace uiw {

class DoorbellPage {
 public:
  static constexpr std::size_t kBits = 64, kWords = 1024;
  struct Word {
    std::atomic<std::uint64_t> rung;
    std::atomic<std::uint32_t> asleep;  // not 0: nobody looks at the bits
  };
  // A place is a bit. kNoPlace stands for a stream that has none.
  using Place = std::uint32_t;
  static constexpr Place kNoPlace = 0;
  static constexpr Place place(std::size_t word, std::size_t bit) { return static_cast<Place>(word * kBits + bit) + 1; }

  // As the functions of SealedMemory; null if there is no memory.
  static std::unique_ptr<DoorbellPage> create(int& fd);
  static std::unique_ptr<DoorbellPage> attach(int fd);

  Word& word(std::size_t number) const { return reinterpret_cast<Word*>(memory_.data())[number]; }
  // For a peer that has written something. True if a thread of the process looks at the bit by itself. False: one has
  // to be woken, and so it has to where `at` is not a place, whatever number it is.
  bool ring(Place at) const {
    if (at == kNoPlace || at > kWords * kBits) return false;
    Word& its = word((at - 1) / kBits);
    its.rung.fetch_or(std::uint64_t{1} << ((at - 1) % kBits));
    return its.asleep.load() == 0;
  }

 private:
  explicit DoorbellPage(SealedMemory memory) : memory_(std::move(memory)) {}
  static std::unique_ptr<DoorbellPage> made_of(SealedMemory memory);

  const SealedMemory memory_;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace uiw
