// SPDX-License-Identifier: MIT
// Long payloads over TCP without CRC, which are read straight into the memory of a receive.
#include <algorithm>
#include <cstring>

#include "provider/verbs/qp/qp.h"
#include "tests/unit/provider/memory/memory_rig.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr std::size_t kSize = 15 * kPage;
constexpr std::size_t kHalf = 7 * kPage;

// A queue pair that has got the first half of a Send of kSize octets.
struct HalfReceived {
  std::shared_ptr<Context> context = open_loopback();
  Side side{*context};
  Pages inbox{16};
  std::unique_ptr<Mr> mr = Mr::create(side.pd, inbox.memory, inbox.size, inbox.address(), IBV_ACCESS_LOCAL_WRITE);
  TcpStream peer = attach_raw(side);
  Bytes data = pattern(kSize), stream = send_segment(1, 0, kSize, true);
  static constexpr std::size_t kHeaders = 2 + 18;

  HalfReceived() {
    REQUIRE(mr);
    REQUIRE(side.post_receive(1, {{inbox.address(), static_cast<std::uint32_t>(inbox.size), mr->key()}}) == 0);
    REQUIRE(side.post_receive(2, {}) == 0);
    give(peer, Octets(stream).first(kHeaders + kHalf));
    REQUIRE(eventually([&] { return none(*side.receive_cq) && holds(kHalf); }));
  }
  bool holds(std::size_t octets) const { return std::memcmp(inbox.memory, data.data(), octets) == 0; }
  void give_rest() { give(peer, Octets(stream).subspan(kHeaders + kHalf)); }
};

}  // namespace

TEST_CASE("qp: a long Send comes in parts, and other messages right behind it", "[qp]") {
  HalfReceived it;
  const Bytes next_one = send_segment(2, 0, 0, true);
  Bytes rest(it.stream.begin() + HalfReceived::kHeaders + kHalf, it.stream.end());
  rest.insert(rest.end(), next_one.begin(), next_one.end());
  const auto split = static_cast<std::size_t>(GENERATE(1, 4096, 7 * 4096, 8 * 4096 - 1, 8 * 4096 + 1, 8 * 4096 + 3));
  give(it.peer, Octets(rest).first(split));
  CHECK(eventually([&] { return it.holds(std::min(kHalf + split, kSize)); }));
  give(it.peer, Octets(rest).subspan(split));
  const ibv_wc completion = next(*it.side.receive_cq);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.byte_len == kSize);
  CHECK(it.holds(kSize));
  CHECK(next(*it.side.receive_cq).wr_id == 2);
  CHECK(it.inbox.memory[kSize] == std::byte{0});
}

TEST_CASE("qp: memory that goes away in the middle of a long Send ends the stream, not the program", "[qp]") {
  install_copy_guard();
  HalfReceived it;
  // What is still to come begins in memory that is gone, or runs into it.
  const std::size_t from = kHalf + static_cast<std::size_t>(GENERATE(0, 3)) * kPage;
  it.inbox.make_inaccessible(from, it.inbox.size - from);
  it.give_rest();
  CHECK(next(*it.side.receive_cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*it.side.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(it.holds(from));
}

TEST_CASE("qp: memory that is deregistered in the middle of a long Send is written no more", "[qp]") {
  HalfReceived it;
  it.mr.reset();
  std::memset(it.inbox.memory, 0x55, it.inbox.size);
  it.give_rest();
  CHECK(next(*it.side.receive_cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*it.side.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(std::all_of(it.inbox.memory, it.inbox.memory + it.inbox.size,
                    [](std::byte octet) { return octet == std::byte{0x55}; }));
}
