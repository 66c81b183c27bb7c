// SPDX-License-Identifier: MIT
#include "base/stream/shared_ring.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/guarded_copy.h"

namespace uiw {

namespace {

bool is_there(const std::byte* from, std::size_t size) {
  std::array<std::byte, 1024> copy;
  for (std::size_t at = 0; at < size; at += copy.size()) {
    if (!guarded_copy_unordered(copy.data(), from + at, std::min(copy.size(), size - at))) return false;
  }
  return true;
}

}  // namespace

// Reads the position up to which this end may overwrite octets. The reader stores this position and is not trusted, so
// the position is checked. False if it is impossible.
bool RingWriter::look() {
  const std::uint64_t read = control_.read.load();
  if (read < read_seen_ || read > written_) return false;
  read_seen_ = read;
  return true;
}

ssize_t RingWriter::put(const std::byte* from, std::size_t size) {
  std::size_t most = std::min(size, kPart);
  if (room() < most) {
    if (!look()) return -EPROTO;
    most = std::min(most, room());
    if (most == 0) return -EAGAIN;
  }
  const std::size_t at = static_cast<std::size_t>(written_) & (ring_.size() - 1);
  most = std::min(most, ring_.size() - at);
  if (!guarded_copy_unordered(ring_.data() + at, from, most)) return is_there(from, most) ? -EPROTO : -EFAULT;
  written_ += most;
  return static_cast<ssize_t>(most);
}

// This end first sets the flag writer_waits, then reads the reader's position. The reader first stores its position,
// then reads the flag. All four accesses are sequentially consistent, so this end sees the room, or the reader sees the
// flag and wakes this end.
bool RingWriter::await_room() {
  control_.writer_waits.store(1);
  if (look() && room() == 0) return true;
  control_.writer_waits.store(0, std::memory_order_relaxed);
  return false;
}

// publish() has stored the position of the new octets; now this end reads the flag reader_sleeps. The reader first sets
// the flag, then reads the position. So this end sees the flag, or the reader sees the octets. publish() uses a release
// store, which does not wait for the cache line; the read-modify-write here does, and so orders the store before the
// read of the flag.
//
// publish() may have overwritten a newer value of `placed` that another thread had stored in show_placed(). That thread
// set noted_ before, so this thread finds the newer value in noted_ after the read-modify-write, and stores it again.
bool RingWriter::peer_sleeps() {
  control_.written.fetch_add(0);
  if (noted_.load() != placed_) raise_placed();
  if (control_.reader_sleeps.load() == RingControl::kAwake) return false;
  return control_.reader_sleeps.exchange(RingControl::kAwake) != RingControl::kAwake;
}

bool RingWriter::show_placed() {
  raise_placed();
  std::uint32_t sleeps = control_.reader_sleeps.load();
  return sleeps == RingControl::kForOctetsOrPlacement &&
         control_.reader_sleeps.compare_exchange_strong(sleeps, RingControl::kAwake);
}

// Raises the position `placed`, which the peer reads, to noted_. The number of tries is limited, since a hostile peer
// can change `placed` again and again.
void RingWriter::raise_placed() {
  const std::uint64_t noted = noted_.load();
  std::uint64_t seen = control_.placed.load();
  for (int tries = 0; tries < 8 && seen < noted && !control_.placed.compare_exchange_strong(seen, noted);) ++tries;
  shown_.store(noted, std::memory_order_relaxed);
}

// A writer sets writer_waits when it finds the ring full. The writer is woken once half the ring is free, so that it
// does not write a few octets at a time. Until then the ring has more octets, and the reader calls peer_waits() again
// when it has read them.
bool RingReader::peer_waits() {
  if (control_.writer_waits.load() == 0) return false;
  const std::uint64_t written = control_.written.load(std::memory_order_relaxed) & ~RingControl::kClosed;
  if (written - read_ > ring_.size() / 2) return false;
  return control_.writer_waits.exchange(0) != 0;
}

bool RingReader::await_octets() {
  control_.reader_sleeps.store(RingControl::kForOctets);
  Octets found;
  if (look(found) == Look::nothing) return true;
  control_.reader_sleeps.store(RingControl::kAwake, std::memory_order_relaxed);
  return false;
}

}  // namespace uiw
