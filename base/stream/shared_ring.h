// SPDX-License-Identifier: MIT
// One direction of octets between two processes: a ring in memory that they share, with one writer and one reader.
//
// The peer is not trusted: it may write anything into the ring and the control blocks at any time. So each end keeps
// its own position in private memory as well, and checks the peer's position before it accesses the ring by it. No
// octet outside the ring is accessed, whatever the peer writes. The first access to a page of the ring faults if the
// system has no memory for that page. So each access to the ring, also by callers, goes through the functions of
// guarded_copy.h. The control blocks are accessed directly, so their pages must be allocated beforehand.
//
// Neither class makes a system call. The caller wakes the peer: when RingWriter::write() calls its argument `wake`, and
// if peer_sleeps() after close(), show_placed(), or peer_waits() after release() returns true. Not thread-safe, except
// where a comment says so; the two classes share nothing but the control block.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace uiw {

// The control block of one ring. Positions count octets since the beginning and never wrap (2^63 octets take
// centuries). Moving a cache line between processors is slow, so the fields that are written for each message have
// cache lines of their own.
struct RingControl {
  // Stored by the writer: the position up to which it has written. The bit kClosed is set once nothing follows.
  alignas(64) std::atomic<std::uint64_t> written;
  // Stored by the writer, too: the position up to which it has placed the octets of the opposite ring. A reader that
  // sees new octets also sees what the writer had placed before it wrote them.
  std::atomic<std::uint64_t> placed;
  // Stored by the reader: the position up to which the writer may overwrite octets.
  alignas(64) std::atomic<std::uint64_t> read;
  // Set by a writer that waits for room. Cleared by the reader when it wakes the writer, or by the writer if it finds
  // room after all.
  alignas(64) std::atomic<std::uint32_t> writer_waits;
  // Stored by the reader before it sleeps: what the reader waits for. The writer sets kAwake when it wakes the reader,
  // and the reader does if it finds octets before it sleeps.
  std::atomic<std::uint32_t> reader_sleeps;
  // Stored by the reader: the number of the bit in the reader's doorbell page (doorbell_page.h) that the peer sets to
  // wake the reader, for new octets in this ring and for room in the opposite ring.
  std::atomic<std::uint32_t> readers_bell;
  // Stored by the reader: not 0 if the reader uses `placed`. The writer stores `placed` only then.
  std::atomic<std::uint32_t> reader_follows;

  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;
  static constexpr std::uint32_t kAwake = 0, kForOctets = 1, kForOctetsOrPlacement = 2;
};
static_assert(sizeof(RingControl) == 192);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

class RingWriter {
 public:
  // The arguments must remain valid as long as the writer. The size of `ring` is a power of two.
  RingWriter(RingControl& control, MutableOctets ring) : control_(control), ring_(ring) {}
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // Copies octets into the ring. Returns the number of octets that were accepted, from the first one on. If none was:
  // -EAGAIN if there is no room; -EFAULT if the first octets are not accessible; -EPROTO if the peer has written an
  // impossible position, or the system has no memory for the ring. `wake` is called as soon as there are octets for a
  // reader that sleeps, perhaps before all are copied. Octets shortly before inaccessible ones are not accepted either,
  // so that no header is sent without its payload.
  template <typename Wake>
  ssize_t write(std::span<const iovec> vectors, Wake wake);

  // To be called when there is no room. True if the reader will wake this end once there is room; false if write() is
  // to be called again now, since there is room or the peer has written an impossible position.
  bool await_room();
  // Whether the peer uses the position of note_placed(). A peer says so before it uses the ring.
  bool is_followed() const { return control_.reader_follows.load(std::memory_order_relaxed) != 0; }
  // Notes the position up to which this end has placed the octets of the opposite ring. To be called if is_followed().
  // The peer sees the new value together with the octets that are written next, or after show_placed(). Only one thread
  // at a time may call this, but it need not be the thread that writes.
  void note_placed(std::uint64_t position) {
    if (position != noted_.load(std::memory_order_relaxed)) noted_.store(position, std::memory_order_release);
  }
  // Whether the position of the last note_placed() is not visible to the peer yet. Any thread may call this.
  bool has_placed_to_show() const {
    return noted_.load(std::memory_order_relaxed) != shown_.load(std::memory_order_relaxed);
  }
  // Makes the position of the last note_placed() visible to the peer. True if the peer sleeps until more is placed, and
  // has to be woken now. Any thread may call this.
  bool show_placed();
  void close() { publish(RingControl::kClosed); }
  // Whether the reader sleeps and has to be woken now; true only once for each time it sleeps.
  bool peer_sleeps();
  // read_by_peer(): the position up to which the reader lets this end overwrite octets. is_empty(): whether this is the
  // position up to which octets were written. Both use what the peer has stored, without a check.
  bool is_empty() const { return read_by_peer() == written_; }
  std::uint64_t read_by_peer() const { return control_.read.load(std::memory_order_acquire); }
  std::uint64_t written() const { return written_; }
  std::uint32_t readers_bell() const { return control_.readers_bell.load(std::memory_order_relaxed); }
  MutableOctets memory() const { return ring_; }

 private:
  // In a long write, octets become visible to the reader as soon as at least this many are copied, so that it can begin
  // to read while more are copied.
  static constexpr std::size_t kPart = 16 * 1024;

  // Makes all octets written so far visible to the reader, together with the position of the last note_placed(). A peer
  // that sees a new value of `placed` may complete work that its program has posted, and the program may stop polling
  // after this completion. So a peer that expects a message looks at `written` once more before it reports the
  // completion. To let this look find the message, `written` is stored directly after `placed`, by instructions that do
  // not wait.
  void publish(std::uint64_t closed = 0) {
    published_ = written_;
    placed_ = noted_.load(std::memory_order_acquire);
    if (placed_ != shown_.load(std::memory_order_relaxed)) {
      shown_.store(placed_, std::memory_order_relaxed);
      control_.placed.store(placed_, std::memory_order_release);
    }
    control_.written.store(written_ | closed, std::memory_order_release);
  }
  bool look();
  std::size_t room() const { return ring_.size() - static_cast<std::size_t>(written_ - read_seen_); }
  // Copies up to kPart octets into the ring, and does not make them visible yet. Returns the number of octets that were
  // copied, or a negative errno as write() does.
  ssize_t put(const std::byte* from, std::size_t size);
  void raise_placed();

  RingControl& control_;
  const MutableOctets ring_;
  std::uint64_t written_ = 0, published_ = 0, read_seen_ = 0;
  std::uint64_t placed_ = 0;  // the value of noted_ at the last publish()
  // noted_: the position of the last note_placed(). shown_: the last of these positions that was made visible to the
  // peer.
  std::atomic<std::uint64_t> noted_{0}, shown_{0};
};

class RingReader {
 public:
  RingReader(RingControl& control, Octets ring) : control_(control), ring_(ring) {}
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  enum class Look { octets, nothing, closed, broken };
  // Looks for octets that were not passed by advance(). Look::octets: `found` is set to as many of them as are
  // contiguous in memory, and the peer may change them at any time. Look::broken: the peer has written an impossible
  // position.
  Look look(Octets& found);
  // The caller has used this many of the octets that look() has found.
  void advance(std::size_t octets) { read_ += octets; }
  // Lets the writer overwrite the octets that advance() has passed.
  void release() {
    control_.read.store(read_);
    released_ = read_;
  }
  // The number of octets that advance() has passed since the last release().
  std::uint64_t unreleased() const { return read_ - released_; }
  // From now on the peer says what it has placed of the octets that this end writes.
  void follow_peer() { control_.reader_follows.store(1, std::memory_order_relaxed); }
  // The position before which the peer says that it has placed all octets that this end writes. A hostile peer may
  // store any value. Any thread may call this.
  std::uint64_t placed_by_peer() const { return control_.placed.load(); }
  // Whether the writer waits for room and has to be woken now; true only once for each time it waits.
  bool peer_waits();
  // True if the writer will wake this end when it writes or closes; false if look() is to be called again now.
  bool await_octets();
  // If the reader of this end sleeps, or has called await_octets() and is about to sleep: asks the peer to wake the
  // reader also when the peer has placed more. After this the caller calls placed_by_peer(), since the peer does not
  // wake the reader for what the peer has placed before. Any thread may call this.
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

inline RingReader::Look RingReader::look(Octets& found) {
  const std::uint64_t said = control_.written.load();
  const std::uint64_t written = said & ~RingControl::kClosed;
  if (written == read_) return said == written ? Look::nothing : Look::closed;
  if (written < read_ || written - read_ > ring_.size()) return Look::broken;
  const std::size_t at = static_cast<std::size_t>(read_) & (ring_.size() - 1);
  found = ring_.subspan(at, std::min(static_cast<std::size_t>(written - read_), ring_.size() - at));
  return Look::octets;
}

template <typename Wake>
ssize_t RingWriter::write(std::span<const iovec> vectors, Wake wake) {
  const std::uint64_t first = written_;
  // peer_sleeps() also shows a position again that this publish() has overwritten, so it follows each publish().
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
