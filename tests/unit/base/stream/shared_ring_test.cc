// SPDX-License-Identifier: MIT
// A ring in shared memory: order, room, waking, and a peer that writes what it likes; and the memory of two rings.
#include "base/stream/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/guarded_copy.h"
#include "base/stream/shared_memory.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using Look = RingReader::Look;

namespace {

constexpr std::size_t kRing = 4096;

struct Ring {
  explicit Ring(std::size_t size = kRing) : memory(size) {}

  std::unique_ptr<RingControl> control = std::make_unique<RingControl>();
  Bytes memory;
  RingWriter writer{*control, memory};
  RingReader reader{*control, memory};
  unsigned wakes = 0;

  ssize_t write(const Bytes& octets) {
    const iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
    return writer.write({&vector, 1}, [this] { ++wakes; });
  }
  // All that is there, over the end of the memory.
  Bytes read() {
    Bytes all;
    Octets found;
    while (reader.look(found) == Look::octets) {
      all.insert(all.end(), found.begin(), found.end());
      reader.advance(found.size());
      reader.release();
    }
    return all;
  }
};

Bytes stretch(std::size_t size, std::uint64_t from) {
  Bytes octets(size);
  for (std::size_t i = 0; i < size; ++i) octets[i] = static_cast<std::byte>((from + i) * 31 + (from + i) / 256);
  return octets;
}

}  // namespace

TEST_CASE_METHOD(Ring, "shared_ring: octets come in order over many laps") {
  std::mt19937 random(5);
  std::uint64_t written = 0, taken_out = 0;
  while (taken_out < 100 * kRing) {
    const Bytes octets = stretch(1 + random() % kRing, written);
    const std::size_t cut = random() % octets.size();
    const std::array<iovec, 2> vectors = {{{const_cast<std::byte*>(octets.data()), cut},
                                           {const_cast<std::byte*>(octets.data()) + cut, octets.size() - cut}}};
    const ssize_t taken = writer.write(vectors, [] {});
    if (taken > 0) written += static_cast<std::uint64_t>(taken);
    CHECK((taken > 0 || taken == -EAGAIN));
    if (random() % 2 == 0) continue;
    const Bytes got = read();
    REQUIRE(got == stretch(got.size(), taken_out));
    taken_out += got.size();
    REQUIRE(taken_out == written);
  }
}

TEST_CASE_METHOD(Ring, "shared_ring: a full ring takes nothing, and a part of what is too long") {
  CHECK(write(stretch(kRing + 100, 0)) == static_cast<ssize_t>(kRing));
  CHECK(write(stretch(1, 0)) == -EAGAIN);
  CHECK_FALSE(writer.is_empty());
  CHECK(read() == stretch(kRing, 0));
  CHECK(writer.is_empty());
  CHECK(write(stretch(1, 0)) == 1);
}

TEST_CASE_METHOD(Ring, "shared_ring: its end is seen behind the last octet") {
  write(stretch(10, 0));
  writer.close();
  Octets found;
  CHECK(reader.look(found) == Look::octets);
  CHECK(read() == stretch(10, 0));
  CHECK(reader.look(found) == Look::closed);
  CHECK_FALSE(reader.await_octets());
}

TEST_CASE("shared_ring: memory that is not accessible is not taken, nor a header before it, but earlier octets are") {
  install_copy_guard();
  Ring ring(16 * kRing);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const pages =
      static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(::mprotect(pages + page, page, PROT_NONE) == 0);
  const std::array<iovec, 2> vectors = {{{pages + page - 8, 8}, {pages + page, 8}}};
  CHECK(ring.writer.write(vectors, [] {}) == -EFAULT);
  CHECK(ring.read().empty());
  // Of two large messages the first goes, as far as it has been published.
  const Bytes large = stretch(40'000, 5);
  const std::array<iovec, 3> messages = {
      {{const_cast<std::byte*>(large.data()), large.size()}, {pages + page - 8, 8}, {pages + page, 8}}};
  const ssize_t taken = ring.writer.write(messages, [] {});
  CHECK(taken > 0);
  CHECK(taken <= static_cast<ssize_t>(large.size()));
  const Bytes come = ring.read();
  CHECK(come == Bytes(large.begin(), large.begin() + taken));
  // What follows stands where what was not taken would have stood.
  ring.write(stretch(10, 9));
  CHECK(ring.read() == stretch(10, 9));
  ::munmap(pages, 2 * page);
}

TEST_CASE_METHOD(Ring, "shared_ring: a reader that sleeps is woken once, by the next octets") {
  write(stretch(1, 0));
  CHECK(wakes == 0);
  CHECK_FALSE(reader.await_octets());  // there are some
  write(stretch(1, 1));
  CHECK(wakes == 0);
  read();
  CHECK(reader.await_octets());
  write(stretch(1, 2));
  write(stretch(1, 3));
  CHECK(wakes == 1);
}

TEST_CASE_METHOD(Ring,
                 "shared_ring: a writer that waits is woken once, when there is room for a good part of the ring") {
  CHECK_FALSE(writer.await_room());  // there is room
  write(stretch(kRing, 0));
  CHECK(writer.await_room());
  Octets found;
  REQUIRE(reader.look(found) == Look::octets);
  reader.advance(16);
  reader.release();
  CHECK_FALSE(reader.peer_waits());
  reader.advance(kRing / 2);
  reader.release();
  CHECK(reader.peer_waits());
  CHECK_FALSE(reader.peer_waits());
}

TEST_CASE_METHOD(Ring,
                 "shared_ring: a reader that follows its peer sees what is placed with the next octets, or is woken") {
  CHECK_FALSE(writer.is_followed());
  reader.follow_peer();
  CHECK(writer.is_followed());
  writer.note_placed(10);
  CHECK(writer.has_placed_to_show());
  CHECK(reader.placed_by_peer() == 0);
  CHECK(write(stretch(8, 0)) == 8);
  CHECK(reader.placed_by_peer() == 10);
  CHECK_FALSE(writer.has_placed_to_show());
  CHECK(read() == stretch(8, 0));
  writer.note_placed(11);
  CHECK_FALSE(writer.show_placed());  // the reader does not sleep
  CHECK(reader.placed_by_peer() == 11);
  reader.await_placement();
  REQUIRE(reader.await_octets());
  writer.note_placed(12);
  CHECK_FALSE(writer.show_placed());  // it sleeps, but for octets
  reader.await_placement();
  CHECK(reader.placed_by_peer() == 12);
  writer.note_placed(13);
  CHECK(writer.show_placed());
  CHECK_FALSE(writer.show_placed());
  CHECK(reader.placed_by_peer() == 13);
  CHECK(wakes == 0);
}

TEST_CASE("shared_ring: what one thread shows during a long write of another one stays shown") {
  Ring ring(64 * kRing);
  ring.reader.follow_peer();
  const Bytes octets = stretch(32 * kRing, 0);  // becomes visible in several parts
  constexpr std::uint64_t kRounds = 30'000, kMost = 4000;
  const auto last_of = [](std::uint64_t round) { return kMost * round + 1 + round * 7919 % (kMost - 1); };
  std::atomic<std::uint64_t> begun{0}, done{0};
  std::thread receiver([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      while (begun.load() != round) std::this_thread::yield();
      // Ends at any moment of the write.
      for (std::uint64_t position = kMost * round + 1; position <= last_of(round); ++position)
        ring.writer.note_placed(position);
      ring.writer.show_placed();
      done.store(round);
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    begun.store(round);
    wrong += ring.write(octets) != static_cast<ssize_t>(octets.size());
    while (done.load() != round) std::this_thread::yield();
    wrong += ring.reader.placed_by_peer() != last_of(round);
    ring.reader.advance(octets.size());
    ring.reader.release();
  }
  receiver.join();
  CHECK(wrong == 0);
}

TEST_CASE_METHOD(Ring, "shared_ring: what one thread notes and shows while another one writes is shown in the end") {
  constexpr std::uint64_t kLast = 200'000;
  reader.follow_peer();
  std::thread receiver([&] {
    for (std::uint64_t position = 1; position <= kLast; ++position) {
      writer.note_placed(position);
      if (position % 3 == 0) writer.show_placed();
    }
    if (writer.has_placed_to_show()) writer.show_placed();
  });
  const Bytes octets = stretch(8, 0);
  while (reader.placed_by_peer() != kLast && write(octets) == 8) CHECK(read().size() == 8);
  receiver.join();
  CHECK(reader.placed_by_peer() == kLast);
}

TEST_CASE_METHOD(Ring, "shared_ring: two threads that sleep until they are woken move everything") {
  std::mutex mutex;
  std::condition_variable condition;
  bool to_reader = false, to_writer = false;
  const auto wake = [&](bool& flag) {
    const std::lock_guard lock(mutex);
    flag = true;
    condition.notify_all();
  };
  const auto sleep = [&](bool& flag) {
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return flag; });
    flag = false;
  };
  constexpr std::uint64_t kAll = 500 * kRing;
  std::thread writing([&] {
    std::mt19937 random(9);
    for (std::uint64_t written = 0; written < kAll;) {
      const Bytes octets = stretch(std::min<std::uint64_t>(1 + random() % 3000, kAll - written), written);
      const iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
      const ssize_t taken = writer.write({&vector, 1}, [&] { wake(to_reader); });
      if (taken > 0) {
        written += static_cast<std::uint64_t>(taken);
      } else if (writer.await_room()) {
        sleep(to_writer);
      }
    }
  });
  std::uint64_t read = 0;
  bool right = true;
  while (read < kAll) {
    Octets found;
    if (reader.look(found) == Look::octets) {
      const Bytes got(found.begin(), found.end());
      right = right && got == stretch(got.size(), read);
      read += got.size();
      reader.advance(got.size());
      reader.release();
      if (reader.peer_waits()) wake(to_writer);
    } else if (reader.await_octets()) {
      sleep(to_reader);
    }
  }
  writing.join();
  CHECK(right);
}

TEST_CASE_METHOD(Ring, "shared_ring: positions that cannot be are found out") {
  write(stretch(100, 0));
  Octets found;
  SECTION("of a reader: ahead of what was written") {
    control->read = 101;
    CHECK(write(stretch(kRing, 0)) == -EPROTO);
  }
  SECTION("of a reader: it goes back") {
    read();
    write(stretch(kRing, 100));
    CHECK(write(stretch(1, 0)) == -EAGAIN);
    control->read = 99;
    CHECK(write(stretch(1, 0)) == -EPROTO);
  }
  SECTION("of a writer: more than the ring has") {
    control->written = kRing + 1;
    CHECK(reader.look(found) == Look::broken);
  }
  SECTION("of a writer: it goes back") {
    read();
    control->written = 99;
    CHECK(reader.look(found) == Look::broken);
  }
}

TEST_CASE("shared_memory: both ends see the same octets, and either may go first") {
  int fd = -1;
  auto one = SharedMemory::create(fd);
  REQUIRE(one);
  auto other = SharedMemory::attach(fd);
  ::close(fd);
  REQUIRE(other);
  for (const auto side : {RingSide::first, RingSide::second}) {
    RingWriter writer(one->control(side), one->ring(side));
    RingReader reader(other->control(side), other->ring(side));
    const Bytes octets = stretch(1000, 7);
    const iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
    CHECK(writer.write({&vector, 1}, [] {}) == 1000);
    Octets found;
    REQUIRE(reader.look(found) == Look::octets);
    CHECK(Bytes(found.begin(), found.end()) == octets);
  }
  one.reset();
  CHECK(other->control(RingSide::first).written == 1000);
}

TEST_CASE("shared_memory: there is none where files may not be that long, and no signal") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{SharedMemory::kSize - 1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  int fd = -1;
  const auto made = SharedMemory::create(fd);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_FALSE(made);
}

TEST_CASE("shared_memory: what is not as it should be is not mapped") {
  const auto file = [](std::size_t size, int seals) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, static_cast<off_t>(size)) == 0);
    REQUIRE(::fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int wrong[] = {file(SharedMemory::kSize - 4096, kAll),
                       file(SharedMemory::kSize + 4096, kAll),
                       file(SharedMemory::kSize, F_SEAL_GROW | F_SEAL_SEAL),
                       file(SharedMemory::kSize, F_SEAL_SHRINK | F_SEAL_SEAL),
                       file(SharedMemory::kSize, F_SEAL_GROW),
                       ::open("/dev/zero", O_RDWR | O_CLOEXEC)};
  for (const int fd : wrong) {
    CHECK_FALSE(SharedMemory::attach(fd));
    ::close(fd);
  }
  CHECK_FALSE(SharedMemory::attach(-1));
  int fd = -1;
  const auto made = SharedMemory::create(fd);
  REQUIRE(made);
  CHECK(::ftruncate(fd, 0) != 0);
  CHECK(::ftruncate(fd, SharedMemory::kSize + 1) != 0);
  ::close(fd);
}
