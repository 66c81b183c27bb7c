// SPDX-License-Identifier: MIT
// Sources: none but the header, and libnl. Octets are written as the kernel on a little-endian machine writes them.
#include "kernel-abi/netlink/netlink_format.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

using namespace uiw::kernel_abi;

namespace {

constexpr unsigned kType = 0x1401;

Octets with_attributes(void (*write)(NetlinkWriter&)) {
  NetlinkWriter writer(kType, NLM_F_REQUEST, 7, 42);
  write(writer);
  return {writer.octets().begin(), writer.octets().end()};
}

// An attribute of type 1 that is no part of a message.
struct Attribute {
  nlattr header;
  char value[8];
};
Attribute attribute(std::string_view value) {
  Attribute made = {{static_cast<std::uint16_t>(sizeof(nlattr) + value.size()), 1}, {}};
  std::copy(value.begin(), value.end(), made.value);
  return made;
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
  Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.number<std::uint8_t>(1, 0xfe);
    writer.number<std::uint64_t>(2, 0x1122334455667788);
    nlattr* const nest = writer.begin_nest(3);
    writer.text(4, "");
    writer.text(5, "uverbs0");
    writer.end_nest(nest);
    writer.number<std::uint32_t>(6, 9);
  });
  const auto messages = messages_in(octets);
  REQUIRE(messages.size() == 1);
  CHECK(messages[0]->nlmsg_len == octets.size());
  CHECK(messages[0]->nlmsg_seq == 7);
  CHECK(messages[0]->nlmsg_pid == 42);
  CHECK(octets_of(messages[0]).data() == octets.data());
  CHECK(octets_of(messages[0]).size() == octets.size());
  const NetlinkAttributes found = attributes_of(messages[0]);
  CHECK(number_of<std::uint8_t>(found[1]) == 0xfe);
  CHECK(number_of<std::uint64_t>(found[2]) == 0x1122334455667788);
  CHECK(number_of<std::uint32_t>(found[6]) == 9);
  REQUIRE(found[3] != nullptr);
  CHECK(found[3]->nla_type == 3);  // without NLA_F_NESTED
  NetlinkAttributes nested{};
  REQUIRE(nla_parse_nested(nested.data(), nested.size() - 1, found[3], nullptr) == 0);
  CHECK(text_of(nested[4]) == "");
  CHECK(text_of(nested[5]) == "uverbs0");
  CHECK(found[5] == nullptr);
}

TEST_CASE("a length beyond the octets, or below a header, is no message and no attribute") {
  const Octets good = with_attributes([](NetlinkWriter& writer) { writer.number<std::uint32_t>(1, 5); });
  REQUIRE(good.size() == 24);
  for (const std::uint32_t length : {0U, 1U, 15U, 25U, 1000U, 0x7fffffffU, 0xffffffffU}) {
    Octets bad = good;
    std::memcpy(bad.data(), &length, sizeof length);
    CHECK(messages_in(bad).empty());
  }
  for (const std::uint16_t length : {0, 1, 3, 9, 255, 65535}) {
    Octets bad = good;
    std::memcpy(bad.data() + 16, &length, sizeof length);
    CHECK(attributes_of(messages_in(bad).at(0)) == NetlinkAttributes{});
  }
}

TEST_CASE("every part of a message is read without a look beyond it") {
  const Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.text(1, "uiw_lo");
    writer.number<std::uint32_t>(2, 5);
  });
  for (std::uint32_t size = 0; size < octets.size(); ++size) {
    // A block of its own, so that sanitizers see what is behind its end.
    Octets part(octets.begin(), octets.begin() + size);
    CHECK(messages_in(part).empty());
    if (size < sizeof size) continue;
    std::memcpy(part.data(), &size, sizeof size);
    for (nlmsghdr* message : messages_in(part)) {
      for (const nlattr* attribute : attributes_of(message)) {
        text_of(attribute);
        number_of<std::uint64_t>(attribute);
      }
    }
  }
}

TEST_CASE("messages without padding at the end of a datagram are read") {
  Octets octets = with_attributes([](NetlinkWriter& writer) { writer.number<std::uint8_t>(1, 5); });
  octets.resize(21);
  const std::uint32_t length = 21;
  std::memcpy(octets.data(), &length, sizeof length);
  const auto messages = messages_in(octets);
  REQUIRE(messages.size() == 1);
  CHECK(number_of<std::uint8_t>(attributes_of(messages[0])[1]) == 5);
}

TEST_CASE("numbers and texts that are too short are none") {
  const Attribute three = attribute("\1\2\3"), none = attribute("");
  CHECK_FALSE(number_of<std::uint32_t>(&three.header));
  CHECK(number_of<std::uint16_t>(&three.header) == 0x0201);
  CHECK_FALSE(text_of(&three.header));
  CHECK_FALSE(text_of(&none.header));
  CHECK_FALSE(number_of<std::uint8_t>(nullptr));
  CHECK_FALSE(text_of(nullptr));
}

TEST_CASE("of two attributes of a type the last one counts, and flags do not") {
  Octets octets = with_attributes([](NetlinkWriter& writer) {
    writer.number<std::uint32_t>(1, 5);
    writer.number<std::uint32_t>(1 | NLA_F_NET_BYTEORDER, 6);
  });
  CHECK(number_of<std::uint32_t>(attributes_of(messages_in(octets).at(0))[1]) == 6);
}

TEST_CASE("what finds no room in a message is refused as where memory is short") {
  NetlinkWriter text(kType, 0, 1, 1);
  CHECK_THROWS_AS(text.text(1, std::string(65535, 'x')), std::bad_alloc);

  NetlinkWriter nest(kType, 0, 1, 1);
  nest.begin_nest(1);
  nest.text(2, std::string(8000, 'x'));
  CHECK_THROWS_AS(nest.text(2, std::string(300, 'x')), std::bad_alloc);
  CHECK_THROWS_AS(nest.raw(std::string(300, 'x').data(), 300), std::bad_alloc);
}

TEST_CASE("datagrams are not larger than a reader's buffer, unless one message is") {
  const Octets small = with_attributes([](NetlinkWriter& writer) { writer.text(1, std::string(999, 'x')); });
  const Octets large(10020);
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
