// SPDX-License-Identifier: MIT
// Calls that say nothing keep nobody out.
#include "provider/connect/listener.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "base/descriptor.h"
#include "provider/process/cm_loop.h"
#include "tests/unit/provider/connect/called_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

class Limit {
 public:
  explicit Limit(const rlimit& limit) { REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0); }
  ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  const rlimit before_ = [] {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    return before;
  }();
};

// A client whose connection is answered.
void real_call(const Server& server, Side& client, Side& side, int fd) {
  for (Side* one : {&client, &side}) REQUIRE(one->to(IBV_QPS_INIT) == 0);
  const auto observer = std::make_shared<Observer>(), accepted = std::make_shared<Observer>();
  std::shared_ptr<Call> connection;
  REQUIRE(provider::connect(fd, server.address, {client.qp->number(), 4, 4, {}}, -1, observer, connection) == 0);
  const auto taken = server.calls->next();
  REQUIRE(taken.first->accept({side.qp->number(), 4, 4, {}}, accepted) == 0);
  REQUIRE(observer->wait_established());
}

const Bytes kRequest = Wire().text("MPA ID Req Frame").u8(0).u8(1).u16(0);
constexpr int kFewCalls = 16;                           // that are kept without a request
constexpr std::chrono::milliseconds kTimeToSpeak{110};  // and a little more

// Until the object is destroyed the thread of connection set-up does nothing.
class BusyLoop {
 public:
  BusyLoop() {
    REQUIRE(provider::CmLoop::instance().post([this] {
      begun_.set_value();
      go_.get_future().wait();
      ended_.set_value();
    }) == 0);
    begun_.get_future().wait();
  }
  ~BusyLoop() {
    go_.set_value();
    ended_.get_future().wait();
  }
  BusyLoop(const BusyLoop&) = delete;
  BusyLoop& operator=(const BusyLoop&) = delete;

 private:
  std::promise<void> begun_, go_, ended_;
};

bool is_closed(const TcpStream& caller) {
  pollfd ended{caller.fd(), POLLIN, 0};
  std::byte octet;
  return ::poll(&ended, 1, 0) == 1 && ::recv(caller.fd(), &octet, 1, MSG_PEEK) <= 0;
}

// As many callers as are kept without a request; each is there before the next one calls.
std::vector<TcpStream> full(const Server& server, const Bytes& first_octets) {
  std::vector<TcpStream> callers;
  { const BusyLoop begun; }  // the thread has its descriptors
  const std::size_t before = open_descriptors();
  for (int i = 0; i < kFewCalls; ++i) {
    callers.push_back(server.dial());
    if (!first_octets.empty() && i + 1 < kFewCalls) say(callers.back(), first_octets);
    REQUIRE(eventually([&] { return open_descriptors() == before + 2 * callers.size(); }));
  }
  std::this_thread::sleep_for(kTimeToSpeak);
  return callers;
}

// Has room for one request at a time.
class Narrow final : public Calls {
 public:
  bool has_room() override { return count() == 0; }
};

}  // namespace

TEST_CASE("a request that has come is read before its call gives way", "[connection]") {
  const Server server(kFewCalls);
  const auto callers = full(server, {});
  TcpStream next;
  {
    const BusyLoop busy;
    next = server.dial();  // of all this the listener hears first
    for (const TcpStream& caller : callers)
      REQUIRE(::send(caller.fd(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(kRequest.size()));
    say(next, kRequest);
  }
  CHECK(server.calls->wait_count(kFewCalls + 1));
}

TEST_CASE("a call that has sent nothing gives way before those that have begun their requests", "[connection]") {
  const Server server(kFewCalls);
  const Bytes begin(kRequest.begin(), kRequest.begin() + 5), rest(kRequest.begin() + 5, kRequest.end());
  auto callers = full(server, begin);
  TcpStream next = server.dial();
  say(next, kRequest);
  REQUIRE(server.calls->wait_count(1));
  CHECK(is_closed(callers.back()));  // the only one that was silent, although it came last
  callers.pop_back();
  for (TcpStream& caller : callers) say(caller, rest);
  CHECK(server.calls->wait_count(kFewCalls));
}

TEST_CASE("requests wait for room while others are taken, and no longer", "[connection]") {
  const Server server(kFewCalls, std::make_shared<Narrow>());
  std::vector<TcpStream> callers;
  for (int i = 0; i < 8; ++i) {
    callers.push_back(server.dial());
    say(callers.back(), kRequest);
  }
  for (int i = 0; i < 4; ++i) {
    REQUIRE(server.calls->wait_count(1));
    CHECK(server.calls->count() == 1);
    CHECK(server.calls->next().first->reject({}) == 0);
  }
  // Nobody takes them any more. The observer gets them all the same, and refuses them.
  CHECK(server.calls->wait_count(4));
}

TEST_CASE_METHOD(Pair, "calls that say nothing are bounded, and keep nobody out", "[connection]") {
  const Server server;
  const std::size_t before = open_descriptors();
  std::vector<TcpStream> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(server.dial());
  // The oldest have given way.
  std::byte octet;
  pollfd ended{silent.front().fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 30'000) == 1);
  CHECK(::recv(silent.front().fd(), &octet, 1, 0) <= 0);
  CHECK(open_descriptors() - before <= 300 + 128 + 8);  // some are there for a moment alone
  real_call(server, a, b, bound_socket());
}

TEST_CASE_METHOD(Pair, "calls that say nothing give way to the next where no descriptor is free", "[connection]") {
  const Server server;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // In another process, so that they take none of the descriptors here.
  int start[2], done[2];
  REQUIRE(::pipe(start) == 0);
  REQUIRE(::pipe(done) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char octet = 0;
    bool all = ::read(start[0], &octet, 1) == 1;
    for (int i = 0; i < 100; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      all = ::connect(fd, reinterpret_cast<const sockaddr*>(&server.address), sizeof(sockaddr_in)) == 0 && all;
    }
    if (!all || ::write(done[1], &octet, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  Side client(*context), side(*context);
  real_call(server, a, b, bound_socket());  // what a context needs but once is there
  const int fd_of_client = bound_socket();
  rlimit small = before;
  small.rlim_cur = open_descriptors() + 8 + kDescriptorsLeft;
  {
    const Limit few(small);
    char octet = 0;
    CHECK(::write(start[1], &octet, 1) == 1);
    CHECK(::read(done[0], &octet, 1) == 1);
    real_call(server, client, side, fd_of_client);
  }
  for (const int fd : {start[0], start[1], done[0], done[1]}) ::close(fd);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
