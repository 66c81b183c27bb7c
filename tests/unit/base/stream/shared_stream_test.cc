// SPDX-License-Identifier: MIT
// A stream in shared memory: the switch from TCP, octets both ways, and how it ends.
#include "base/stream/shared_stream.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>

#include "base/stream/descriptor_message.h"
#include "tests/unit/base/stream/connected.h"
#include "tests/unit/base/stream/recording_tap.h"
#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr std::byte kCallers{0x11}, kCalleds{0x22};

Bytes frame(std::byte number) {
  Bytes octets = Wire().text("uiw shared rings");
  octets.insert(octets.end(), 16, number);
  return octets;
}

// An end's doorbells, and how its peer has them. The page stands for all doorbells of a process.
struct Bells {
  Bells() {
    page = DoorbellPage::create(file);
    REQUIRE((page && socket));
  }
  ~Bells() { ::close(file); }
  static std::shared_ptr<PeerDoorbell> find(DescriptorChange& change, int page, int socket) {
    OwnedDescriptor file(change.guard(page)), end(change.guard(socket));
    if (!file || !end) return nullptr;
    return std::make_shared<PeerDoorbell>(DoorbellPage::attach(file.get()), std::move(end));
  }
  // Whether the peer has woken this end since the last call.
  bool rung() const {
    Bytes octets(16);
    return ::recv(socket.watched(), octets.data(), octets.size(), MSG_DONTWAIT) > 0;
  }

  int file = -1;
  std::unique_ptr<DoorbellPage> page;
  Doorbell socket = Doorbell::create();
};

// Two ends that have met; `caller` and `called` have not gone over yet.
struct Ends {
  // `complete`: the caller passes its doorbells on.
  explicit Ends(bool copies = false, bool complete = true) {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    const OwnedDescriptor callers(sockets[0]);
    SharedOffer one(true), other(false);
    other.socket.reset(sockets[1]);
    other.find_doorbell = Bells::find;
    DescriptorChange change;
    one.peer = Bells::find(change, ::dup(called_bells.file), ::dup(called_bells.socket.passed_on()));
    int fd = -1;
    other.memory = SharedMemory::create(fd);
    REQUIRE(other.memory);
    memory = SharedMemory::attach(fd);
    one.memory = SharedMemory::attach(fd);
    file = fd;
    REQUIRE((one.memory && memory));
    one.own.fill(kCallers);
    one.peers.fill(kCalleds);
    other.own.fill(kCalleds);
    const std::array<int, 2> passed_on = {caller_bells.file, caller_bells.socket.passed_on()};
    REQUIRE(send_message(callers.get(), one.own, std::span<const int>(passed_on).first(complete ? 2 : 1)));
    caller.emplace(tcp.a, std::move(one), copies);
    called.emplace(tcp.b, std::move(other), copies);
    caller->set_bell(kCallerBell);
    called->set_bell(kCalledBell);
    for (const Bells* bells : {&caller_bells, &called_bells}) bells->page->word(3).asleep = 1;
  }
  ~Ends() { ::close(file); }
  std::size_t allocated() const {
    struct stat status {};
    REQUIRE(::fstat(file, &status) == 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  void switch_over() {
    REQUIRE(caller->begin() == 0);
    REQUIRE(called->begin() == 0);
    Connected::wait(tcp.b, POLLIN);
    CHECK(receive(*called) == -EAGAIN);
    Connected::wait(tcp.a, POLLIN);
    CHECK(receive(*caller) == -EAGAIN);
    REQUIRE((caller->is_switched() && called->is_switched()));
  }
  // One call; what comes is in `got`.
  ssize_t receive(SharedStream& stream, std::size_t wanted = 0) {
    Bytes first(wanted), staging(1000);
    Octets rest;
    const ssize_t n = stream.receive(first, staging, rest);
    got.clear();
    if (n > 0) {
      first.resize(static_cast<std::size_t>(n) - rest.size());
      got = first;
      got.insert(got.end(), rest.begin(), rest.end());
    }
    stream.used();
    return n;
  }
  const Bells& bells_of(const SharedStream& stream) const { return &stream == &*caller ? caller_bells : called_bells; }

  static constexpr auto kCallerBell = DoorbellPage::bell(3, 6), kCalledBell = DoorbellPage::bell(3, 5);
  Connected tcp;
  Bells caller_bells, called_bells;
  std::unique_ptr<SharedMemory> memory;  // a third view
  int file = -1;
  std::optional<SharedStream> caller, called;
  Bytes got;
};

ssize_t send(SharedStream& stream, const Bytes& octets) {
  iovec vector{const_cast<std::byte*>(octets.data()), octets.size()};
  return stream.send({&vector, 1});
}

void send_raw(const TcpStream& tcp, const Bytes& octets) {
  REQUIRE(::send(tcp.fd(), octets.data(), octets.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(octets.size()));
}

}  // namespace

TEST_CASE("shared_stream: the ends go over, and octets move both ways") {
  Ends ends(GENERATE(false, true));
  CHECK(send(*ends.caller, Bytes(8)) == -EAGAIN);
  CHECK(send(*ends.called, Bytes(8)) == -EAGAIN);
  ends.switch_over();
  for (SharedStream* from : {&*ends.caller, &*ends.called}) {
    SharedStream& to = from == &*ends.caller ? *ends.called : *ends.caller;
    const Bytes octets = Wire().text("some octets of a stream");
    CHECK(send(*from, octets) == static_cast<ssize_t>(octets.size()));
    CHECK_FALSE(to.await_octets(true));
    CHECK(ends.receive(to, 5) == static_cast<ssize_t>(octets.size()));
    CHECK(ends.got == octets);
    CHECK(ends.receive(to) == -EAGAIN);
    CHECK(to.await_octets(true));
    send(*from, octets);  // and rings
    CHECK(ends.bells_of(to).rung());
    CHECK(ends.receive(to) == static_cast<ssize_t>(octets.size()));
    CHECK(to.traffic().octets_received >= 2 * octets.size());
    CHECK(from->peer_signs()->all_taken);
  }
}

TEST_CASE("shared_stream: the taps of the TCP connections see the octets of the stream alone, and its end") {
  Tapped caller, called;
  Ends ends(GENERATE(false, true));
  ends.tcp.a.set_tap(std::make_unique<RecordingTap>(caller));
  ends.tcp.b.set_tap(std::make_unique<RecordingTap>(called));
  SECTION("in shared memory") {
    ends.switch_over();
    const Bytes one = Wire().text("some octets"), other = Wire().text("of a stream");
    send(*ends.caller, one);
    send(*ends.called, other);
    CHECK(ends.receive(*ends.called, 5) == 11);
    CHECK(ends.receive(*ends.caller) == 11);
    CHECK((caller.sent == one && called.received == one));
    CHECK((called.sent == other && caller.received == other));
    ends.caller->shutdown_send();
    CHECK(ends.receive(*ends.called) == 0);
    CHECK(caller.ends == " sent fin");
    CHECK(called.ends == " received fin");
  }
  SECTION("over TCP, where the caller has not taken the memory") {
    const Bytes fpdu = Wire().u16(14).zeros(48);
    send_raw(ends.tcp.a, fpdu);
    while (called.received.size() < fpdu.size()) {
      Connected::wait(ends.tcp.b, POLLIN);
      REQUIRE(ends.receive(*ends.called) > 0);
    }
    CHECK(called.received == fpdu);
  }
}

TEST_CASE("shared_stream: the frames are those of the format, also in single octets") {
  Ends ends;
  REQUIRE(ends.caller->begin() == 0);
  Bytes got(64);
  REQUIRE(Connected::receive(ends.tcp.b, got) == 32);
  got.resize(32);
  CHECK(got == frame(kCalleds));
  for (const std::byte octet : frame(kCallers)) {
    CHECK(ends.receive(*ends.caller) == -EAGAIN);
    send_raw(ends.tcp.b, Bytes{octet});
    Connected::wait(ends.tcp.a, POLLIN);
  }
  CHECK(ends.receive(*ends.caller) == -EAGAIN);
  CHECK(ends.caller->is_switched());
}

TEST_CASE("shared_stream: a caller that has not taken the memory stays on TCP") {
  Ends ends;
  const Bytes fpdu = Wire().u16(14).zeros(18);
  const bool slowly = GENERATE(false, true);
  Bytes got;
  const auto take = [&] {
    Connected::wait(ends.tcp.b, POLLIN);
    REQUIRE(ends.receive(*ends.called) > 0);
    got.insert(got.end(), ends.got.begin(), ends.got.end());
  };
  if (slowly) {
    for (const std::byte octet : fpdu) {
      send_raw(ends.tcp.a, Bytes{octet});
      take();
    }
  } else {
    send_raw(ends.tcp.a, fpdu);
    take();
  }
  CHECK(got == fpdu);
  CHECK_FALSE(ends.called->is_switched());
  CHECK(send(*ends.called, fpdu) == static_cast<ssize_t>(fpdu.size()));
  Bytes answer(64);
  CHECK(Connected::receive(ends.tcp.a, answer) == static_cast<ssize_t>(fpdu.size()));
}

TEST_CASE("shared_stream: both ends stay on TCP where the called end refuses a caller that has taken the memory") {
  const bool complete = GENERATE(true, false);  // else the caller cannot be woken
  Ends ends(GENERATE(false, true), complete);
  REQUIRE(ends.caller->begin() == 0);
  if (complete) ends.called->refuse();
  CHECK(send(*ends.called, Bytes(8)) == -EAGAIN);
  Connected::wait(ends.tcp.b, POLLIN);
  CHECK(ends.receive(*ends.called) == -EAGAIN);
  CHECK(ends.called->caller_has_taken());
  Connected::wait(ends.tcp.a, POLLIN);
  SECTION("and what follows is of the stream") {
    CHECK(ends.receive(*ends.caller) == -EAGAIN);
    for (SharedStream* from : {&*ends.caller, &*ends.called}) {
      const bool called = from == &*ends.called;
      const Bytes octets = Wire().text("some octets of a stream");
      CHECK(send(*from, octets) == static_cast<ssize_t>(octets.size()));
      Connected::wait(called ? ends.tcp.a : ends.tcp.b, POLLIN);
      CHECK(ends.receive(called ? *ends.caller : *ends.called) == static_cast<ssize_t>(octets.size()));
      CHECK(ends.got == octets);
    }
  }
  SECTION("also in the octets that come with the frame") {
    const Bytes octets = Wire().text("at once");
    REQUIRE(send(*ends.called, octets) == static_cast<ssize_t>(octets.size()));
    Bytes got(64);
    while (::recv(ends.tcp.a.fd(), got.data(), got.size(), MSG_PEEK) < 39) {
    }
    CHECK(ends.receive(*ends.caller) == static_cast<ssize_t>(octets.size()));
    CHECK(ends.got == octets);
  }
  CHECK_FALSE((ends.caller->is_switched() || ends.called->is_switched()));
}

TEST_CASE("shared_stream: a wrong number ends the stream") {
  Ends ends;
  SECTION("of the caller") {
    send_raw(ends.tcp.a, frame(std::byte{0x33}));
    Connected::wait(ends.tcp.b, POLLIN);
    CHECK(ends.receive(*ends.called) == -EPROTO);
    CHECK(send(*ends.called, Bytes(1)) < 0);
  }
  SECTION("of the caller, which cannot refuse") {
    send_raw(ends.tcp.a, frame(std::byte{0}));
    Connected::wait(ends.tcp.b, POLLIN);
    CHECK(ends.receive(*ends.called) == -EPROTO);
  }
  SECTION("of the called end") {
    REQUIRE(ends.caller->begin() == 0);
    send_raw(ends.tcp.b, frame(std::byte{0x33}));
    Connected::wait(ends.tcp.a, POLLIN);
    CHECK(ends.receive(*ends.caller) == -EPROTO);
  }
  SECTION("something else than a frame of the called end") {
    REQUIRE(ends.caller->begin() == 0);
    send_raw(ends.tcp.b, Bytes(20));
    Connected::wait(ends.tcp.a, POLLIN);
    CHECK(ends.receive(*ends.caller) == -EPROTO);
  }
}

TEST_CASE("shared_stream: the end comes behind all that is in the ring") {
  Ends ends;
  ends.switch_over();
  const Bytes octets(5000, std::byte{7});
  REQUIRE(send(*ends.caller, octets) == 5000);
  SECTION("in order") { ends.caller->shutdown_send(); }
  SECTION("the process has gone") {
    ends.caller.reset();
    ends.tcp.a.close();
  }
  Connected::wait(ends.tcp.b, POLLIN);
  std::size_t received = 0;
  ssize_t n;
  while ((n = ends.receive(*ends.called)) > 0 || (n == -EAGAIN && !ends.called->await_octets(true)))
    if (n > 0) received += static_cast<std::size_t>(n);
  CHECK(n == 0);
  CHECK(received == 5000);
}

TEST_CASE("shared_stream: a reset of TCP, or an octet on it, ends the stream") {
  Ends ends;
  ends.switch_over();
  SECTION("reset") {
    ends.tcp.a.abort();
    Connected::wait(ends.tcp.b, POLLIN);
    CHECK(ends.called->await_octets(false));  // it is not looked for
    CHECK_FALSE(ends.called->await_octets(true));
    CHECK(ends.receive(*ends.called) == -ECONNRESET);
  }
  SECTION("octet") {
    send_raw(ends.tcp.a, Bytes(1));
    Connected::wait(ends.tcp.b, POLLIN);
    CHECK_FALSE(ends.called->await_octets(true));
    CHECK(ends.receive(*ends.called) == -EPROTO);
  }
}

TEST_CASE("shared_stream: the end of TCP is found by polls, too") {
  Ends ends;
  ends.switch_over();
  ends.tcp.a.abort();
  Connected::wait(ends.tcp.b, POLLIN);
  unsigned polls = 1;
  while (ends.receive(*ends.called) == -EAGAIN) ++polls;
  CHECK(polls <= 128);
}

TEST_CASE("shared_stream: a peer is woken only where it sleeps") {
  Ends ends;
  ends.switch_over();
  DoorbellPage::Word& word = ends.called_bells.page->word(3);
  for (const bool asleep : {false, true}) {
    word.asleep = asleep ? 1 : 0;
    word.rung = 0;
    REQUIRE(ends.called->await_octets(true));
    REQUIRE(send(*ends.caller, Bytes(8)) == 8);
    CHECK(word.rung == std::uint64_t{1} << 5);
    CHECK(ends.called_bells.rung() == asleep);
    CHECK(ends.receive(*ends.called) == 8);
    // Not one that does not wait for octets.
    word.rung = 0;
    REQUIRE(send(*ends.caller, Bytes(8)) == 8);
    CHECK(word.rung == 0);
    CHECK(ends.receive(*ends.called) == 8);
  }
}

TEST_CASE("shared_stream: a peer that sleeps and whose doorbell is shut is woken by the end of TCP") {
  Ends ends;
  ends.switch_over();
  REQUIRE(send(*ends.called, Bytes(8)) == 8);
  REQUIRE(::shutdown(ends.called_bells.socket.passed_on(), SHUT_RDWR) == 0);
  REQUIRE(ends.called->await_octets(true));
  REQUIRE(send(*ends.caller, Bytes(8)) == 8);
  Connected::wait(ends.tcp.b, POLLIN);
  CHECK(ends.receive(*ends.called) == 8);
  CHECK_FALSE(ends.called->await_octets(true));
  CHECK(ends.receive(*ends.called) == 0);
  // What had come from the peer is there.
  CHECK(ends.receive(*ends.caller) == 8);
}

TEST_CASE("shared_stream: memory of a ring that is idle goes back to the system") {
  Ends ends;
  ends.switch_over();
  const std::size_t before = ends.allocated();        // the control blocks
  CHECK_FALSE(ends.caller->give_back_idle_memory());  // nothing has been written
  REQUIRE(send(*ends.caller, Bytes(10)) == 10);
  CHECK(ends.receive(*ends.called) == 10);
  CHECK(ends.receive(*ends.called) == -EAGAIN);       // which releases what has been read
  CHECK_FALSE(ends.caller->give_back_idle_memory());  // nor is this worth while
  const auto move = [&](std::size_t octets) {
    for (std::size_t moved = 0; moved < octets; moved += 1000) {
      const Bytes sent = Bytes(1000, static_cast<std::byte>(moved / 1000));
      REQUIRE(send(*ends.caller, sent) == 1000);
      Bytes got;
      while (got.size() < 1000) {
        REQUIRE(ends.receive(*ends.called) > 0);
        got.insert(got.end(), ends.got.begin(), ends.got.end());
      }
      REQUIRE(got == sent);
    }
    REQUIRE(ends.receive(*ends.called) == -EAGAIN);
  };
  move(1'000'000);
  CHECK(ends.allocated() >= before + SharedMemory::kRing);
  CHECK(ends.caller->give_back_idle_memory());
  move(1000);
  CHECK(ends.caller->give_back_idle_memory());  // it was used since the call before
  CHECK_FALSE(ends.caller->give_back_idle_memory());
  CHECK(ends.allocated() == before);
  CHECK_FALSE(ends.caller->give_back_idle_memory());
  move(1'000'000);
  // What the peer has not read stays.
  REQUIRE(send(*ends.caller, Bytes(10, std::byte{7})) == 10);
  CHECK(ends.caller->give_back_idle_memory());
  CHECK_FALSE(ends.caller->give_back_idle_memory());
  CHECK(ends.allocated() > before);
  CHECK(ends.receive(*ends.called) == 10);
  CHECK(ends.got == Bytes(10, std::byte{7}));
  CHECK(ends.receive(*ends.called) == -EAGAIN);
  CHECK_FALSE(ends.caller->give_back_idle_memory());
  CHECK(ends.allocated() == before);
}

TEST_CASE("shared_stream: what has been read makes room in large parts, and all of it once there is nothing to read") {
  Ends ends;
  ends.switch_over();
  constexpr std::size_t kAll = SharedMemory::kRing, kPart = kAll / 8;
  const auto sent = [&](std::size_t octets) { return send(*ends.caller, Bytes(octets)); };
  REQUIRE(sent(kPart) == kPart);
  CHECK(ends.receive(*ends.called) == kPart);
  REQUIRE(sent(kAll) == kAll - kPart);
  CHECK(sent(1) == -EAGAIN);
  SECTION("a quarter of the ring") {
    CHECK(ends.receive(*ends.called) == kAll - kPart);
    CHECK(sent(kAll) == kAll);
  }
  SECTION("nothing to read, with a writer that waits") {
    CHECK(ends.caller->await_room());
    CHECK(ends.receive(*ends.called) == kAll - kPart);
    CHECK(sent(kPart) == kPart);
    CHECK(ends.receive(*ends.called) == kPart);
    REQUIRE(sent(kAll) == kAll - kPart);
    CHECK(ends.caller->await_room());
    CHECK(ends.caller_bells.rung());  // for the first time
    CHECK(ends.receive(*ends.called) == kAll - kPart);
    CHECK(ends.receive(*ends.called) == -EAGAIN);
    CHECK(ends.caller_bells.rung());
    CHECK(sent(kAll) == kAll);
  }
}

TEST_CASE("shared_stream: a peer that breaks the ring ends the stream") {
  Ends ends;
  ends.switch_over();
  SECTION("what it writes") {
    ends.memory->control(RingSide::first).written = ~std::uint64_t{0} / 4;
    CHECK(ends.receive(*ends.called) == -EPROTO);
  }
  SECTION("what it reads") {
    ends.memory->control(RingSide::second).read = 1'000'000;
    REQUIRE(send(*ends.called, Bytes(SharedMemory::kRing)) == static_cast<ssize_t>(SharedMemory::kRing));
    CHECK(send(*ends.called, Bytes(1)) == -EPROTO);
  }
  CHECK(ends.receive(*ends.called) == -ECONNRESET);
  CHECK(send(*ends.called, Bytes(1)) == -ECONNRESET);
  Connected::wait(ends.tcp.b, POLLIN | POLLHUP);  // an event, by which the receiver finds out
}
