// SPDX-License-Identifier: MIT
#include "rdmap/rdmap_format.h"

#include <catch2/catch.hpp>

#include "tests/unit/octets.h"

using namespace uiw;
using namespace uiw::test;

TEST_CASE("rdmap_format: control octet (RFC 5040 section 4.1, figures 3 and 4)", "[rdmap_format]") {
  using rdmap::Opcode;
  const std::pair<Opcode, unsigned> octets[] = {{Opcode::write, 0x40},
                                                {Opcode::read_request, 0x41},
                                                {Opcode::read_response, 0x42},
                                                {Opcode::send, 0x43},
                                                {Opcode::send_invalidate, 0x44},
                                                {Opcode::send_solicited, 0x45},
                                                {Opcode::send_solicited_invalidate, 0x46},
                                                {Opcode::terminate, 0x47}};
  for (const auto& [opcode, octet] : octets) {
    CHECK(rdmap::control_of(opcode) == octet);
    CHECK(rdmap::decode_control(static_cast<std::uint8_t>(octet | 0x30)).opcode == opcode);
    CHECK(rdmap::decode_control(static_cast<std::uint8_t>(octet)).version == 1);
    CHECK(rdmap::is_send(opcode) == (octet >= 0x43 && octet <= 0x46));
    CHECK(rdmap::is_solicited(opcode) == (octet == 0x45 || octet == 0x46));
    CHECK(rdmap::invalidates(opcode) == (octet == 0x44 || octet == 0x46));
  }
  CHECK(rdmap::decode_control(0xC0).version == 3);
}

TEST_CASE("rdmap_format: Send with immediate has two opcodes that RFC 5040 and RFC 7306 leave free", "[rdmap_format]") {
  using rdmap::Opcode;
  CHECK(rdmap::control_of(Opcode::send_immediate) == 0x4F);
  CHECK(rdmap::control_of(Opcode::send_immediate_solicited) == 0x4E);
  for (const unsigned reserved : {0x00U, 0x10U, 0x20U, 0x30U}) {  // bits that are ignored
    for (const auto opcode : {Opcode::send_immediate, Opcode::send_immediate_solicited, Opcode::send}) {
      const auto control = rdmap::decode_control(static_cast<std::uint8_t>(rdmap::control_of(opcode) | reserved));
      CHECK(control.version == 1);
      CHECK(control.opcode == opcode);
    }
  }
  CHECK(rdmap::is_send(Opcode::send_immediate));
  CHECK(rdmap::is_send(Opcode::send_immediate_solicited));
  CHECK_FALSE(rdmap::is_solicited(Opcode::send_immediate));
  CHECK(rdmap::is_solicited(Opcode::send_immediate_solicited));
  CHECK_FALSE(rdmap::invalidates(Opcode::send_immediate));

  const rdmap::Immediate immediate = rdmap::immediate_of_word(0xA1B2C3D4);
  CHECK(Bytes(immediate.begin(), immediate.end()) == Wire().u32(0xA1B2C3D4).zeros(4).bytes());
  CHECK(rdmap::word_of(immediate) == 0xA1B2C3D4);
  Bytes out(rdmap::kImmediateSize);
  rdmap::encode(immediate, out.data());
  CHECK(rdmap::decode_immediate(out) == immediate);
  CHECK_FALSE(rdmap::decode_immediate(Octets(out).first(7)));
}

TEST_CASE("rdmap_format: RDMA Read Request header (RFC 5040 section 4.4, figure 6)", "[rdmap_format]") {
  const rdmap::ReadRequest request{ddp::Stag{0x01020304}, 0x1112131415161718, 0x21222324, ddp::Stag{0x31323334},
                                   0x4142434445464748};
  Bytes out(rdmap::kReadRequestSize);
  rdmap::encode(request, out.data());
  CHECK(out ==
        Wire().u32(0x01020304).u64(0x1112131415161718).u32(0x21222324).u32(0x31323334).u64(0x4142434445464748).bytes());
  CHECK(rdmap::decode_read_request(out) == request);
  for (std::size_t cut = 0; cut < out.size(); ++cut) CHECK_FALSE(rdmap::decode_read_request(Octets(out).first(cut)));
}

TEST_CASE("rdmap_format: Terminate header (RFC 5040 section 4.8, figures 7 and 8)", "[rdmap_format]") {
  rdmap::Terminate terminate;
  terminate.layer = rdmap::Layer::llp;
  terminate.type = 0;
  terminate.code = 2;
  Bytes out(rdmap::kMaxTerminate);
  REQUIRE(rdmap::encode(terminate, out.data()) == 4);
  CHECK(Bytes(out.begin(), out.begin() + 4) == Wire().u32(0x20020000).bytes());

  const Bytes ddp = GENERATE(Bytes(Wire().u8(0xC1).u8(0x40).zeros(12)), Bytes(Wire().u8(0x41).u8(0x41).zeros(16)));
  const bool with_read = GENERATE(false, true);
  terminate.layer = rdmap::Layer::rdma;
  terminate.type = 1;
  terminate.code = 0xFF;
  terminate.has_ddp_header = true;
  terminate.segment_length = 0x1234;
  terminate.ddp_header_size = static_cast<std::uint8_t>(ddp.size());
  std::copy(ddp.begin(), ddp.end(), terminate.ddp_header.begin());
  terminate.has_read_request = with_read;
  const Bytes read = pattern(28);
  std::copy(read.begin(), read.end(), terminate.read_request.begin());
  const std::size_t size = rdmap::encode(terminate, out.data());
  out.resize(size);
  Wire expected;
  expected.u32(with_read ? 0x01FFE000 : 0x01FFC000).u16(0x1234).add(ddp);
  if (with_read) expected.add(read);
  CHECK(out == expected.bytes());

  const auto back = rdmap::decode_terminate(out);
  REQUIRE(back);
  CHECK(back->layer == rdmap::Layer::rdma);
  CHECK(back->type == 1);
  CHECK(back->code == 0xFF);
  CHECK(back->segment_length == 0x1234);
  CHECK(back->ddp_header_size == ddp.size());
  CHECK(Bytes(back->ddp_header.begin(), back->ddp_header.begin() + back->ddp_header_size) == ddp);
  CHECK(back->has_read_request == with_read);
  if (with_read) CHECK(Bytes(back->read_request.begin(), back->read_request.end()) == read);
  for (std::size_t cut = 0; cut < size; ++cut) CHECK_FALSE(rdmap::decode_terminate(Octets(out).first(cut)));
}

TEST_CASE("rdmap_format: a Terminate in the form of the kernel's siw", "[rdmap_format]") {
  // Layer RDMAP, type remote protection, code access rights; M, D and R; the payload's length; the headers.
  const Bytes ddp = Wire().u8(0x41).u8(0x41).zeros(16), read = pattern(28);
  const auto terminate = rdmap::decode_terminate(Wire().u32(0x10020700).u16(0).add(ddp).add(read).bytes());
  REQUIRE(terminate);
  CHECK(terminate->layer == rdmap::Layer::rdma);
  CHECK(terminate->type == 1);
  CHECK(terminate->code == 2);
  CHECK(terminate->segment_length == 18);
  REQUIRE(terminate->has_ddp_header);
  CHECK(Bytes(terminate->ddp_header.begin(), terminate->ddp_header.end()) == ddp);
  REQUIRE(terminate->has_read_request);
  CHECK(Bytes(terminate->read_request.begin(), terminate->read_request.end()) == read);

  // Of a Write: it sets R all the same, and four octets more than a tagged header has follow.
  const Bytes tagged = Wire().u8(0xC1).u8(0x40).zeros(12);
  const auto write = rdmap::decode_terminate(Wire().u32(0x10000700).u16(1000).add(tagged).zeros(4).bytes());
  REQUIRE(write);
  CHECK(write->type == 1);
  CHECK(write->segment_length == 1014);
  CHECK(write->ddp_header_size == 14);
  CHECK_FALSE(write->has_read_request);

  // Without these bits it may be the usual form.
  const auto unknown = rdmap::decode_terminate(Wire().u32(0x02020000).bytes());
  REQUIRE(unknown);
  CHECK(unknown->layer == rdmap::Layer::rdma);
  CHECK(unknown->type == 2);
}

TEST_CASE("rdmap_format: a Terminate of an unknown layer and of reserved bits is read", "[rdmap_format]") {
  const auto terminate = rdmap::decode_terminate(Wire().u32(0xFFFF1FFF).bytes());
  REQUIRE(terminate);
  CHECK(static_cast<unsigned>(terminate->layer) == 15);
  CHECK_FALSE((terminate->has_ddp_header || terminate->has_read_request));
}
