// SPDX-License-Identifier: MIT
// JSON (RFC 8259), tables, addresses and the version as text.
#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <limits>

#include "base/json.h"
#include "tools/address.h"
#include "tools/table.h"
#include "tools/version/version.h"

using namespace uiw;
using namespace uiw::tools;

namespace {

uiw::provider::Gid gid(const char* text) {
  uiw::provider::Gid made{};
  REQUIRE(inet_pton(AF_INET6, text, made.data()) == 1);
  return made;
}

}  // namespace

TEST_CASE("json: strings are UTF-8 without control characters") {
  CHECK(json_string("plain") == R"("plain")");
  CHECK(json_string("a\"b\\c\n\x7f") == R"("a\"b\\c\u000a\u007f")");
  CHECK(json_string("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") == "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
  CHECK(json_string("\xff"
                    "a\xc3") == R"("\ufffda\ufffd")");
  for (const char* wrong : {"\xc0\x80", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    std::string each = "\"";
    for (std::size_t i = 0; wrong[i] != '\0'; ++i) each += "\\ufffd";
    CHECK(json_string(wrong) == each + '"');  // overlong forms, a surrogate, a number that is too large
  }
  for (const char* right : {"\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(json_string(right) == '"' + std::string(right) + '"');
}

TEST_CASE("json: other values") {
  CHECK(json_number(0.5) == "0.5");
  CHECK(json_number(3) == "3");
  CHECK(json_number(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(json_bool(true) == "true");
  CHECK(json_array({}) == "[]");
  CHECK(json_array({"1", "null"}) == "[1, null]");
  CHECK(json_object({}) == "{}");
  CHECK(json_object({{"a", "1"}, {"b", json_array({"2"})}}) == R"({"a": 1, "b": [2]})");
}

TEST_CASE("table: columns are as wide as their widest cell") {
  CHECK(aligned({{"A", "BBB", "C"}, {"aaaa", "b", ""}}) == "A     BBB  C\naaaa  b    \n");
  CHECK(aligned({{"ONE"}}) == "ONE\n");
}

TEST_CASE("address: a GID as text, and the IP address that it stands for") {
  CHECK(address_text(gid("::ffff:192.0.2.1")) == "192.0.2.1");
  CHECK(address_text(gid("2001:db8::1")) == "2001:db8::1");
  CHECK(gid_text(gid("::ffff:192.0.2.1")) == "0000:0000:0000:0000:0000:ffff:c000:0201");
}

TEST_CASE("version: with the commit in parentheses, where it is known") {
  const std::string plain = std::string("uiw ") + uiw::kVersion;
  CHECK(version_text("") == plain);
  CHECK(version_text("0123456789ab+changes") == plain + " (0123456789ab+changes)");
}
