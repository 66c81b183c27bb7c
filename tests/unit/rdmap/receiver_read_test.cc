// SPDX-License-Identifier: MIT
// What a receiver does with RDMA Read Requests and Read Responses, right or wrong (RFC 5040 sections 5.2 and 7.2).
#include <catch2/catch.hpp>

#include "tests/unit/rdmap/receiver_fixture.h"

using namespace uiw;
using namespace uiw::test;
using Fixture = ReceiverFixture;
using Verdict = mpa::UlpduSink::Verdict;

// RFC 5040 section 7.2, Read Requests: layer 0, type 1, with the request (figure 10).
TEST_CASE_METHOD(Fixture, "receiver: RDMA Read Requests refused", "[receiver]") {
  SECTION("STag of nothing") { refused(read_request(1, 16, readable ^ 0x100, 0x20000), 0, 1, 0x00, true, true); }
  SECTION("before the base") { refused(read_request(1, 16, readable, 0x1FFFF), 0, 1, 0x01, true, true); }
  SECTION("past the end") { refused(read_request(1, 16, readable, 0x20000 + 4081), 0, 1, 0x01, true, true); }
  SECTION("too long") { refused(read_request(1, 0xFFFFFFFF, readable, 0x20000), 0, 1, 0x01, true, true); }
  SECTION("no right to read") { refused(read_request(1, 16, writable, 0x10000), 0, 1, 0x02, true, true); }
  SECTION("not of this stream") { refused(read_request(1, 16, foreign_stag, 0), 0, 1, 0x03, true, true); }
  SECTION("TO wrap") { refused(read_request(1, 16, readable, ~std::uint64_t{0} - 3), 0, 1, 0x04, true, true); }
  SECTION("cut short") {
    REQUIRE(give(untagged(kReadRequest, 1, 1, 0, Wire().zeros(27))) == Verdict::stop);
    CHECK(end.rx.error());
  }
  SECTION("too long a header") {
    REQUIRE(give(untagged(kReadRequest, 1, 1, 0, Wire().zeros(29))) == Verdict::stop);
    CHECK(end.rx.error());
  }
  SECTION("of two segments") {
    REQUIRE(give(untagged(kReadRequest, 1, 1, 0, Wire().zeros(28), 0x01)) == Verdict::stop);
    CHECK(end.rx.error());
  }
  CHECK(end.reads->inbound.empty());
  CHECK(end.requests == 0);
}

TEST_CASE_METHOD(Fixture, "receiver: RDMA Read Requests out of turn, and too many (RFC 5041 section 7.1)",
                 "[receiver]") {
  SECTION("MSN of a read request") {
    const std::uint32_t msn = GENERATE(0, 2, 0xFFFFFFFF);
    refused(read_request(msn, 10, readable, 0x20000), 1, 2, 0x03);
  }
  SECTION("MO of a read request") { refused(untagged(kReadRequest, 1, 1, 4, Wire().zeros(28)), 1, 2, 0x04); }
  SECTION("more reads than agreed on (RFC 5040 section 6.1): no buffer") {
    for (std::uint32_t msn = 1; msn <= 2; ++msn) {
      REQUIRE(give(read_request(msn, 10, readable, 0x20000)) == Verdict::go_on);
    }
    REQUIRE(give(read_request(3, 10, readable, 0x20000)) == Verdict::stop);
    REQUIRE(end.rx.error());
    CHECK(end.rx.error()->layer == rdmap::Layer::ddp);
    CHECK(end.rx.error()->type == 2);
    CHECK(end.rx.error()->code == 0x02);
  }
  SECTION("as many reads as agreed on, again once they were answered") {
    for (std::uint32_t msn = 1; msn <= 40; ++msn) {
      REQUIRE(give(read_request(msn, 10, readable, 0x20000)) == Verdict::go_on);
      if (msn % 2 == 0) CHECK(ulpdus_of(take_all(end), true).size() == 2);
    }
  }
}

TEST_CASE_METHOD(Fixture, "receiver: a zero-length read is not validated (RFC 5040 section 5.2.1)", "[receiver]") {
  CHECK(give(read_request(1, 0, 0xDEADBEEF, ~std::uint64_t{0})) == Verdict::go_on);
  CHECK(end.requests == 1);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 1);
  CHECK(out[0] == tagged(kReadResponse, 0x1234, 0x500, {}));
}

TEST_CASE_METHOD(Fixture, "receiver: a read is answered as asked (RFC 5040 section 5.2.2)", "[receiver]") {
  CHECK(give(read_request(1, 3000, readable, 0x20000 + 100)) == Verdict::go_on);
  const auto out = ulpdus_of(take_all(end), true);
  REQUIRE(out.size() == 3);
  Bytes got;
  for (const Bytes& ulpdu : out) {
    CHECK(ulpdu == tagged(kReadResponse, 0x1234, 0x500 + got.size(), Octets(ulpdu).subspan(14),
                          &ulpdu == &out.back() ? 0xC1 : 0x81));
    got.insert(got.end(), ulpdu.begin() + 14, ulpdu.end());
  }
  CHECK(got == Bytes(read_only.begin() + 100, read_only.begin() + 3100));
  CHECK(end.reads->inbound.empty());
}

TEST_CASE_METHOD(Fixture, "receiver: a read response goes only where the oldest read says", "[receiver]") {
  Bytes sink(1000), second(1000);
  end.read(1, {{sink.data(), 400}, {sink.data() + 400, 600}}, Stag{1}, 0);
  end.read(2, {memory_segment(second)}, Stag{1}, 0);
  take_all(end);
  const auto stag = 0x51000001U;
  const Bytes data = pattern(1000);
  SECTION("as asked, in segments") {
    CHECK(give(tagged(kReadResponse, stag, 0x1000, Octets(data).first(500), 0x81)) == Verdict::go_on);
    CHECK(end.sent.empty());
    CHECK(give(tagged(kReadResponse, stag, 0x1000 + 500, Octets(data).subspan(500))) == Verdict::go_on);
    CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
    CHECK(sink == data);
    CHECK(give(tagged(kReadResponse, stag + 1, 0x2000, data)) == Verdict::go_on);
    CHECK(second == data);
    // And no more.
    refused(tagged(kReadResponse, stag + 1, 0x2000, data), 0, 2, 0x06);
  }
  SECTION("the second first") { refused(tagged(kReadResponse, stag + 1, 0x2000, data), 1, 1, 0x00); }
  SECTION("another STag, though registered and writable") {
    refused(tagged(kReadResponse, writable, 0x1000, data), 1, 1, 0x00);
    CHECK(memory == Bytes(4096));
  }
  SECTION("another offset") { refused(tagged(kReadResponse, stag, 0x1001, data), 1, 1, 0x01); }
  SECTION("too long") { refused(tagged(kReadResponse, stag, 0x1000, pattern(1001)), 1, 1, 0x01); }
  SECTION("too long, and not the last") {
    refused(tagged(kReadResponse, stag, 0x1000, pattern(1001), 0x81), 1, 1, 0x01);
  }
  SECTION("too short") { refused(tagged(kReadResponse, stag, 0x1000, pattern(999)), 1, 1, 0x01); }
  SECTION("all of it, and not the last") { refused(tagged(kReadResponse, stag, 0x1000, data, 0x81), 1, 1, 0x01); }
  SECTION("a segment twice") {
    CHECK(give(tagged(kReadResponse, stag, 0x1000, Octets(data).first(500), 0x81)) == Verdict::go_on);
    refused(tagged(kReadResponse, stag, 0x1000, Octets(data).first(500), 0x81), 1, 1, 0x01);
  }
}

TEST_CASE_METHOD(Fixture,
                 "receiver: STag and offset of a read response of no octets do not count (RFC 5041 section 5.2)",
                 "[receiver]") {
  Bytes sink(10);
  end.read(1, {}, Stag{1}, 0);
  end.read(2, {memory_segment(sink)}, Stag{1}, 0);
  take_all(end);
  CHECK(give(tagged(kReadResponse, 0xDEADBEEF, ~std::uint64_t{0}, {})) == Verdict::go_on);
  CHECK(end.sent == std::vector<Sent>{{1, Status::success}});
  // It is no answer to a Read of some octets, nor may it be the first segment of more.
  const unsigned ddp = GENERATE(0xC1, 0x81);
  refused(tagged(kReadResponse, 0x51000002, 0x2000, {}, ddp), 1, 1, 0x01);
}

TEST_CASE_METHOD(Fixture, "receiver: a read response nobody asked for (RFC 5040 section 7.2)", "[receiver]") {
  refused(tagged(kReadResponse, writable, 0x10000, pattern(10)), 0, 2, 0x06);
}

TEST_CASE_METHOD(Single,
                 "receiver: a first Read of no octets counts like any, unless it was agreed on (RFC 5040 section 6.1)",
                 "[receiver]") {
  const bool agreed = GENERATE(false, true);
  end.start({.ird = 1, .rtr = agreed ? mpa::ReadyToReceive::read : mpa::ReadyToReceive::none, .hold = true});
  REQUIRE(end.give(read_request(1, 0, 0, 0)) == Verdict::go_on);
  CHECK(end.give(read_request(2, 0, 0, 0)) == (agreed ? Verdict::go_on : Verdict::stop));
}
