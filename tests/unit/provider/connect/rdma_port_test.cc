// SPDX-License-Identifier: MIT
#include "provider/connect/rdma_port.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "tests/unit/provider/connect/loopback.h"

using namespace uiw;
using namespace uiw::provider;
using namespace uiw::test;

namespace {

// A number that no test of another program has.
std::uint16_t free_number() {
  sockaddr_storage address{};
  ::close(bound_socket(address));
  return ntohs(provider::port_of(address));
}

sockaddr_storage any_ipv4(std::uint16_t number) {
  sockaddr_storage any = loopback(number);
  reinterpret_cast<sockaddr_in&>(any).sin_addr.s_addr = htonl(INADDR_ANY);
  return any;
}

sockaddr_storage ipv6(const in6_addr& host, std::uint16_t number) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_addr = host;
  address.sin6_port = htons(number);
  return storage;
}

// Another process that has such a name, as any user could; ends with the object.
class Taker {
 public:
  explicit Taker(const std::string& name, uid_t user = ::geteuid()) {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (user != ::geteuid() && ::setresuid(user, user, user) != 0) ::_exit(1);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 8) != 0) ::_exit(1);
      if (::write(ready[1], "", 1) != 1) ::_exit(1);
      ::pause();
    }
    ::close(ready[1]);
    char octet;
    const bool there = ::read(ready[0], &octet, 1) == 1;
    ::close(ready[0]);
    REQUIRE(there);
  }
  ~Taker() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

 private:
  pid_t child_ = -1;
};

struct FreeNumber {
  const std::uint16_t number = free_number();
};

std::string name(std::uint16_t number, const char* rest) {
  return "uiw-rdma-port/" + std::to_string(number) + "/" + rest;
}

}  // namespace

TEST_CASE_METHOD(FreeNumber,
                 "rdma_port: where nobody has the number, or has it by its own TCP port, that port is called",
                 "[rdma_port]") {
  CHECK(listening_port(loopback(number)) == htons(number));
  std::shared_ptr<RdmaPort> port;
  REQUIRE(take_rdma_port(loopback(number), false, 0, port) == 0);
  CHECK(listening_port(loopback(number)) == htons(number));
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: a substitute is found, until its holder has gone", "[rdma_port]") {
  for (unsigned substitute = 1; substitute <= kSubstitutePorts; ++substitute) {
    std::shared_ptr<RdmaPort> port;
    REQUIRE(take_rdma_port(loopback(number), false, substitute, port) == 0);
    CHECK(listening_port(loopback(number)) == htons(substitute_port(number, substitute)));
    CHECK(listening_port(loopback(static_cast<std::uint16_t>(number - 1))) == htons(number - 1));
  }
  CHECK(listening_port(loopback(number)) == htons(number));
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: a number is free at once when its holder has gone, even right after a call",
                 "[rdma_port]") {
  for (int round = 0; round < 500; ++round) {
    std::shared_ptr<RdmaPort> port;
    REQUIRE(take_rdma_port(loopback(number), false, 1, port) == 0);
    REQUIRE(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
    port.reset();
    REQUIRE(listening_port(loopback(number)) == htons(number));
  }
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: the spaces of TCP and UDP do not touch each other", "[rdma_port]") {
  std::shared_ptr<RdmaPort> stream, service, second;
  REQUIRE(take_rdma_port(loopback(number), false, 1, stream) == 0);
  CHECK(listening_port(loopback(number), PortSpace::udp) == htons(number));
  REQUIRE(take_rdma_port(loopback(number), false, 2, service, PortSpace::udp) == 0);
  CHECK(listening_port(loopback(number), PortSpace::udp) == htons(substitute_port(number, 2)));
  CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
  CHECK(take_rdma_port(loopback(number), false, 0, second, PortSpace::udp) == EADDRINUSE);
  service.reset();
  CHECK(listening_port(loopback(number), PortSpace::udp) == htons(number));
  CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
}

TEST_CASE("rdma_port: substitutes are unprivileged, and differ", "[rdma_port]") {
  for (const unsigned number : {1U, 80U, 1023U, 6379U, 20000U, 65535U}) {
    for (unsigned one = 1; one <= kSubstitutePorts; ++one) {
      CHECK(substitute_port(static_cast<std::uint16_t>(number), one) >= 1024);
      for (unsigned other = 1; other < one; ++other) {
        CHECK(substitute_port(static_cast<std::uint16_t>(number), one) !=
              substitute_port(static_cast<std::uint16_t>(number), other));
      }
    }
  }
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: a listener of all addresses is found by each address of its family",
                 "[rdma_port]") {
  std::shared_ptr<RdmaPort> port;
  REQUIRE(take_rdma_port(ipv6(in6addr_any, number), true, 1, port) == 0);
  CHECK(listening_port(ipv6(in6addr_loopback, number)) == htons(substitute_port(number, 1)));
  CHECK(listening_port(loopback(number)) == htons(number));
  port.reset();
  REQUIRE(take_rdma_port(ipv6(in6addr_any, number), false, 2, port) == 0);
  CHECK(listening_port(ipv6(in6addr_loopback, number)) == htons(substitute_port(number, 2)));
  CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 2)));
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: what stands for all addresses of this host says nothing of another host's",
                 "[rdma_port]") {
  std::shared_ptr<RdmaPort> port;
  REQUIRE(take_rdma_port(any_ipv4(number), false, 1, port) == 0);
  sockaddr_storage elsewhere = loopback(number);
  reinterpret_cast<sockaddr_in&>(elsewhere).sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1, of documentation
  CHECK(listening_port(elsewhere) == htons(number));
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: a number is taken once, for one address or for all", "[rdma_port][native]") {
  std::shared_ptr<RdmaPort> port, second;
  REQUIRE(take_rdma_port(loopback(number), false, 1, port) == 0);
  CHECK(take_rdma_port(loopback(number), false, 2, second) == EADDRINUSE);
  CHECK(take_rdma_port(loopback(number), false, 0, second) == EADDRINUSE);
  port.reset();
  CHECK(take_rdma_port(loopback(number), false, 2, second) == 0);
  second.reset();
  {
    const Taker other(name(number, "0.0.0.0"));
    CHECK(take_rdma_port(loopback(number), false, 0, second) == EADDRNOTAVAIL);
    CHECK(take_rdma_port(any_ipv4(number), false, 0, second) == EADDRNOTAVAIL);
  }
  {
    const Taker other(name(number, "127.0.0.2"));
    CHECK(check_rdma_port(any_ipv4(number), false) == EADDRNOTAVAIL);
    CHECK(take_rdma_port(any_ipv4(number), false, 1, second) == EADDRNOTAVAIL);
    CHECK(take_rdma_port(ipv6(in6addr_any, number), false, 1, second) == EADDRNOTAVAIL);
    CHECK(take_rdma_port(ipv6(in6addr_any, number), true, 1, second) == 0);
  }
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: names that another process adds do not lead callers away",
                 "[rdma_port][native]") {
  std::shared_ptr<RdmaPort> port;
  SECTION("a substitute of a listener that has none") {
    REQUIRE(take_rdma_port(loopback(number), false, 0, port) == 0);
    const Taker other(name(number, "127.0.0.1/1"));
    CHECK(listening_port(loopback(number)) == htons(number));
  }
  SECTION("a substitute before that of the listener") {
    REQUIRE(take_rdma_port(loopback(number), false, 2, port) == 0);
    const Taker other(name(number, "127.0.0.1/1"));
    CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 2)));
  }
  if (::geteuid() != 0) {
    WARN("needs root: another user's names are not tested");
    return;
  }
  constexpr uid_t kStranger = 61234;
  SECTION("another user's name for one address of a listener that has all") {
    REQUIRE(take_rdma_port(any_ipv4(number), false, 1, port) == 0);
    const Taker other(name(number, "127.0.0.1"), kStranger), more(name(number, "127.0.0.1/3"), kStranger);
    CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
  }
  SECTION("another user's name for all addresses, of a listener that has one") {
    REQUIRE(take_rdma_port(loopback(number), false, 1, port) == 0);
    const Taker other(name(number, "0.0.0.0"), kStranger), more(name(number, "0.0.0.0/3"), kStranger);
    CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
  }
  SECTION("another user's name for a privileged port") {
    const Taker other(name(1001, "127.0.0.1"), kStranger), more(name(1001, "127.0.0.1/1"), kStranger);
    CHECK(listening_port(loopback(1001)) == htons(1001));
  }
}

TEST_CASE_METHOD(FreeNumber, "rdma_port: who asks is let go of, so that others can ask", "[rdma_port]") {
  std::shared_ptr<RdmaPort> port;
  REQUIRE(take_rdma_port(loopback(number), false, 1, port) == 0);
  unsigned found = 0;
  for (int i = 0; i < 2000; ++i)
    found += listening_port(loopback(number)) == htons(substitute_port(number, 1)) ? 1U : 0U;
  CHECK(found > 0);
  // At the latest once the thread has caught up.
  for (int i = 0; i < 30'000 && listening_port(loopback(number)) == htons(number); ++i) ::usleep(1000);
  CHECK(listening_port(loopback(number)) == htons(substitute_port(number, 1)));
}
