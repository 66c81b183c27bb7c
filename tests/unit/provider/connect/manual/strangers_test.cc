// SPDX-License-Identifier: MIT
// Queue pairs connected without rdma_cm, and who else is on this host: numbers are known to everybody, and
// the kernel knows whose a socket is. Sockets of another user are made here by setfsuid(2), which takes root.
#include <malloc.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "provider/connect/socket_owner.h"
#include "tests/unit/provider/connect/manual/manual_caller.h"

using namespace uiw;
using namespace uiw::test;
using provider::PairGreeting;
using provider::PairRefusal;
using provider::port_of;

namespace {

constexpr uid_t kStranger = 4711;

// The calling thread makes and accepts sockets as another user.
class AsStranger {
 public:
  AsStranger() { ::setfsuid(kStranger); }
  ~AsStranger() { ::setfsuid(::geteuid()); }
};

bool have_root() {
  if (::geteuid() == 0) return true;
  WARN("needs root: not tested");
  return false;
}

constexpr std::size_t kReply = 20 + 4 + provider::kPairGreetingSize;

// What the callee answers: nothing for an acceptance.
std::optional<PairRefusal> refusal(Caller& caller) {
  const Bytes reply = caller.hear(kReply);
  REQUIRE(reply.size() == kReply);
  if ((reply[16] & std::byte{0x20}) == std::byte{0}) return std::nullopt;
  return static_cast<PairRefusal>(reply[24 + 9]);
}

// Somebody to be called: he holds a port whose queue pair numbers are greater than ours can be.
struct Callee {
  explicit Callee(const Side& side) : device(side.context.device()), peer(side.qp->number()) {
    for (std::uint16_t port = 65535; own == 0; --port) {
      sockaddr_storage address = provider::address_of(device.gids[0], device.ifindex, port);
      const int fd = provider::bind_socket(address, false);
      if (fd < 0) continue;
      listener = TcpStream(fd);
      REQUIRE(::listen(fd, 16) == 0);
      own = std::uint32_t{port} << 8;
    }
  }
  // Takes a call, which is always by revision 2.
  TcpStream take() const {
    pollfd ready{listener.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    TcpStream stream(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    Bytes request(kReply);
    REQUIRE(::recv(stream.fd(), request.data(), request.size(), MSG_WAITALL) == static_cast<ssize_t>(kReply));
    REQUIRE(request[17] == std::byte{2});
    return stream;
  }
  // Takes a call, and answers it as the peer would.
  TcpStream answer(std::uint32_t psn = 0) const {
    TcpStream stream = take();
    const Bytes greeting = octets_of({own, peer, device.gids[0], device.gids[0], psn});
    give(stream, Wire()
                     .text("MPA ID Rep Frame")
                     .u8(0x10)
                     .u8(2)
                     .u16(static_cast<unsigned>(4 + greeting.size()))
                     .u16(0x8006)
                     .u16(0x8006)
                     .add(greeting));
    return stream;
  }
  const provider::DeviceInfo& device;
  const std::uint32_t peer;
  std::uint32_t own = 0;
  TcpStream listener;
};

// Octets, or the end within the time that tests wait.
bool speaks(const TcpStream& stream) {
  std::byte octet;
  pollfd ready{stream.fd(), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 30'000) == 1);
  return ::recv(stream.fd(), &octet, 1, 0) == 1;
}

}  // namespace

TEST_CASE("strangers: the kernel is asked whose a socket is", "[strangers]") {
  sockaddr_storage address = provider::address_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1}, 0, 0);
  const TcpStream listener(provider::bind_socket(address, false));
  REQUIRE(::listen(listener.fd(), 1) == 0);
  CHECK(provider::owner_of_listener(address) == ::geteuid());
  sockaddr_storage local = address;
  provider::port_of(local) = 0;
  TcpStream caller(provider::calling_socket(local));
  CHECK((::connect(caller.fd(), provider::generic(address), provider::size_of(address)) == 0 || errno == EINPROGRESS));
  socklen_t size = sizeof local;
  REQUIRE(::getsockname(caller.fd(), reinterpret_cast<sockaddr*>(&local), &size) == 0);
  REQUIRE(eventually([&] { return provider::owner_of_connection(local, address) == ::geteuid(); }));
  // Nobody has accepted the other end yet; afterwards it is who did.
  CHECK(provider::owner_of_connection(address, local) == std::nullopt);
  {
    const TcpStream accepted(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    CHECK(provider::owner_of_connection(address, local) == ::geteuid());
    // A closed socket is nobody's, and not root's.
    caller.close();
    CHECK(provider::owner_of_connection(local, address) == std::nullopt);
  }
  CHECK(provider::is_local_address(address) == true);
  CHECK(provider::is_local_address(
            provider::address_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 99, 0, 1}, 0, 0)) == true);
  CHECK(provider::is_local_address(
            provider::address_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 198, 51, 100, 1}, 0, 0)) == false);
}

TEST_CASE_METHOD(
    CalledManually,
    "strangers: who calls in the name of another user's queue pair is refused, and the right one gets through",
    "[strangers]") {
  if (!have_root()) return;
  const Bytes greeting = octets_of(caller.greeting());
  const auto to_ready = [&] { REQUIRE(to_rtr(a, gid(*context), caller.own) == 0); };
  const auto call_as_stranger = [&] {
    {
      const AsStranger stranger;
      REQUIRE(caller.dial(gid(*context)) == 0);
    }
    caller.say(greeting);
  };
  SECTION("in RTR") {
    to_ready();
    call_as_stranger();
    CHECK(refusal(caller) == PairRefusal::other_user);
  }
  SECTION("before") {
    Side opener(*context);  // for whom the port listens
    REQUIRE(opener.to(IBV_QPS_INIT) == 0);
    REQUIRE(to_rtr(opener, gid(*context), 2000U << 8) == 0);
    call_as_stranger();
    CHECK(refusal(caller) == PairRefusal::other_user);
    to_ready();
  }
  SECTION("and leaves at once") {
    to_ready();
    call_as_stranger();
    caller.stream.close();
  }
  REQUIRE(caller.dial(gid(*context)) == 0);
  caller.say(greeting);
  CHECK(refusal(caller) == std::nullopt);
}

TEST_CASE_METHOD(
    Pair, "strangers: a process that becomes another user goes on connecting, beside the connections that it has",
    "[strangers]") {
  if (!have_root()) return;
  Side c(*context), d(*context);
  connect_manually(a, b);
  exchange(a, b);
  struct AsUser {
    explicit AsUser(uid_t user) { REQUIRE(::seteuid(user) == 0); }
    ~AsUser() { ::seteuid(0); }
  };
  {
    const AsUser other(kStranger);
    connect_manually(c, d);
    exchange(c, d);
    exchange(a, b);
    // The port is the new user's alone.
    sockaddr_storage address = provider::address_of(gid(*context), context->device().ifindex, port_of(c.qp->number()));
    CHECK(provider::bind_socket(address, false) == -EADDRINUSE);
  }
  Side e(*context), f(*context);
  connect_manually(e, f);
  exchange(e, f);
  exchange(c, d);
}

TEST_CASE_METHOD(Pair, "strangers: another user calls in the name of a queue pair of this process", "[strangers]") {
  if (!have_root()) return;
  const bool in_order = a.qp->number() < b.qp->number();
  Side &smaller = in_order ? a : b, &greater = in_order ? b : a;
  for (Side* side : {&smaller, &greater}) REQUIRE(side->to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(greater, gid(*context), smaller.qp->number()) == 0);
  Caller caller(greater);
  caller.own = smaller.qp->number();
  {
    const AsStranger stranger;
    REQUIRE(caller.dial(gid(*context)) == 0);
  }
  caller.say(octets_of(caller.greeting()));
  CHECK(refusal(caller) == PairRefusal::other_user);
  // The right one gets through.
  REQUIRE(to_rtr(smaller, gid(*context), greater.qp->number()) == 0);
  for (Side* side : {&smaller, &greater}) REQUIRE(to_rts(*side) == 0);
  Registered out(smaller, Bytes(10)), in(greater, Bytes(10), kLocal);
  REQUIRE(greater.post_receive(1, {in.sge()}) == 0);
  REQUIRE(smaller.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
  CHECK(next(*greater.receive_cq).status == IBV_WC_SUCCESS);
}

TEST_CASE_METHOD(Single, "strangers: two users who connect to each other on purpose", "[strangers]") {
  if (!have_root()) return;
  std::optional<Caller> caller;
  {
    const AsStranger stranger;
    caller.emplace(a);
  }
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, gid(*context), caller->own) == 0);
  {
    const AsStranger stranger;
    REQUIRE(caller->dial(gid(*context)) == 0);
  }
  caller->say(octets_of(caller->greeting()));
  CHECK(refusal(*caller) == std::nullopt);
}

TEST_CASE_METHOD(Single, "strangers: who answers for another user is left, and the right one gets the next call",
                 "[strangers]") {
  if (!have_root()) return;
  Callee callee(a);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, gid(*context), callee.own) == 0);
  {
    const AsStranger stranger;
    const TcpStream taken = callee.answer();
    CHECK_FALSE(speaks(taken));
  }
  const TcpStream taken = callee.answer();
  CHECK(speaks(taken));  // the ready-to-receive message
}

TEST_CASE_METHOD(Single, "manual: who knows only revision 1 is not the peer, which gets the next call", "[manual]") {
  Callee callee(a);
  REQUIRE(a.to(IBV_QPS_INIT) == 0);
  REQUIRE(to_rtr(a, gid(*context), callee.own) == 0);
  {
    TcpStream taken = callee.take();
    // Rejects revision 2, or would go on with revision 1, in which only the initiator may speak first.
    const unsigned flags = GENERATE(0x20U, 0x00U);
    const Bytes greeting = octets_of({callee.own, callee.peer, callee.device.gids[0], callee.device.gids[0], 0});
    give(taken,
         Wire().text("MPA ID Rep Frame").u8(flags).u8(1).u16(static_cast<unsigned>(greeting.size())).add(greeting));
    CHECK_FALSE(speaks(taken));
  }
  const TcpStream taken = callee.answer();
  CHECK(speaks(taken));  // the ready-to-receive message
}

TEST_CASE("strangers: nobody else can bind a port that is held", "[strangers]") {
  if (!have_root()) return;
  const std::uint16_t port = provider::reserve_port();
  REQUIRE(port != 0);
  const AsStranger stranger;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const bool any : {true, false}) {
      for (const int options : {0, 1, 2, 3}) {
        sockaddr_storage address{};
        address.ss_family = static_cast<sa_family_t>(family);
        if (family == AF_INET && !any) reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (family == AF_INET6 && !any) reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
        provider::port_of(address) = htons(port);
        const TcpStream socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int on = 1;
        if ((options & 1) != 0) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if ((options & 2) != 0) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        INFO("family " << family << ", any " << any << ", options " << options);
        CHECK(::bind(socket.fd(), provider::generic(address), provider::size_of(address)) != 0);
        CHECK(errno == EADDRINUSE);
      }
    }
  }
  provider::release_port(port);
}

TEST_CASE_METHOD(Loopback, "strangers: the number of a queue pair does not follow from its port", "[strangers]") {
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::uint32_t> first;  // slot of each port
  std::uint16_t port = 0;
  for (int i = 0; i < 12 * 256; ++i) {
    sides.push_back(std::make_unique<Side>(*context, QueueSizes{.depth = 1}));
    const std::uint32_t number = sides.back()->qp->number();
    if (port_of(number) != std::exchange(port, port_of(number))) first.push_back(number % provider::kSlotsPerPort);
  }
  REQUIRE(first.size() >= 12);
  CHECK(std::count(first.begin(), first.end(), 0U) < 6);
}

TEST_CASE_METHOD(Single, "strangers: RTR fails where the address that it goes by cannot be listened on",
                 "[strangers]") {
  const std::uint16_t port = port_of(a.qp->number());
  const Gid absent{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 198, 51, 100, 1};
  CHECK(provider::listen_on(port, context->device(), absent, nullptr) == EADDRNOTAVAIL);
  CHECK(provider::listen_on(port, context->device(), gid(*context), nullptr) == 0);
}

TEST_CASE_METHOD(ManualPair, "mix-ups: PSNs that do not fit are of another connection", "[strangers]") {
  const bool a_calls = a.qp->number() < b.qp->number();
  Registered out(a, Bytes(10)), in(b, Bytes(10), kLocal);
  REQUIRE(b.post_receive(1, {in.sge()}) == 0);
  const bool late = GENERATE(false, true);  // does the connection stand before RTS?
  const std::uint32_t expected = GENERATE(0U, 5U), sent = GENERATE(0U, 5U, 6U);
  const bool fits = expected == 0 || sent == 0 || expected == sent;
  INFO("late " << late << ", expected " << expected << ", sent " << sent << ", caller first " << a_calls);
  REQUIRE(to_rtr(b, a, expected) == 0);
  REQUIRE(to_rts(b, 9) == 0);
  REQUIRE(to_rtr(a, b, 9) == 0);
  if (late) {
    REQUIRE(eventually([&] { return a.qp->is_connected(); }));
  }
  REQUIRE(to_rts(a, sent) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 2, {out.sge()}) == 0);
  CHECK(next(*a.send_cq).status == (fits ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR));
  if (fits) {
    CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  } else {
    CHECK(none(*b.receive_cq));
  }
}

TEST_CASE_METHOD(ManualPair, "manual: a call for a queue pair that never goes to RTR is not kept for ever",
                 "[manual]") {
  Caller caller(a);
  REQUIRE(to_rtr(b, gid(*context), 2000U << 8) == 0);
  REQUIRE(caller.dial(gid(*context)) == 0);
  caller.say(octets_of(caller.greeting()));
  CHECK(caller.hear(1).empty());
}

TEST_CASE_METHOD(ManualPair, "manual: a call that was held leaves no memory behind once it has been answered",
                 "[manual]") {
  REQUIRE(to_rtr(b, gid(*context), 2000U << 8) == 0);
  Caller caller(a);
  constexpr int kTurns = 200;
  std::size_t before = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn == kTurns / 4) before = ::mallinfo2().uordblks;
    REQUIRE(caller.dial(gid(*context)) == 0);
    caller.say(octets_of(caller.greeting()));
    // One that is refused tells that the call before it has been read.
    Caller later(a);
    REQUIRE(later.dial(gid(*context)) == 0);
    later.say(pattern(52));
    REQUIRE(later.hear(kReply).size() == kReply);
    REQUIRE(to_rtr(a, gid(*context), caller.own) == 0);
    REQUIRE(caller.hear(kReply).size() == kReply);
    REQUIRE(a.to(IBV_QPS_RESET) == 0);
    REQUIRE(a.to(IBV_QPS_INIT) == 0);
  }
  const std::size_t after = ::mallinfo2().uordblks;
  INFO(before << " octets, at last " << after);
  CHECK(after < before + kTurns * std::size_t{300});
}

TEST_CASE_METHOD(CalledManually, "manual: a peer whose host is there but that never answers: retry exceeded",
                 "[manual]") {
  REQUIRE(to_rtr(a, gid(*context), caller.own) == 0);
  REQUIRE(to_rts(a) == 0);
  REQUIRE(caller.dial(gid(*context)) == 0);
  caller.say(octets_of(caller.greeting()));
  REQUIRE(refusal(caller) == std::nullopt);
  give(caller.stream, empty_write());  // ready to receive
  Registered out(a, Bytes(10));
  REQUIRE(a.post(IBV_WR_SEND, 1, {out.sge()}) == 0);
  CHECK(next(*a.send_cq).status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE_METHOD(CalledManually, "strangers: a rejected call is closed once its caller has closed", "[strangers]") {
  REQUIRE(to_rtr(a, gid(*context), 2000U << 8) == 0);
  const auto ends = [&](const sockaddr_storage& own, const sockaddr_storage& other) {
    return eventually([&] { return provider::owner_of_connection(other, own) == std::nullopt; });
  };
  REQUIRE(caller.dial(gid(*context)) == 0);
  caller.say(pattern(52));
  REQUIRE(refusal(caller) == PairRefusal::malformed);
  sockaddr_storage own{}, other{};
  socklen_t size = sizeof own;
  REQUIRE(::getsockname(caller.stream.fd(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
  size = sizeof other;
  REQUIRE(::getpeername(caller.stream.fd(), reinterpret_cast<sockaddr*>(&other), &size) == 0);
  CHECK(provider::owner_of_connection(other, own) == ::geteuid());
  const auto start = std::chrono::steady_clock::now();
  caller.stream.close();
  CHECK(ends(own, other));
  CHECK(std::chrono::steady_clock::now() - start <
        std::chrono::seconds(4));  // and not after the time for one that stays
}
