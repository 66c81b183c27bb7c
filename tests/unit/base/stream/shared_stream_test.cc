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
#include "tests/unit/base/stream/recording_tap.h"
#include "tests/unit/base/stream/tcp_pair.h"
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
    TcpPair::wait(tcp.b, POLLIN);
    CHECK(receive(*called) == -EAGAIN);
    TcpPair::wait(tcp.a, POLLIN);
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
  TcpPair tcp;
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
      TcpPair::wait(ends.tcp.b, POLLIN);
      REQUIRE(ends.receive(*ends.called) > 0);
    }
    CHECK(called.received == fpdu);
  }
}

TEST_CASE_METHOD(Ends, "shared_stream: the frames are those of the format, also in single octets") {
  REQUIRE(caller->begin() == 0);
  Bytes heard(64);
  REQUIRE(TcpPair::receive(tcp.b, heard) == 32);
  heard.resize(32);
  CHECK(heard == frame(kCalleds));
  for (const std::byte octet : frame(kCallers)) {
    CHECK(receive(*caller) == -EAGAIN);
    send_raw(tcp.b, Bytes{octet});
    TcpPair::wait(tcp.a, POLLIN);
  }
  CHECK(receive(*caller) == -EAGAIN);
  CHECK(caller->is_switched());
}

TEST_CASE_METHOD(Ends, "shared_stream: a caller that has not taken the memory stays on TCP") {
  const Bytes fpdu = Wire().u16(14).zeros(18);
  const bool slowly = GENERATE(false, true);
  Bytes heard;
  const auto take = [&] {
    TcpPair::wait(tcp.b, POLLIN);
    REQUIRE(receive(*called) > 0);
    heard.insert(heard.end(), got.begin(), got.end());
  };
  if (slowly) {
    for (const std::byte octet : fpdu) {
      send_raw(tcp.a, Bytes{octet});
      take();
    }
  } else {
    send_raw(tcp.a, fpdu);
    take();
  }
  CHECK(heard == fpdu);
  CHECK_FALSE(called->is_switched());
  CHECK(send(*called, fpdu) == static_cast<ssize_t>(fpdu.size()));
  Bytes answer(64);
  CHECK(TcpPair::receive(tcp.a, answer) == static_cast<ssize_t>(fpdu.size()));
}

TEST_CASE("shared_stream: both ends stay on TCP where the called end refuses a caller that has taken the memory") {
  const bool complete = GENERATE(true, false);  // else the caller cannot be woken
  Ends ends(GENERATE(false, true), complete);
  REQUIRE(ends.caller->begin() == 0);
  if (complete) ends.called->refuse();
  CHECK(send(*ends.called, Bytes(8)) == -EAGAIN);
  TcpPair::wait(ends.tcp.b, POLLIN);
  CHECK(ends.receive(*ends.called) == -EAGAIN);
  CHECK(ends.called->caller_has_taken());
  TcpPair::wait(ends.tcp.a, POLLIN);
  SECTION("and what follows is of the stream") {
    CHECK(ends.receive(*ends.caller) == -EAGAIN);
    for (SharedStream* from : {&*ends.caller, &*ends.called}) {
      const bool called = from == &*ends.called;
      const Bytes octets = Wire().text("some octets of a stream");
      CHECK(send(*from, octets) == static_cast<ssize_t>(octets.size()));
      TcpPair::wait(called ? ends.tcp.a : ends.tcp.b, POLLIN);
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

TEST_CASE_METHOD(Ends, "shared_stream: a wrong number ends the stream") {
  SECTION("of the caller") {
    send_raw(tcp.a, frame(std::byte{0x33}));
    TcpPair::wait(tcp.b, POLLIN);
    CHECK(receive(*called) == -EPROTO);
    CHECK(send(*called, Bytes(1)) < 0);
  }
  SECTION("of the caller, which cannot refuse") {
    send_raw(tcp.a, frame(std::byte{0}));
    TcpPair::wait(tcp.b, POLLIN);
    CHECK(receive(*called) == -EPROTO);
  }
  SECTION("of the called end") {
    REQUIRE(caller->begin() == 0);
    send_raw(tcp.b, frame(std::byte{0x33}));
    TcpPair::wait(tcp.a, POLLIN);
    CHECK(receive(*caller) == -EPROTO);
  }
  SECTION("something else than a frame of the called end") {
    REQUIRE(caller->begin() == 0);
    send_raw(tcp.b, Bytes(20));
    TcpPair::wait(tcp.a, POLLIN);
    CHECK(receive(*caller) == -EPROTO);
  }
}

TEST_CASE_METHOD(Ends, "shared_stream: the end comes behind all that is in the ring") {
  switch_over();
  const Bytes octets(5000, std::byte{7});
  REQUIRE(send(*caller, octets) == 5000);
  SECTION("in order") { caller->shutdown_send(); }
  SECTION("the process has gone") {
    caller.reset();
    tcp.a.close();
  }
  TcpPair::wait(tcp.b, POLLIN);
  std::size_t received = 0;
  ssize_t n;
  while ((n = receive(*called)) > 0 || (n == -EAGAIN && !called->await_octets(true)))
    if (n > 0) received += static_cast<std::size_t>(n);
  CHECK(n == 0);
  CHECK(received == 5000);
}

TEST_CASE_METHOD(Ends, "shared_stream: a reset of TCP, or an octet on it, ends the stream") {
  switch_over();
  SECTION("reset") {
    tcp.a.abort();
    TcpPair::wait(tcp.b, POLLIN);
    CHECK(called->await_octets(false));  // it is not looked for
    CHECK_FALSE(called->await_octets(true));
    CHECK(receive(*called) == -ECONNRESET);
  }
  SECTION("octet") {
    send_raw(tcp.a, Bytes(1));
    TcpPair::wait(tcp.b, POLLIN);
    CHECK_FALSE(called->await_octets(true));
    CHECK(receive(*called) == -EPROTO);
  }
}

TEST_CASE_METHOD(Ends, "shared_stream: the end of TCP is found by polls, too") {
  switch_over();
  tcp.a.abort();
  TcpPair::wait(tcp.b, POLLIN);
  unsigned polls = 1;
  while (receive(*called) == -EAGAIN) ++polls;
  CHECK(polls <= 128);
}

TEST_CASE_METHOD(Ends, "shared_stream: a peer is woken only where it sleeps") {
  switch_over();
  DoorbellPage::Word& word = called_bells.page->word(3);
  for (const bool asleep : {false, true}) {
    word.asleep = asleep ? 1 : 0;
    word.rung = 0;
    REQUIRE(called->await_octets(true));
    REQUIRE(send(*caller, Bytes(8)) == 8);
    CHECK(word.rung == std::uint64_t{1} << 5);
    CHECK(called_bells.rung() == asleep);
    CHECK(receive(*called) == 8);
    // Not one that does not wait for octets.
    word.rung = 0;
    REQUIRE(send(*caller, Bytes(8)) == 8);
    CHECK(word.rung == 0);
    CHECK(receive(*called) == 8);
  }
}

TEST_CASE_METHOD(Ends, "shared_stream: a peer that sleeps and whose doorbell is shut is woken by the end of TCP") {
  switch_over();
  REQUIRE(send(*called, Bytes(8)) == 8);
  REQUIRE(::shutdown(called_bells.socket.passed_on(), SHUT_RDWR) == 0);
  REQUIRE(called->await_octets(true));
  REQUIRE(send(*caller, Bytes(8)) == 8);
  TcpPair::wait(tcp.b, POLLIN);
  CHECK(receive(*called) == 8);
  CHECK_FALSE(called->await_octets(true));
  CHECK(receive(*called) == 0);
  // What had come from the peer is there.
  CHECK(receive(*caller) == 8);
}

TEST_CASE_METHOD(Ends, "shared_stream: memory of a ring that is idle goes back to the system") {
  switch_over();
  const std::size_t before = allocated();        // the control blocks
  CHECK_FALSE(caller->give_back_idle_memory());  // nothing has been written
  REQUIRE(send(*caller, Bytes(10)) == 10);
  CHECK(receive(*called) == 10);
  CHECK(receive(*called) == -EAGAIN);            // which releases what has been read
  CHECK_FALSE(caller->give_back_idle_memory());  // nor is this worth while
  const auto move = [&](std::size_t octets) {
    for (std::size_t moved = 0; moved < octets; moved += 1000) {
      const Bytes sent = Bytes(1000, static_cast<std::byte>(moved / 1000));
      REQUIRE(send(*caller, sent) == 1000);
      Bytes heard;
      while (heard.size() < 1000) {
        REQUIRE(receive(*called) > 0);
        heard.insert(heard.end(), got.begin(), got.end());
      }
      REQUIRE(heard == sent);
    }
    REQUIRE(receive(*called) == -EAGAIN);
  };
  move(1'000'000);
  CHECK(allocated() >= before + SharedMemory::kRing);
  CHECK(caller->give_back_idle_memory());
  move(1000);
  CHECK(caller->give_back_idle_memory());  // it was used since the call before
  CHECK_FALSE(caller->give_back_idle_memory());
  CHECK(allocated() == before);
  CHECK_FALSE(caller->give_back_idle_memory());
  move(1'000'000);
  // What the peer has not read stays.
  REQUIRE(send(*caller, Bytes(10, std::byte{7})) == 10);
  CHECK(caller->give_back_idle_memory());
  CHECK_FALSE(caller->give_back_idle_memory());
  CHECK(allocated() > before);
  CHECK(receive(*called) == 10);
  CHECK(got == Bytes(10, std::byte{7}));
  CHECK(receive(*called) == -EAGAIN);
  CHECK_FALSE(caller->give_back_idle_memory());
  CHECK(allocated() == before);
}

TEST_CASE_METHOD(
    Ends, "shared_stream: what has been read makes room in large parts, and all of it once there is nothing to read") {
  switch_over();
  constexpr std::size_t kAll = SharedMemory::kRing, kPart = kAll / 8;
  const auto sent = [&](std::size_t octets) { return send(*caller, Bytes(octets)); };
  REQUIRE(sent(kPart) == kPart);
  CHECK(receive(*called) == kPart);
  REQUIRE(sent(kAll) == kAll - kPart);
  CHECK(sent(1) == -EAGAIN);
  SECTION("a quarter of the ring") {
    CHECK(receive(*called) == kAll - kPart);
    CHECK(sent(kAll) == kAll);
  }
  SECTION("nothing to read, with a writer that waits") {
    CHECK(caller->await_room());
    CHECK(receive(*called) == kAll - kPart);
    CHECK(sent(kPart) == kPart);
    CHECK(receive(*called) == kPart);
    REQUIRE(sent(kAll) == kAll - kPart);
    CHECK(caller->await_room());
    CHECK(caller_bells.rung());  // for the first time
    CHECK(receive(*called) == kAll - kPart);
    CHECK(receive(*called) == -EAGAIN);
    CHECK(caller_bells.rung());
    CHECK(sent(kAll) == kAll);
  }
}

TEST_CASE_METHOD(Ends, "shared_stream: a peer that breaks the ring ends the stream") {
  switch_over();
  SECTION("what it writes") {
    memory->control(RingSide::first).written = ~std::uint64_t{0} / 4;
    CHECK(receive(*called) == -EPROTO);
  }
  SECTION("what it reads") {
    memory->control(RingSide::second).read = 1'000'000;
    REQUIRE(send(*called, Bytes(SharedMemory::kRing)) == static_cast<ssize_t>(SharedMemory::kRing));
    CHECK(send(*called, Bytes(1)) == -EPROTO);
  }
  CHECK(receive(*called) == -ECONNRESET);
  CHECK(send(*called, Bytes(1)) == -ECONNRESET);
  TcpPair::wait(tcp.b, POLLIN | POLLHUP);  // an event, by which the receiver finds out
}
