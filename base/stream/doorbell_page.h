// SPDX-License-Identifier: MIT
// Shared memory with one bit for each shared-memory stream (shared_stream.h) of a process, its owner. If the owner
// waits for octets or room in the rings of a stream, the peer sets the stream's bit when they are there. So one thread
// polls thousands of streams without a system call. A flag beside each word of bits says that no thread polls this
// word. A peer that finds the flag set has to wake a thread (doorbell.h).
//
// A peer may write anything into the memory at any time. If a peer sets a bit without reason, the owner looks at an
// idle stream in vain. If a peer clears the bits of other peers, the owner looks at their streams later. That is
// accepted, since all peers are processes of the same user. Thread-safe.
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
    std::atomic<std::uint32_t> asleep;  // not 0: no thread polls the bits
  };
  // The number of a bit of the page, from 1 on. kNoBell stands for a stream that has no bit.
  using Bell = std::uint32_t;
  static constexpr Bell kNoBell = 0;
  static constexpr Bell bell(std::size_t word, std::size_t bit) { return static_cast<Bell>(word * kBits + bit) + 1; }

  // create() makes a page, and sets `fd` to the descriptor of its memory, which the caller owns, or to -1. attach()
  // maps the page that a peer has created; the caller goes on owning `fd`. Null if the memory cannot be created or
  // mapped.
  static std::unique_ptr<DoorbellPage> create(int& fd);
  static std::unique_ptr<DoorbellPage> attach(int fd);

  Word& word(std::size_t number) const { return reinterpret_cast<Word*>(memory_.data())[number]; }
  // Sets the bit `at`, which may be any number. False if the caller has to wake a thread, too, since no thread polls
  // the bit or `at` is not the number of a bit.
  bool ring(Bell at) const {
    if (at == kNoBell || at > kWords * kBits) return false;
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
