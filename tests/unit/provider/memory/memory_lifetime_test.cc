// SPDX-License-Identifier: MIT
// Posted work and the memory that it names: after ibv_dereg_mr or ibv_rereg_mr has returned nothing reads or writes
// what was registered before, and the work that named it fails.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/unit/provider/memory/window_pair.h"
#include "tests/unit/provider/verbs/pool_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr std::byte kNew{0x5A};  // what the memory's next owner puts there

enum class Taken { deregistered, moved, other_domain, no_right };

// The program's memory is taken from the work that names it, and somebody else's from here on.
struct Lent {
  Lent(Pd& pd, std::size_t size, unsigned access = kAll)
      : memory(pattern(size)), other(pd.context().shared_from_this()), elsewhere(size) {
    mr = Mr::create(pd, memory.data(), size, address_of(memory), access);
    REQUIRE(mr);
    sge = sge_of(memory, *mr);
  }
  void take(Taken how) {
    switch (how) {
      case Taken::deregistered: mr.reset(); break;
      case Taken::moved:
        REQUIRE(mr->reregister(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, elsewhere.data(), elsewhere.size(), 0) == 0);
        break;
      case Taken::other_domain: REQUIRE(mr->reregister(IBV_REREG_MR_CHANGE_PD, &other, nullptr, 0, 0) == 0); break;
      case Taken::no_right: REQUIRE(mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == 0); break;
    }
    std::fill(memory.begin(), memory.end(), kNew);
  }
  bool untouched() const {
    return std::all_of(memory.begin(), memory.end(), [](std::byte octet) { return octet == kNew; });
  }
  Bytes memory;
  Pd other;
  Bytes elsewhere;
  std::unique_ptr<Mr> mr;
  ibv_sge sge{};
};

constexpr std::array kWays = {Taken::deregistered, Taken::moved, Taken::other_domain, Taken::no_right};

// The octets that the peer of a queue pair gets until its stream ends.
Bytes read_to_end(TcpStream& peer) {
  Bytes all, some(65536);
  for (;;) {
    pollfd ready{peer.fd(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 30'000) == 1);
    const ssize_t n = peer.receive({some.data(), some.size()});
    if (n == -EAGAIN) continue;
    if (n <= 0) return all;
    all.insert(all.end(), some.begin(), some.begin() + n);
  }
}

}  // namespace

TEST_CASE_METHOD(Pair, "memory lifetime: a receive whose memory is taken back", "[memory]") {
  const Taken how = GENERATE(from_range(kWays));
  const bool crc = GENERATE(false, true);
  connect({.crc = crc, .remote = true});
  Registered message(a, pattern(1000, 2));
  Lent lent(b.pd, 1000);
  REQUIRE(b.post_receive(1, {lent.sge}) == 0);
  REQUIRE(b.post_receive(2, {lent.sge}) == 0);
  lent.take(how);
  REQUIRE(a.post(IBV_WR_SEND, 7, {message.sge()}) == 0);
  check_next(*b.receive_cq, 1, IBV_WC_LOC_PROT_ERR);
  CHECK(next(*b.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_REM_OP_ERR);
  CHECK(lent.untouched());
}

TEST_CASE_METHOD(Loopback, "memory lifetime: a receive of a shared queue whose memory is taken back", "[memory][srq]") {
  const Taken how = GENERATE(from_range(kWays));
  Pool pool(*context);
  Pair pair(context, {}, {.srq = pool.srq.get()});
  pair.connect({.remote = true});
  Side &near = pair.a, &far = pair.b;
  Lent lent(pool.pd, 64);
  REQUIRE(pool.post(1, &lent.sge, 1) == 0);
  lent.take(how);
  Registered message(near, pattern(64, 2));
  REQUIRE(near.post(IBV_WR_SEND, 7, {message.sge()}) == 0);
  check_next(*far.receive_cq, 1, IBV_WC_LOC_PROT_ERR);
  CHECK(next(*near.send_cq).status == IBV_WC_REM_OP_ERR);
  CHECK(lent.untouched());
}

TEST_CASE_METHOD(Single, "memory lifetime: the second half of a Read's sink is taken back while the answer is awaited",
                 "[memory]") {
  const Taken how = GENERATE(from_range(kWays));
  auto peer = attach_raw(a);
  give(peer, fpdu({}, false));  // it may send from here on
  Lent first(a.pd, 100), second(a.pd, 100);
  REQUIRE(a.post(IBV_WR_RDMA_READ, 5, {first.sge, second.sge}, 0, 0x1234, 0) == 0);
  Bytes request(2 + 18 + 28 + 4);
  std::size_t there = 0;
  REQUIRE(eventually([&] {
    none(*a.send_cq);
    const ssize_t n = peer.receive({request.data() + there, request.size() - there});
    if (n > 0) there += static_cast<std::size_t>(n);
    return there == request.size();
  }));
  second.take(how);
  // RFC 5040 section 4.5: what the request named comes back.
  const auto sink_stag = static_cast<std::uint32_t>(big_endian(Octets(request).subspan(20, 4)));
  const std::uint64_t sink_offset = big_endian(Octets(request).subspan(24, 8));
  give(peer, fpdu(Wire().u8(0xC1).u8(0x42).u32(sink_stag).u64(sink_offset).add(pattern(200, 3)), false));
  CHECK(next(*a.send_cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(second.untouched());
}

TEST_CASE_METHOD(Loopback, "memory lifetime: Sends that wait for TCP, and their memory is taken back", "[memory]") {
  // Local write is not needed to send.
  const Taken how = GENERATE(Taken::deregistered, Taken::moved, Taken::other_domain);
  const bool crc = GENERATE(false, true);
  constexpr std::size_t kSize = 1'000'000, kCount = 16;  // more than TCP takes
  Side side(*context, {.depth = 64});
  TcpStream peer = attach_raw(side, {.crc = crc, .depth = 1, .rtr = mpa::ReadyToReceive::none}, true);
  Lent lent(side.pd, kSize);
  const Bytes old = lent.memory;
  for (std::uint64_t id = 0; id < kCount; ++id) REQUIRE(side.post(IBV_WR_SEND, id, {lent.sge}) == 0);
  lent.take(how);
  const Bytes got = read_to_end(peer);
  // In order: what TCP had taken, the one that failed, and those behind it.
  bool failed = false;
  for (std::uint64_t id = 0; id < kCount; ++id) {
    const ibv_wc completion = next(*side.send_cq);
    CHECK(completion.wr_id == id);
    if (completion.status == IBV_WC_SUCCESS) {
      CHECK_FALSE(failed);
      continue;
    }
    CHECK(completion.status == (failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_PROT_ERR));
    failed = true;
  }
  CHECK(failed);
  CHECK(side.qp->state() == IBV_QPS_ERR);
  // Each whole segment is of the old owner's octets. (The last one may be cut off by a reset.)
  std::size_t at = 0, whole = 0;
  while (at + 2 <= got.size()) {
    const std::size_t ulpdu = big_endian(Octets(got).subspan(at, 2)), size = (2 + ulpdu + 3) / 4 * 4 + 4;
    const Octets segment = Octets(got).subspan(at + 2, std::min(ulpdu, got.size() - at - 2));
    at += size;
    if (segment.size() < 18 || (segment[1] & std::byte{0x0F}) != std::byte{3}) continue;  // a Terminate
    const std::uint64_t offset = big_endian(segment.subspan(14, 4));
    const Octets payload = segment.subspan(18);
    REQUIRE(std::equal(payload.begin(), payload.end(), old.begin() + static_cast<std::ptrdiff_t>(offset)));
    ++whole;
  }
  CHECK(whole > 0);
}

TEST_CASE_METHOD(ConnectedPair, "memory lifetime: a region is deregistered inside a batch that names it", "[memory]") {
  Lent lent(a.pd, 100);
  ibv_send_wr request{};
  request.wr_id = 3;
  request.opcode = IBV_WR_SEND;
  request.sg_list = &lent.sge;
  request.num_sge = 1;
  a.qp->begin_batch();
  a.qp->add(request);
  lent.take(Taken::deregistered);
  CHECK(a.qp->end_batch() == 0);
  check_next(*a.send_cq, 3, IBV_WC_LOC_PROT_ERR);
}

TEST_CASE_METHOD(Pair,
                 "memory lifetime: a receive that may not be posted so fails when a message comes, as with adapters",
                 "[memory]") {
  const int wrong = GENERATE(range(0, 6));
  Pd elsewhere(context);
  connect({.remote = true});
  Registered message(a, pattern(64, 2));
  Lent lent(b.pd, 64), constant(b.pd, 64, 0), foreign(elsewhere, 64);
  ibv_sge sge = lent.sge;
  switch (wrong) {
    case 0: sge = constant.sge; break;  // no right to write
    case 1: sge = foreign.sge; break;   // of another protection domain
    case 2: sge.lkey ^= 1; break;
    case 3: sge.lkey = 0; break;
    case 4: sge.length += 1; break;
    case 5: sge.addr -= 1; break;
  }
  for (Lent* one : {&lent, &constant, &foreign}) std::fill(one->memory.begin(), one->memory.end(), kNew);
  REQUIRE(b.post_receive(1, {sge}) == 0);
  REQUIRE(b.post_receive(2, {sge}) == 0);
  REQUIRE(a.post(IBV_WR_SEND, 6, {}) == 0);  // no octets, and no memory is looked at
  CHECK(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  CHECK(next(*a.send_cq).status == IBV_WC_SUCCESS);
  REQUIRE(a.post(IBV_WR_SEND, 7, {message.sge()}) == 0);
  check_next(*b.receive_cq, 2, IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.send_cq).status == IBV_WC_REM_OP_ERR);
  CHECK((lent.untouched() && constant.untouched() && foreign.untouched()));
}

TEST_CASE_METHOD(ConnectedPair, "memory lifetime: rereg_mr of rights fails no work that stays allowed", "[memory]") {
  Lent target(b.pd, 4096), own(a.pd, 4096);
  const std::uint32_t rkey = target.mr->key();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread changer([&] {
    for (unsigned turn = 0; !stop; ++turn) {
      const unsigned access = turn % 2 == 0 ? kLocal | IBV_ACCESS_REMOTE_WRITE : kAll;
      if (target.mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access) != 0) ++wrong;
      if (own.mr->reregister(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access) != 0) ++wrong;
    }
  });
  for (std::uint64_t id = 0; id < 2000; ++id) {
    REQUIRE(b.post_receive(id, {target.sge}) == 0);
    REQUIRE(a.post(IBV_WR_RDMA_WRITE, id, {own.sge}, 0, rkey, address_of(target.memory)) == 0);
    REQUIRE(a.post(IBV_WR_SEND, id, {own.sge}) == 0);
    REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(next(*a.send_cq).status == IBV_WC_SUCCESS);
    REQUIRE(next(*b.receive_cq).status == IBV_WC_SUCCESS);
  }
  stop = true;
  changer.join();
  CHECK(wrong == 0);
}
