// SPDX-License-Identifier: MIT
// Both sides of start-up against each other, and against frames written by hand.
#include "mpa/startup.h"

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;
using mpa::ReadyToReceive;
using mpa::StartupError;

namespace {

mpa::StartupHeader header_of(const Bytes& frame) {
  const auto header = mpa::decode_startup_header(frame);
  REQUIRE(header);
  REQUIRE(frame.size() == 20U + header->pd_length);
  return *header;
}
Octets pd_of(const Bytes& frame) { return Octets(frame).subspan(20); }

mpa::Proposal proposal(bool crc, unsigned revision, unsigned ird, unsigned ord, const Bytes& pd = {}) {
  return {crc, revision, ird, ord, pd};
}

Bytes frame(bool reply, unsigned flags, unsigned revision, const Bytes& pd) {
  return Wire()
      .text(reply ? "MPA ID Rep Frame" : "MPA ID Req Frame")
      .u8(flags)
      .u8(revision)
      .u16(static_cast<unsigned>(pd.size()))
      .add(pd);
}

// The responder's answer to a request written by hand.
struct Answer {
  StartupError error;
  mpa::PeerSaid said;
  mpa::Agreement agreement;
  Bytes reply;
};
Answer answer(const Bytes& request, const mpa::Proposal& own) {
  Answer out;
  mpa::EnhancedHeader enhanced;
  const auto header = header_of(request);
  out.error = mpa::read_request(header, pd_of(request), out.said, enhanced);
  if (out.error == StartupError::none) out.reply = mpa::reply_frame(header, enhanced, own, out.agreement);
  return out;
}
struct Heard {
  StartupError error;
  mpa::PeerSaid said;
  mpa::Agreement agreement;
};
Heard hear(const mpa::Proposal& own, const Bytes& reply) {
  Heard out;
  out.error = mpa::read_reply(own, header_of(reply), pd_of(reply), out.said, out.agreement);
  return out;
}

}  // namespace

TEST_CASE("startup: both sides of revision 2 agree (RFC 6581 section 9)", "[startup]") {
  const bool crc_a = GENERATE(false, true), crc_b = GENERATE(false, true);
  const unsigned ird_a = GENERATE(0, 1, 16), ord_a = GENERATE(0, 4, 128);
  const unsigned ird_b = GENERATE(0, 8), ord_b = GENERATE(0, 1, 200);
  const Bytes pd_a = pattern(100, 1), pd_b = pattern(56, 2);
  const auto a = proposal(crc_a, 2, ird_a, ord_a, pd_a), b = proposal(crc_b, 2, ird_b, ord_b, pd_b);
  const auto request = mpa::request_frame(a);
  const auto at_b = answer(request, b);
  REQUIRE(at_b.error == StartupError::none);
  CHECK(at_b.said.read_depths_known);
  CHECK(at_b.said.ird == ird_a);
  CHECK(at_b.said.ord == ord_a);
  CHECK(at_b.said.private_data == pd_a);
  const auto at_a = hear(a, at_b.reply);
  REQUIRE(at_a.error == StartupError::none);
  CHECK(at_a.said.private_data == pd_b);
  // One decision for both directions: on where either side wants it (RFC 5044 section 7.1).
  CHECK(at_a.agreement.crc == (crc_a || crc_b));
  CHECK(at_b.agreement.crc == (crc_a || crc_b));
  CHECK(at_a.agreement.revision == 2);
  CHECK(at_b.agreement.revision == 2);
  // No more reads outstanding than the other side holds.
  CHECK(at_a.agreement.ord == std::min(ord_a, ird_b));
  CHECK(at_b.agreement.ord == std::min(ord_b, ird_a));
  CHECK(at_a.agreement.ird == ird_a);
  CHECK(at_b.agreement.ird == ird_b);
  CHECK(at_a.agreement.rtr == at_b.agreement.rtr);
  CHECK(at_a.agreement.rtr != ReadyToReceive::none);
}

TEST_CASE("startup: the octets of a request (RFC 5044 section 7.1.1, RFC 6581 section 9)", "[startup]") {
  const Bytes pd = pattern(6);
  CHECK(mpa::request_frame(proposal(true, 1, 3, 4, pd)) == frame(false, 0x40, 1, pd));
  CHECK(mpa::request_frame(proposal(false, 1, 3, 4)) == frame(false, 0, 1, {}));
  const Bytes request = mpa::request_frame(proposal(true, 2, 3, 4, pd));
  CHECK(header_of(request).enhanced);
  CHECK(big_endian(pd_of(request).first(2)) % 0x4000 == 3);
  CHECK(big_endian(pd_of(request).subspan(2, 2)) % 0x4000 == 4);
  CHECK((pd_of(request)[0] & std::byte{0x80}) != std::byte{0});  // peer-to-peer
  CHECK(Bytes(request.begin() + 24, request.end()) == pd);
}

TEST_CASE("startup: depths beyond 14 bits are cut, not wrapped", "[startup]") {
  const Bytes request = mpa::request_frame(proposal(true, 2, 0x4000, 100'000));
  CHECK(big_endian(pd_of(request).first(2)) % 0x4000 == 0x3FFE);
  CHECK(big_endian(pd_of(request).subspan(2, 2)) % 0x4000 == 0x3FFE);
}

TEST_CASE("startup: private data fits its 512 octets", "[startup]") {
  const auto request = mpa::request_frame(proposal(true, 2, 1, 1, pattern(508)));
  CHECK(request.size() == mpa::kMaxStartupFrame);
  CHECK(mpa::request_frame(proposal(true, 2, 1, 1, pattern(600))).size() == mpa::kMaxStartupFrame);
  CHECK(mpa::request_frame(proposal(true, 1, 1, 1, pattern(600))).size() == mpa::kMaxStartupFrame);
  const auto out = answer(request, proposal(true, 2, 1, 1, pattern(508, 2)));
  CHECK(out.said.private_data == pattern(508));
  CHECK(hear(proposal(true, 2, 1, 1), out.reply).said.private_data == pattern(508, 2));
}

TEST_CASE("startup: revision 1, both sides (RFC 5044 section 7.1)", "[startup]") {
  const bool crc_a = GENERATE(false, true), crc_b = GENERATE(false, true);
  const auto a = proposal(crc_a, 1, 3, 4, pattern(9, 1)), b = proposal(crc_b, 2, 5, 6, pattern(9, 2));
  const auto out = answer(mpa::request_frame(a), b);
  REQUIRE(out.error == StartupError::none);
  CHECK_FALSE(out.said.read_depths_known);
  CHECK(out.reply == frame(true, crc_a || crc_b ? 0x40 : 0, 1, pattern(9, 2)));
  CHECK(out.agreement.rtr == ReadyToReceive::none);
  CHECK(out.agreement.revision == 1);
  CHECK(out.agreement.ird == 5);
  CHECK(out.agreement.ord == 6);
  const auto heard = hear(a, out.reply);
  REQUIRE(heard.error == StartupError::none);
  CHECK(heard.agreement.crc == (crc_a || crc_b));
  CHECK(heard.agreement.revision == 1);
  CHECK(heard.agreement.ord == 4);
  CHECK(heard.agreement.rtr == ReadyToReceive::none);
  CHECK(heard.said.private_data == pattern(9, 2));
}

TEST_CASE("startup: which ready-to-receive message the responder picks (RFC 6581 section 9)", "[startup]") {
  const auto request = [](unsigned bits) {  // A B C D
    return frame(false, 0x10, 2,
                 Wire()
                     .u16(((bits & 8) != 0 ? 0x8000U : 0) | ((bits & 4) != 0 ? 0x4000U : 0) | 2)
                     .u16(((bits & 2) != 0 ? 0x8000U : 0) | ((bits & 1) != 0 ? 0x4000U : 0) | 2));
  };
  const unsigned ird = GENERATE(0, 4);
  for (unsigned bits = 0; bits < 16; ++bits) {
    CAPTURE(bits, ird);
    const auto out = answer(request(bits), proposal(false, 2, ird, 4));
    REQUIRE(out.error == StartupError::none);
    const auto first = big_endian(pd_of(out.reply).first(2)), second = big_endian(pd_of(out.reply).subspan(2, 2));
    const unsigned picked =
        ((first & 0x4000) != 0 ? 4U : 0) | ((second & 0x8000) != 0 ? 2U : 0) | ((second & 0x4000) != 0 ? 1U : 0);
    // One of those offered, or none; and only with A on both sides.
    CHECK((picked & (picked - 1)) == 0);
    CHECK((picked & ~bits) == 0);
    if ((bits & 8) == 0) CHECK((first & 0x8000) == 0);
    if ((bits & 8) == 0) CHECK(picked == 0);
    CHECK(((first & 0x8000) != 0) == (picked != 0));
    switch (out.agreement.rtr) {
      case ReadyToReceive::none: CHECK(picked == 0); break;
      case ReadyToReceive::fulpdu: CHECK(picked == 4); break;
      case ReadyToReceive::write: CHECK(picked == 2); break;
      case ReadyToReceive::read: CHECK(picked == 1); break;
    }
    if ((bits & 8) != 0 && (bits & 6) != 0) CHECK(picked != 0);
    CHECK(first % 0x4000 == ird);
  }
}

TEST_CASE("startup: a side that can do nothing with a Read neither offers nor takes it as RTR", "[startup]") {
  const Bytes depths = Wire().u16(0x8004).u16(0x4004), choice = depths;
  auto own = proposal(false, 2, 4, 4);
  // Offers of an RDMA Write and a Read have the flags C and D of RFC 6581 section 9.
  const auto offered = [](const mpa::Proposal& side) {
    return big_endian(pd_of(mpa::request_frame(side)).subspan(2, 2));
  };
  CHECK(offered(own) == 0xC004);
  own.read_as_rtr = false;
  CHECK(offered(own) == 0x8004);
  CHECK(hear(own, frame(true, 0x10, 2, choice)).error == StartupError::no_rtr);
  const auto out = answer(frame(false, 0x10, 2, depths), own);
  CHECK(out.agreement.rtr == ReadyToReceive::none);
  CHECK(pd_of(out.reply).size() == 4);
  CHECK(big_endian(pd_of(out.reply).first(2)) == 4);
  CHECK(big_endian(pd_of(out.reply).subspan(2, 2)) == 4);
  // With ORD 0 none may be outstanding.
  CHECK(offered(proposal(false, 2, 4, 0)) == 0x8000);
  CHECK(hear(proposal(false, 2, 4, 0), frame(true, 0x10, 2, choice)).error == StartupError::no_rtr);
}

TEST_CASE("startup: what the initiator makes of the reply's choice (RFC 6581 section 9)", "[startup]") {
  const auto own = proposal(false, 2, 4, 4);
  const auto reply = [](unsigned first, unsigned second) {
    return frame(true, 0x10, 2, Wire().u16(first).u16(second));
  };
  CHECK(hear(own, reply(0x8004, 0x8004)).agreement.rtr == ReadyToReceive::write);
  CHECK(hear(own, reply(0x8004, 0x4004)).agreement.rtr == ReadyToReceive::read);
  CHECK(hear(own, reply(0x8004, 0x0004)).error == StartupError::no_rtr);
  CHECK(hear(own, reply(0xC004, 0x0004)).error == StartupError::no_rtr);  // not offered
  const auto client_server = hear(own, reply(0x0004, 0x0004));
  CHECK(client_server.error == StartupError::none);
  CHECK(client_server.agreement.rtr == ReadyToReceive::none);
}

TEST_CASE("startup: read depths that are not negotiated (RFC 6581 section 9.1: 0x3FFF)", "[startup]") {
  const auto own = proposal(false, 2, 4, 7);
  CHECK(hear(own, frame(true, 0x10, 2, Wire().u16(0xBFFF).u16(0xBFFF))).agreement.ord == 7);
  const auto out = answer(frame(false, 0x10, 2, Wire().u16(0xBFFF).u16(0xBFFF)), own);
  CHECK(out.agreement.ord == 7);
  CHECK(out.agreement.ird == 4);
  CHECK(hear(own, frame(true, 0x10, 2, Wire().u16(0x8003).u16(0x8002))).agreement.ord == 3);
  // The reply negotiates IRD only where the request has an ORD, and ORD only where it has an IRD.
  const auto depths = [&](unsigned ird, unsigned ord) {
    const Bytes reply = answer(frame(false, 0x10, 2, Wire().u16(ird).u16(ord)), own).reply;
    return std::pair(big_endian(pd_of(reply).first(2)), big_endian(pd_of(reply).subspan(2, 2)));
  };
  CHECK(depths(0x3FFF, 0x3FFF) == std::pair(0x3FFFUL, 0x3FFFUL));
  CHECK(depths(0x0003, 0x3FFF) == std::pair(0x3FFFUL, 0x0003UL));
  CHECK(depths(0x3FFF, 0x0003) == std::pair(0x0004UL, 0x3FFFUL));
}

TEST_CASE("startup: a responder that wants more reads than the initiator holds is not agreed with", "[startup]") {
  // RFC 6581 section 9.1: such a reply is answered by a Terminate of layer LLP, type MPA, code 6.
  CHECK(hear(proposal(false, 2, 4, 4), frame(true, 0x10, 2, Wire().u16(0x8004).u16(0x8004))).error ==
        StartupError::none);
  CHECK(hear(proposal(false, 2, 4, 4), frame(true, 0x10, 2, Wire().u16(0x8004).u16(0x8005))).error !=
        StartupError::none);
}

TEST_CASE("startup: a request of revision 2 without the enhanced header", "[startup]") {
  const auto out = answer(frame(false, 0x40, 2, pattern(10)), proposal(false, 2, 4, 4));
  REQUIRE(out.error == StartupError::none);
  CHECK(out.said.private_data == pattern(10));
  CHECK_FALSE(header_of(out.reply).enhanced);
  CHECK(header_of(out.reply).revision == 2);
  CHECK(out.agreement.crc);
}

TEST_CASE("startup: fallback to revision 1 (RFC 6581 section 10)", "[startup]") {
  CHECK(hear(proposal(true, 2, 4, 4), frame(true, 0x20, 1, {})).error == StartupError::revision);
  // A rejection of the revision that was asked for is the consumer's.
  CHECK(hear(proposal(true, 1, 4, 4), frame(true, 0x20, 1, {})).error == StartupError::rejected);
  CHECK(hear(proposal(true, 2, 4, 4), frame(true, 0x20, 2, {})).error == StartupError::rejected);
  CHECK(hear(proposal(true, 1, 4, 4), frame(true, 0, 2, {})).error == StartupError::invalid_frame);
}

TEST_CASE("startup: a rejection brings its private data", "[startup]") {
  const unsigned revision = GENERATE(1, 2);
  const Bytes pd = pattern(148, 3);
  const Bytes request = mpa::request_frame(proposal(true, revision, 1, 1));
  const Bytes reject = mpa::reject_frame(header_of(request), pd);
  CHECK(header_of(reject).rejected);
  CHECK(header_of(reject).revision == revision);
  CHECK(header_of(reject).enhanced == (revision == 2));
  const auto heard = hear(proposal(true, revision, 1, 1), reject);
  CHECK(heard.error == StartupError::rejected);
  CHECK(heard.said.private_data == pd);
}

TEST_CASE("startup: each side decides about the markers that it receives (RFC 5044 section 7.1.1)", "[startup]") {
  const unsigned revision = GENERATE(1, 2);
  auto a = proposal(true, revision, 1, 1), b = proposal(true, 2, 1, 1);
  a.markers = GENERATE(false, true);
  b.markers = GENERATE(false, true);
  const Bytes request = mpa::request_frame(a);
  CHECK(header_of(request).markers == a.markers);
  const auto at_b = answer(request, b);
  REQUIRE(at_b.error == StartupError::none);
  CHECK(header_of(at_b.reply).markers == b.markers);
  CHECK(at_b.agreement.marks == a.markers);
  CHECK(at_b.agreement.marked == b.markers);
  const auto at_a = hear(a, at_b.reply);
  REQUIRE(at_a.error == StartupError::none);
  CHECK(at_a.agreement.marks == b.markers);
  CHECK(at_a.agreement.marked == a.markers);
}

TEST_CASE("startup: frames of the wrong kind or length", "[startup]") {
  const auto own = proposal(true, 2, 1, 1);
  CHECK(answer(frame(true, 0, 1, {}), own).error == StartupError::invalid_frame);
  CHECK(hear(own, frame(false, 0, 1, {})).error == StartupError::invalid_frame);
  for (std::size_t size = 0; size < 4; ++size) {
    CHECK(answer(frame(false, 0x10, 2, Bytes(size)), own).error == StartupError::invalid_frame);
    CHECK(hear(own, frame(true, 0x10, 2, Bytes(size))).error == StartupError::invalid_frame);
  }
  mpa::PeerSaid said;
  mpa::EnhancedHeader enhanced;
  const Bytes request = frame(false, 0, 1, pattern(5));
  CHECK(mpa::read_request(header_of(request), pd_of(request).first(4), said, enhanced) == StartupError::invalid_frame);
}

TEST_CASE("startup: R is not checked in a request (RFC 5044 section 7.1.1)", "[startup]") {
  CHECK(answer(frame(false, 0x20, 1, {}), proposal(true, 2, 1, 1)).error == StartupError::none);
}

TEST_CASE("startup: S is a reserved flag in revision 1, hence ignored (RFC 5044 section 7.1.1)", "[startup]") {
  const auto out = answer(frame(false, 0x10, 1, pattern(10)), proposal(true, 2, 1, 1));
  CHECK(out.error == StartupError::none);
  CHECK(out.said.private_data == pattern(10));
}

TEST_CASE("startup: frames do not say who is uiw; a ready-to-receive message may", "[startup]") {
  const unsigned revision = GENERATE(1, 2);
  const auto a = proposal(true, revision, 1, 1), b = proposal(true, 2, 1, 1);
  const Bytes request = mpa::request_frame(a);
  CHECK((std::to_integer<unsigned>(request[16]) & 0x0F) == 0);
  const auto at_b = answer(request, b);
  REQUIRE(at_b.error == StartupError::none);
  CHECK((std::to_integer<unsigned>(at_b.reply[16]) & 0x0F) == 0);
  const auto at_a = hear(a, at_b.reply);
  REQUIRE(at_a.error == StartupError::none);
  const auto known = revision == 1 ? mpa::PeerKind::other : mpa::PeerKind::not_known;
  CHECK(at_b.agreement.peer == known);
  CHECK(at_a.agreement.peer == known);
  // An empty FPDU has no room for it.
  const auto out = answer(frame(false, 0x10, 2, Wire().u16(0xC001).u16(0x0001)), b);
  CHECK(out.agreement.rtr == mpa::ReadyToReceive::fulpdu);
  CHECK(out.agreement.peer == mpa::PeerKind::other);
}

TEST_CASE("startup: long FPDUs go to a caller that offers to take them", "[startup]") {
  const auto own = proposal(false, 2, 4, 4);
  const Bytes depths = Wire().u16(0x8004).u16(0x8004);
  // siw with try_gso: the reply has the flag that the request had.
  const auto offered = answer(frame(false, 0x18, 2, depths), own);
  CHECK(offered.agreement.long_fpdus);
  CHECK((std::to_integer<unsigned>(offered.reply[16]) & 0x0F) == 0x08);
  CHECK_FALSE(answer(frame(false, 0x10, 2, depths), own).agreement.long_fpdus);
  // A reply that takes what was not offered.
  CHECK_FALSE(hear(own, frame(true, 0x18, 2, depths)).agreement.long_fpdus);
}

TEST_CASE("startup: reserved flags agree on nothing", "[startup]") {
  const auto own = proposal(false, 2, 4, 4);
  const Bytes depths = Wire().u16(0x8004).u16(0x8004);
  for (unsigned flags = 0; flags < 16; ++flags) {
    const auto heard = hear(own, frame(true, 0x10 | flags, 2, depths));
    REQUIRE(heard.error == StartupError::none);
    CHECK(heard.agreement == hear(own, frame(true, 0x10, 2, depths)).agreement);
    const auto out = answer(frame(false, 0x10 | flags, 2, depths), own);
    REQUIRE(out.error == StartupError::none);
    CHECK((std::to_integer<unsigned>(out.reply[16]) & 0x07) == 0);
  }
  // A rejection says nothing.
  CHECK((std::to_integer<unsigned>(mpa::reject_frame(header_of(mpa::request_frame(own)), {})[16]) & 0x0F) == 0);
}
