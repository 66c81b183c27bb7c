// SPDX-License-Identifier: MIT
// Sources: none but the header. Octets are written as the kernel on a little-endian machine writes them.
#include "kernel-abi/netlink/netlink_format.h"

#include <catch2/catch.hpp>
#include <string>

using namespace uiw::kernel_abi;

namespace {

constexpr unsigned kType = 0x1401;

Octets with_attributes(void (*write)(NetlinkWriter&)) {
  NetlinkWriter writer(kType, NLM_F_REQUEST, 7, 42);
  write(writer);
  return writer.octets();
}

}  // namespace

TEST_CASE("a message has the octets of netlink(7)") {
  const Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(1, 5);
    writer.text(2, "lo");
  });
  const Octets wanted = {32, 0, 0, 0, 0x01, 0x14, 1, 0, 7, 0, 0, 0, 42, 0, 0, 0,  // header
                         8,  0, 1, 0, 5,    0,    0, 0,                           // number
                         7,  0, 2, 0, 'l',  'o',  0, 0};                          // text, with a NUL and padding
  CHECK(octets == wanted);
}

TEST_CASE("what is written is read again") {
  const Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.number<std::uint8_t>(1, 0xfe);
    writer.number<std::uint64_t>(2, 0x1122334455667788);
    const std::size_t nest = writer.begin_nest(3);
    writer.text(4, "");
    writer.text(5, "uverbs0");
    writer.end_nest(nest);
    writer.number<std::uint32_t>(6, 9);
  });
  OctetView rest = octets;
  const auto message = take_message(rest);
  REQUIRE(message);
  CHECK(rest.empty());
  CHECK(message->header.nlmsg_len == octets.size());
  CHECK(message->header.nlmsg_seq == 7);
  CHECK(message->header.nlmsg_pid == 42);
  CHECK(number_of<std::uint8_t>(find_attribute(message->payload, 1).value()) == 0xfe);
  CHECK(number_of<std::uint64_t>(find_attribute(message->payload, 2).value()) == 0x1122334455667788);
  CHECK(number_of<std::uint32_t>(find_attribute(message->payload, 6).value()) == 9);
  const auto nest = find_attribute(message->payload, 3);
  REQUIRE(nest);
  CHECK(text_of(find_attribute(*nest, 4).value()) == "");
  CHECK(text_of(find_attribute(*nest, 5).value()) == "uverbs0");
  CHECK_FALSE(find_attribute(message->payload, 5));
}

TEST_CASE("a length beyond the octets, or below a header, is no message and no attribute") {
  const Octets good = with_attributes([](NetlinkWriter& writer) { writer.number<std::uint32_t>(1, 5); });
  REQUIRE(good.size() == 24);
  for (const std::uint32_t length : {0U, 1U, 15U, 25U, 1000U, 0x7fffffffU, 0xffffffffU}) {
    Octets bad = good;
    std::memcpy(bad.data(), &length, sizeof length);
    OctetView rest = bad;
    CHECK_FALSE(take_message(rest));
    CHECK(rest.size() == bad.size());
  }
  for (const std::uint16_t length : {0, 1, 3, 9, 255, 65535}) {
    Octets bad = good;
    std::memcpy(bad.data() + 16, &length, sizeof length);
    OctetView rest = OctetView(bad).subspan(16);
    CHECK_FALSE(take_attribute(rest));
    CHECK(rest.size() == 8);
  }
}

TEST_CASE("every part of a message is read without a look beyond it") {
  const Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.text(1, "uiw_lo");
    writer.number<std::uint32_t>(2, 5);
  });
  for (std::size_t size = 0; size < octets.size(); ++size) {
    // A block of its own, so that sanitizers see what is behind its end.
    const Octets part(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(size));
    OctetView rest = part;
    CHECK_FALSE(take_message(rest));
    OctetView attributes = size > 16 ? OctetView(part).subspan(16) : OctetView();
    while (const auto attribute = take_attribute(attributes)) {
      text_of(attribute->value);
      number_of<std::uint64_t>(attribute->value);
    }
  }
}

TEST_CASE("messages without padding at the end of a datagram are read") {
  Octets octets = with_attributes([](NetlinkWriter& writer) { writer.number<std::uint8_t>(1, 5); });
  octets.resize(21);
  const std::uint32_t length = 21;
  std::memcpy(octets.data(), &length, sizeof length);
  OctetView rest = octets;
  const auto message = take_message(rest);
  REQUIRE(message);
  CHECK(rest.empty());
  CHECK(number_of<std::uint8_t>(find_attribute(message->payload, 1).value()) == 5);
}

TEST_CASE("numbers and texts that are too short are none") {
  const Octets three = {1, 2, 3};
  CHECK_FALSE(number_of<std::uint32_t>(three));
  CHECK(number_of<std::uint16_t>(three) == 0x0201);
  CHECK_FALSE(text_of(three));
  CHECK_FALSE(text_of({}));
}

TEST_CASE("of two attributes of a type the last one counts, and flags do not") {
  const Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(1, 5);
    writer.number<std::uint32_t>(1 | NLA_F_NET_BYTEORDER, 6);
  });
  CHECK(number_of<std::uint32_t>(find_attribute(OctetView(octets).subspan(16), 1).value()) == 6);
}

TEST_CASE("an attribute that is too long spoils its message") {
  NetlinkWriter text(kType, 0, 1, 1);
  text.text(1, std::string(65535, 'x'));
  CHECK(text.octets().empty());

  NetlinkWriter nest(kType, 0, 1, 1);
  const std::size_t place = nest.begin_nest(1);
  for (int i = 0; i < 3; ++i) nest.text(2, std::string(30000, 'x'));
  nest.end_nest(place);
  CHECK(nest.octets().empty());
}

TEST_CASE("datagrams are not larger than a reader's buffer, unless one message is") {
  const Octets small = with_attributes([](NetlinkWriter& writer) { writer.text(1, std::string(999, 'x')); });
  const Octets large = with_attributes([](NetlinkWriter& writer) { writer.text(1, std::string(9999, 'x')); });
  Datagrams datagrams;
  for (int i = 0; i < 5; ++i) datagrams.add(small);
  datagrams.add(large);
  datagrams.add(small);
  datagrams.close();
  datagrams.add(small);
  datagrams.close();
  const auto made = datagrams.take();
  REQUIRE(made.size() == 5);
  CHECK(made[0].size() == 3 * small.size());
  CHECK(made[1].size() == 2 * small.size());
  CHECK(made[2] == large);
  CHECK(made[3] == small);
  CHECK(made[4] == small);
}
