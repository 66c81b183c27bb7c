// SPDX-License-Identifier: MIT
// Memory in which the peers of a process say which of its streams in shared memory (shared_stream.h) have news: a bit
// for each. A thread that looks at thousands of streams looks at the bits, without a system call. The memory also says
// where nobody looks, so that a peer has to wake the process (doorbell.h).
//
// A peer may write anything into the memory at any time: whoever finds a bit looks at the stream, and finds nothing. A
// peer that clears bits of others keeps news from the process; it is one of the same user, who can do worse.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace uiw::mpa {

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

  // Makes new memory. `fd` is its descriptor, close-on-exec, which the caller owns. Null if the system does not allow
  // it.
  static std::unique_ptr<DoorbellPage> create(int& fd);
  // Maps memory that a peer has made; the caller goes on owning `fd`. Null if it is not as create() makes it, or cannot
  // be mapped.
  static std::unique_ptr<DoorbellPage> attach(int fd);
  ~DoorbellPage();
  DoorbellPage(const DoorbellPage&) = delete;
  DoorbellPage& operator=(const DoorbellPage&) = delete;

  Word& word(std::size_t number) const { return words_[number]; }
  // For a peer, after it has written what the news are. True if somebody looks at the bit by himself. False: the
  // process has to be woken; so it is too where the place is none, whatever number it is.
  bool ring(Place at) const {
    if (at == kNoPlace || at > kWords * kBits) return false;
    Word& its = words_[(at - 1) / kBits];
    its.rung.fetch_or(std::uint64_t{1} << ((at - 1) % kBits));
    return its.asleep.load() == 0;
  }

 private:
  explicit DoorbellPage(Word* words);
  static std::unique_ptr<DoorbellPage> map(int fd);

  Word* const words_;
  const int process_;  // that has mapped it: a child of a fork has no part in it
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace uiw::mpa
