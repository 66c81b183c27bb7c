// SPDX-License-Identifier: MIT
// One direction of octets between two processes: a ring in memory that they share, with one writer and one reader.
//
// The peer is not trusted: it may write anything into the ring and its control block at any time. So each end keeps its
// own position to itself, and checks the other's each time it reads it. No octet outside the ring is accessed, whatever
// the peer writes. The first access to a page of the ring faults if the system has no memory for it. So each access to
// the ring, also by callers, goes through guarded_copy(). The control blocks are accessed without it, so they must have
// memory before.
//
// Neither class makes a system call. A writer asks peer_sleeps() after it has written, and a reader peer_waits() after
// it has released octets; then the caller wakes the peer. Not thread-safe; the two classes share nothing but the
// control block.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace uiw {

// Positions count octets since the beginning and never wrap (2^63 octets take centuries). Moving a cache line between
// processors is slow, so what is written for each message has lines of its own.
struct RingControl {
  // Written by the writer. kClosed is set once nothing follows.
  alignas(64) std::atomic<std::uint64_t> written;
  // Written by the writer, too: how far it has placed the octets of the other ring. A reader that sees octets sees what
  // was placed before they were written.
  std::atomic<std::uint64_t> placed;
  // Written by the reader.
  alignas(64) std::atomic<std::uint64_t> read;
  // Set by a writer that waits for room; cleared by the reader when it wakes the writer.
  alignas(64) std::atomic<std::uint32_t> writer_waits;
  // kAwake, or what a reader waits for that has set this; the writer sets it to kAwake when it wakes the reader.
  std::atomic<std::uint32_t> reader_sleeps;
  // Written by the reader: its bit in its page of doorbells (doorbell_page.h), for news of both rings.
  std::atomic<std::uint32_t> readers_bell;
  // Set by the reader: it looks at `placed`, which is not written otherwise.
  std::atomic<std::uint32_t> reader_follows;

  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
  static constexpr std::uint32_t kAwake = 0, kForOctets = 1, kForOctetsOrPlacement = 2;
};
static_assert(sizeof(RingControl) == 192);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

class RingWriter {
 public:
  // The arguments must remain valid as long as the writer. `ring` has a power of two of octets.
  RingWriter(RingControl& control, MutableOctets ring) : control_(control), ring_(ring) {}
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Copies octets into the ring. Returns the number that was accepted, from the first one on. If none was: -EAGAIN if
  // there is no room; -EFAULT if the first octets are not accessible; -EPROTO if the peer has broken the ring, or the
  // system has no memory for it. `wake` is called as soon as there are octets for a reader that sleeps, perhaps before
  // all are copied. Octets shortly before inaccessible ones are not accepted either, so that no header is sent without
  // its payload.
  template <typename Wake>
  ssize_t write(std::span<const iovec> vectors, Wake wake);

  // To be called when there is no room. True if the reader has been told to wake this end; false if there is room by
  // now.
  bool await_room();
  // Notes how far this end has placed the octets of the other ring, if the reader of this ring looks at that. The
  // reader sees it together with what is written next, or after show_placed(). For one thread, which may be another one
  // than the thread that writes.
  void note_placed(std::uint64_t position) {
    if (position != noted_.load(std::memory_order_relaxed) && is_followed())
      noted_.store(position, std::memory_order_release);
  }
  // Whether the reader has yet to see what has been noted. Any thread may call this.
  bool has_placed_to_show() const {
    return noted_.load(std::memory_order_relaxed) != shown_.load(std::memory_order_relaxed);
  }
  // Any thread may call this. True if the reader waits for that and has to be woken now.
  bool show_placed();
  void close() { publish(RingControl::kClosed); }
  // Whether the reader sleeps and has to be woken now; true only once for each time it sleeps.
  bool peer_sleeps();
  // How far the reader has released octets, as it has written: whether all of them, and up to which position.
  bool is_empty() const { return read_by_peer() == written_; }
  std::uint64_t read_by_peer() const { return control_.read.load(std::memory_order_acquire); }
  std::uint64_t written() const { return written_; }
  std::uint32_t readers_bell() const { return control_.readers_bell.load(std::memory_order_relaxed); }
  MutableOctets memory() const { return ring_; }

 private:
  // Octets become visible to the reader in parts of this size, so that it begins while more are copied.
  static constexpr std::size_t kPart = 16 * 1024;

  // The reader looks for octets once more when it has seen that work is placed: it may have to find the octets that its
  // program waits for, since nobody looks for these after the completion. So the two positions are stored one
  // immediately after the other, by instructions that do not wait.
  void publish(std::uint64_t closed = 0) {
    published_ = written_;
    placed_ = noted_.load(std::memory_order_acquire);
    if (placed_ != shown_.load(std::memory_order_relaxed)) {
      shown_.store(placed_, std::memory_order_relaxed);
      control_.placed.store(placed_, std::memory_order_release);
    }
    control_.written.store(written_ | closed, std::memory_order_release);
  }
  bool is_followed() const { return control_.reader_follows.load(std::memory_order_relaxed) != 0; }
  bool look();
  std::size_t room() const { return ring_.size() - static_cast<std::size_t>(written_ - read_seen_); }
  // As write(), for up to kPart octets.
  ssize_t put(const std::byte* from, std::size_t size);
  void raise_placed();

  RingControl& control_;
  const MutableOctets ring_;
  std::uint64_t written_ = 0, published_ = 0, read_seen_ = 0;
  std::uint64_t placed_ = 0;  // what had been noted at the last publish()
  // What note_placed() has noted, and what the reader has been shown of it.
  std::atomic<std::uint64_t> noted_{0}, shown_{0};
};

class RingReader {
 public:
  RingReader(RingControl& control, Octets ring) : control_(control), ring_(ring) {}
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  enum class Look { octets, nothing, closed, broken };
  // With Look::octets, `found` is what can be read, up to the end of the ring's memory. The peer may change it.
  Look look(Octets& found);
  // The caller has used this many octets of those found.
  void advance(std::size_t octets) { read_ += octets; }
  // Lets the writer overwrite what the caller has advanced beyond.
  void release() {
    control_.read.store(read_);
    released_ = read_;
  }
  // The number of octets that the caller has advanced beyond since the last release().
  std::uint64_t unreleased() const { return read_ - released_; }
  // From now on the peer says what it has placed of the octets that this end writes.
  void follow_peer() { control_.reader_follows.store(1, std::memory_order_relaxed); }
  // How far that is. A hostile peer may say anything. Any thread may call this.
  std::uint64_t placed_by_peer() const { return control_.placed.load(); }
  // Whether the writer waits for room and has to be woken now; true only once for each time it waits.
  bool peer_waits();
  // True if the writer has been told to wake this end; false if there are octets, or the end, by now.
  bool await_octets();
  // A reader that sleeps, or is about to, is also to be woken when the peer has placed more. What placed_by_peer() says
  // is to be looked at after this call. Any thread may call this.
  void await_placement() {
    std::uint32_t sleeps = control_.reader_sleeps.load();
    if (sleeps == RingControl::kForOctets)
      control_.reader_sleeps.compare_exchange_strong(sleeps, RingControl::kForOctetsOrPlacement);
  }
  std::uint64_t read() const { return read_; }
  void set_bell(std::uint32_t bell) { control_.readers_bell.store(bell, std::memory_order_relaxed); }

 private:
  RingControl& control_;
  const Octets ring_;
  std::uint64_t read_ = 0, released_ = 0;
};

template <typename Wake>
ssize_t RingWriter::write(std::span<const iovec> vectors, Wake wake) {
  const std::uint64_t first = written_;
  const auto publish_and_wake = [&] {
    publish();
    if (peer_sleeps()) wake();
  };
  for (const iovec& vector : vectors) {
    const auto* from = static_cast<const std::byte*>(vector.iov_base);
    for (std::size_t left = vector.iov_len; left > 0;) {
      const ssize_t put_now = put(from, left);
      if (put_now < 0) {
        if (put_now == -EAGAIN && written_ != published_) publish_and_wake();
        written_ = published_;
        return written_ == first ? put_now : static_cast<ssize_t>(written_ - first);
      }
      from += put_now;
      left -= static_cast<std::size_t>(put_now);
      if (written_ - published_ >= kPart) publish_and_wake();
    }
  }
  publish_and_wake();
  return static_cast<ssize_t>(written_ - first);
}

}  // namespace uiw
