// SPDX-License-Identifier: MIT
// Doorbells: the page, the socket that wakes a thread, and the messages that pass both on.
#include "base/stream/doorbell_page.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include "base/descriptor.h"
#include "base/stream/descriptor_message.h"
#include "base/stream/doorbell.h"

using namespace uiw;

namespace {

struct Pair {
  Pair() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0); }
  ~Pair() {
    for (const int end : ends) ::close(end);
  }
  int ends[2];
};

using Eight = std::array<std::byte, 8>;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("doorbell page: a ring is a bit, and says whether somebody looks at it") {
  int fd = -1;
  const auto own = DoorbellPage::create(fd);
  REQUIRE(own);
  const auto peers = DoorbellPage::attach(fd);
  close_descriptor(fd);
  REQUIRE(peers);
  CHECK(peers->ring(DoorbellPage::bell(0, 0)));
  CHECK(peers->ring(DoorbellPage::bell(0, 63)));
  CHECK(own->word(0).rung == (std::uint64_t{1} << 63 | 1));
  own->word(1023).asleep = 1;
  CHECK_FALSE(peers->ring(DoorbellPage::bell(1023, 5)));
  CHECK(own->word(1023).rung == std::uint64_t{1} << 5);
}

TEST_CASE("doorbell page: a place that there is not wakes the process, and touches nothing") {
  int fd = -1;
  const auto own = DoorbellPage::create(fd);
  REQUIRE(own);
  close_descriptor(fd);
  for (const DoorbellPage::Bell bell :
       {DoorbellPage::kNoBell, DoorbellPage::bell(1024, 0), ~DoorbellPage::Bell{0}, DoorbellPage::Bell{1} << 31}) {
    CHECK_FALSE(own->ring(bell));
  }
  for (std::size_t i = 0; i < DoorbellPage::kWords; ++i) REQUIRE(own->word(i).rung == 0);
}

TEST_CASE("doorbell: a peer wakes a thread that sleeps, as often as it rings, and never blocks") {
  const Doorbell own = Doorbell::create();
  REQUIRE(own);
  int file = -1;
  const auto page = DoorbellPage::create(file);
  REQUIRE(page);
  const PeerDoorbell peers(DoorbellPage::attach(file), OwnedDescriptor(::dup(own.passed_on())));
  close_descriptor(file);
  pollfd watched{own.watched(), POLLIN, 0};
  const auto rung = [&] { return ::poll(&watched, 1, 0) == 1; };
  peers.ring(DoorbellPage::bell(0, 1));
  CHECK_FALSE(rung());  // nobody sleeps
  page->word(0).asleep = 1;
  for (unsigned i = 0; i < 1000; ++i) {
    peers.ring(DoorbellPage::bell(0, 1));
    CHECK(rung());
    own.drain();
    CHECK_FALSE(rung());
  }
  for (unsigned i = 0; i < 10'000; ++i) peers.ring(DoorbellPage::bell(0, 1));
  CHECK(rung());
  own.drain();
  CHECK_FALSE(rung());
}

TEST_CASE("doorbell page: memory that is not as it is made is refused") {
  constexpr std::size_t kSize = DoorbellPage::kWords * sizeof(DoorbellPage::Word);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  struct Row {
    std::size_t size;
    int seals;
    bool good;
  };
  const Row row = GENERATE(Row{kSize, kSeals, true}, Row{kSize - 1, kSeals, false}, Row{2 * kSize, kSeals, false},
                           Row{kSize, F_SEAL_GROW | F_SEAL_SEAL, false}, Row{kSize, 0, false},
                           Row{kSize, kSeals | F_SEAL_WRITE, false});
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(::ftruncate(fd, static_cast<off_t>(row.size)) == 0);
  if (row.seals != 0) REQUIRE(::fcntl(fd, F_ADD_SEALS, row.seals) == 0);
  CHECK((DoorbellPage::attach(fd) != nullptr) == row.good);
  ::close(fd);
}

TEST_CASE("messages with descriptors: octets arrive with as many descriptors as there is room for") {
  Pair pair;
  int files[3];
  REQUIRE(::pipe2(files, O_CLOEXEC) == 0);
  files[2] = ::dup(files[0]);
  const std::size_t sent = GENERATE(0U, 1U, 2U, 3U), room = GENERATE(1U, 2U, 3U);
  Eight octets{std::byte{7}}, come{};
  REQUIRE(send_message(pair.ends[0], octets, std::span<const int>(files).first(sent)));
  std::array<int, 3> fds{-2, -2, -2};
  const DescriptorChange change;
  REQUIRE(receive_message(change, pair.ends[1], come, std::span<int>(fds).first(room)));
  CHECK(come == octets);
  for (std::size_t i = 0; i < room; ++i) {
    CHECK((fds[i] >= 0) == (i < sent));
    if (fds[i] < 0) continue;
    CHECK((::fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
    change.drop(fds[i]);
  }
  for (const int file : files) ::close(file);
}

TEST_CASE("messages with descriptors: too few octets are no message, and leave no descriptor open") {
  Pair pair;
  int files[2];
  REQUIRE(::pipe2(files, O_CLOEXEC) == 0);
  const int next = ::dup(files[0]);
  ::close(next);
  const Eight octets{};
  REQUIRE(send_message(pair.ends[0], Octets(octets).first(3), std::span<const int>(files).first(2)));
  Eight come{};
  std::array<int, 2> fds;
  const DescriptorChange change;
  CHECK_FALSE(receive_message(change, pair.ends[1], come, fds));
  CHECK(fds == std::array<int, 2>{-1, -1});
  CHECK_FALSE(is_open(next));
  // Nothing is there, and then the end.
  CHECK_FALSE(receive_message(change, pair.ends[1], come, fds));
  for (const int file : files) ::close(file);
}
