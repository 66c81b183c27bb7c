// SPDX-License-Identifier: MIT
#include "rdmap/error_text.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>

using namespace uiw::rdmap;

namespace {

Terminate terminate(unsigned layer, unsigned type, unsigned code) {
  Terminate terminate;
  terminate.layer = static_cast<Layer>(layer);
  terminate.type = static_cast<std::uint8_t>(type);
  terminate.code = static_cast<std::uint8_t>(code);
  return terminate;
}

std::string words(unsigned layer, unsigned type, unsigned code) {
  const TerminateText text = text_of(terminate(layer, type, code));
  return std::string(text.layer) + ": " + text.error;
}

}  // namespace

TEST_CASE("error text: Terminates have the words of RFC 5040 figure 9", "[error_text]") {
  CHECK(words(0, 0, 0x07) == "RDMAP: local catastrophic error");
  CHECK(words(0, 1, 0x00) == "RDMAP: invalid STag");
  CHECK(words(0, 1, 0x01) == "RDMAP: base or bounds violation");
  CHECK(words(0, 1, 0x02) == "RDMAP: access rights violation");
  CHECK(words(0, 1, 0x03) == "RDMAP: STag not associated with the stream");
  CHECK(words(0, 1, 0x04) == "RDMAP: tagged offset wraps");
  CHECK(words(0, 2, 0x05) == "RDMAP: invalid RDMAP version");
  CHECK(words(0, 2, 0x06) == "RDMAP: unexpected opcode");
  CHECK(words(0, 2, 0x09) == "RDMAP: STag cannot be invalidated");
  CHECK(words(0, 2, 0xFF) == "RDMAP: unspecified error");
}

TEST_CASE("error text: Terminates of DDP and MPA have the words of RFC 5041, RFC 5044 and RFC 6581", "[error_text]") {
  CHECK(words(1, 0, 0x00) == "DDP: local catastrophic error");
  CHECK(words(1, 1, 0x02) == "DDP: STag not associated with the stream");
  CHECK(words(1, 2, 0x02) == "DDP: no buffer for this message sequence number");
  CHECK(words(1, 2, 0x05) == "DDP: message too long for the posted receive");
  CHECK(words(2, 0, 0x02) == "MPA: MPA CRC of an FPDU is wrong");
  CHECK(words(2, 0, 0x06) == "MPA: insufficient IRD resources");
}

TEST_CASE("error text: what a peer makes up has words too", "[error_text]") {
  for (unsigned layer = 0; layer < 16; ++layer) {
    for (unsigned type = 0; type < 16; ++type) {
      for (unsigned code = 0; code < 256; ++code) {
        const TerminateText text = text_of(terminate(layer, type, code));
        REQUIRE((text.layer != nullptr && text.error != nullptr));
      }
    }
  }
  CHECK(words(3, 0, 0) == "an unknown layer: an unknown error");
  CHECK(words(0, 1, 0x40) == "RDMAP: an unknown error");
}

TEST_CASE("error text: each status has words of its own", "[error_text]") {
  std::set<std::string> seen;
  for (int i = 0; i <= static_cast<int>(Status::rnr_exceeded); ++i) seen.insert(text_of(static_cast<Status>(i)));
  CHECK(seen.size() == static_cast<std::size_t>(Status::rnr_exceeded) + 1);
}
