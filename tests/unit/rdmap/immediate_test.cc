// SPDX-License-Identifier: MIT
// Immediate Data (RFC 7306 section 6), alone and behind an RDMA Write.
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/pair.h"

using namespace uiw;
using namespace uiw::test;
using Verdict = mpa::UlpduSink::Verdict;

namespace {

rdmap::Immediate octets(std::uint8_t first) {
  rdmap::Immediate value;
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(first + i);
  return value;
}

Bytes immediate(std::uint32_t msn, const rdmap::Immediate& value, unsigned control = 0x48) {
  return Wire().u8(0x41).u8(control).u32(0).u32(0).u32(msn).u32(0).add(value);
}
Bytes a_write(std::uint32_t stag, std::uint64_t offset, Octets payload, bool last = true) {
  return Wire().u8(last ? 0xC1 : 0x81).u8(0x40).u32(stag).u64(offset).add(payload);
}

}  // namespace

TEST_CASE_METHOD(Single, "immediate: behind its Write, in the order of Sends (RFC 7306 sections 6.2 and 6.3)",
                 "[immediate]") {
  end.start({.mulpdu = 128});
  const Bytes data = pattern(200);
  end.send(1, {});
  end.write_immediate(2, {memory_segment(data)}, Stag{0x77}, 0x1000, octets(1));
  end.immediate(3, octets(11), true);
  end.write_immediate(4, {}, Stag{0}, 0, octets(21), true);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 7);
  CHECK(out[0] == Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(1).u32(0).bytes());
  CHECK(out[1] == a_write(0x77, 0x1000, Octets(data).first(114), false));
  CHECK(out[2] == a_write(0x77, 0x1000 + 114, Octets(data).subspan(114)));
  CHECK(out[3] == immediate(2, octets(1)));
  CHECK(out[4] == immediate(3, octets(11), 0x49));
  CHECK(out[5] == a_write(0, 0, {}));
  CHECK(out[6] == immediate(4, octets(21), 0x49));
  CHECK(end.sent.size() == 4);
}

TEST_CASE_METHOD(StartedEnd, "immediate: takes a receive, and reports the length of the Write right before it",
                 "[immediate]") {
  Bytes memory(4096);
  const auto stag = static_cast<std::uint32_t>(end.expose(memory, ddp::kRemoteWrite | ddp::kLocalWrite, 0));
  for (std::uint64_t id = 1; id <= 5; ++id) end.post(id, {});
  const Bytes data = pattern(300);
  REQUIRE(end.give(a_write(stag, 0, Octets(data).first(100), false)) == Verdict::go_on);
  REQUIRE(end.give(a_write(stag, 100, Octets(data).subspan(100))) == Verdict::go_on);
  REQUIRE(end.give(immediate(1, octets(1))) == Verdict::go_on);
  REQUIRE(end.give(immediate(2, octets(2), 0x49)) == Verdict::go_on);  // nothing before it
  REQUIRE(end.give(a_write(stag, 0, data)) == Verdict::go_on);
  REQUIRE(end.give(Wire().u8(0x41).u8(0x43).u32(0).u32(0).u32(3).u32(0).bytes()) == Verdict::go_on);
  REQUIRE(end.give(immediate(4, octets(3))) == Verdict::go_on);  // a Send stands in between
  REQUIRE(end.give(a_write(stag, 0, {})) == Verdict::go_on);
  REQUIRE(end.give(immediate(5, octets(4))) == Verdict::go_on);
  REQUIRE(end.received.size() == 5);
  const std::uint32_t lengths[] = {300, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(end.received[i].id == i + 1);
    CHECK(end.received[i].status == Status::success);
    CHECK(end.received[i].length == lengths[i]);
    CHECK(end.received[i].has_immediate == (i != 2));
    CHECK(end.received[i].solicited == (i == 1));
  }
  CHECK(end.received[0].immediate == octets(1));
  CHECK(end.received[4].immediate == octets(4));
}

TEST_CASE_METHOD(Single, "immediate: reports its Write even if a progress report comes in between", "[immediate]") {
  end.start({.infiniband = true});
  Bytes memory(4096);
  const auto stag = static_cast<std::uint32_t>(end.expose(memory, ddp::kRemoteWrite | ddp::kLocalWrite, 0));
  end.post(1, {});
  REQUIRE(end.give(a_write(stag, 0, pattern(300))) == Verdict::go_on);
  const std::uint32_t report = GENERATE(0U, 1U);  // a receive is missing; what was placed
  REQUIRE(end.give(Wire().u8(0xC1).u8(0x40).u32(0x75697700 + report).u64(0).bytes()) == Verdict::go_on);
  REQUIRE(end.give(immediate(1, octets(1))) == Verdict::go_on);
  REQUIRE(end.received.size() == 1);
  CHECK(end.received[0].length == 300);
}

TEST_CASE_METHOD(StartedEnd, "immediate: waits for a receive", "[immediate]") {
  REQUIRE(end.give(immediate(1, octets(1))) == Verdict::pause);
  end.post(1, {});
  REQUIRE(end.give(immediate(1, octets(1))) == Verdict::go_on);
  CHECK(end.received.size() == 1);
}

TEST_CASE_METHOD(StartedEnd, "immediate: what is refused (RFC 7306 sections 6.3 and 8.2)", "[immediate]") {
  end.post(1, {});
  Bytes bad = immediate(1, octets(1));
  SECTION("7 octets") { bad.pop_back(); }
  SECTION("9 octets") { bad.push_back(std::byte{0}); }
  SECTION("none") { bad.resize(18); }
  SECTION("not the last segment") { bad[0] = std::byte{0x01}; }
  SECTION("another MSN") { bad = immediate(2, octets(1)); }
  SECTION("in the middle of a Send") {
    Bytes memory(64);
    end.posted.clear();
    end.post(1, {{memory.data(), memory.size()}});
    REQUIRE(end.give(Wire().u8(0x01).u8(0x43).u32(0).u32(0).u32(1).u32(0).zeros(4).bytes()) == Verdict::go_on);
  }
  REQUIRE(end.give(bad) == Verdict::stop);
  CHECK(end.rx.error());
}
