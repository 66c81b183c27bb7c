// SPDX-License-Identifier: MIT
// Long payloads over TCP without CRC, which are read straight into the memory of a receive.
#include <algorithm>
#include <cstring>

#include "provider/verbs/qp/qp.h"
#include "tests/unit/provider/memory/window_pair.h"

using namespace uiw;
using namespace uiw::test;

namespace {

constexpr std::size_t kSize = 15 * kPage;
constexpr std::size_t kHalf = 7 * kPage;

// A queue pair that has got the first half of a Send of kSize octets.
struct HalfReceived : RawPair {
  Pages inbox{16};
  std::unique_ptr<Mr> mr = Mr::create(a.pd, inbox.memory, inbox.size, inbox.address(), kLocal);
  Bytes data = pattern(kSize), stream = send_segment(1, 0, kSize, true);
  static constexpr std::size_t kHeaders = 2 + 18;

  HalfReceived() {
    REQUIRE(mr);
    REQUIRE(a.post_receive(1, {{inbox.address(), static_cast<std::uint32_t>(inbox.size), mr->key()}}) == 0);
    REQUIRE(a.post_receive(2, {}) == 0);
    give(peer, Octets(stream).first(kHeaders + kHalf));
    REQUIRE(eventually([&] { return none(*a.receive_cq) && holds(kHalf); }));
  }
  bool holds(std::size_t octets) const { return std::memcmp(inbox.memory, data.data(), octets) == 0; }
  void give_rest() { give(peer, Octets(stream).subspan(kHeaders + kHalf)); }
};

}  // namespace

TEST_CASE_METHOD(HalfReceived, "qp: a long Send comes in parts, and other messages right behind it", "[qp]") {
  const Bytes next_one = send_segment(2, 0, 0, true);
  Bytes rest(stream.begin() + kHeaders + kHalf, stream.end());
  rest.insert(rest.end(), next_one.begin(), next_one.end());
  const auto split = static_cast<std::size_t>(GENERATE(1, 4096, 7 * 4096, 8 * 4096 - 1, 8 * 4096 + 1, 8 * 4096 + 3));
  give(peer, Octets(rest).first(split));
  CHECK(eventually([&] { return holds(std::min(kHalf + split, kSize)); }));
  give(peer, Octets(rest).subspan(split));
  const ibv_wc completion = next(*a.receive_cq);
  CHECK(completion.status == IBV_WC_SUCCESS);
  CHECK(completion.byte_len == kSize);
  CHECK(holds(kSize));
  CHECK(next(*a.receive_cq).wr_id == 2);
  CHECK(inbox.memory[kSize] == std::byte{0});
}

TEST_CASE_METHOD(HalfReceived,
                 "qp: memory that goes away in the middle of a long Send ends the stream, not the program", "[qp]") {
  install_copy_guard();
  // What is still to come begins in memory that is gone, or runs into
  const std::size_t from = kHalf + static_cast<std::size_t>(GENERATE(0, 3)) * kPage;
  inbox.make_inaccessible(from, inbox.size - from);
  give_rest();
  CHECK(next(*a.receive_cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(holds(from));
}

TEST_CASE_METHOD(HalfReceived, "qp: memory that is deregistered in the middle of a long Send is written no more",
                 "[qp]") {
  mr.reset();
  std::memset(inbox.memory, 0x55, inbox.size);
  give_rest();
  CHECK(next(*a.receive_cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(next(*a.receive_cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(std::all_of(inbox.memory, inbox.memory + inbox.size, [](std::byte octet) { return octet == std::byte{0x55}; }));
}
