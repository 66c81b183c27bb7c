// SPDX-License-Identifier: MIT
// Greetings of manual connections, in the private data that any peer may send: whatever comes is refused or read, and
// what is read is encoded as octets that say the same.
#include <cstdint>

#include "provider/connect/manual/greeting_format.h"
#include "tests/fuzz/stream/check.h"

using namespace uiw::provider;
using uiw::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto greeting = decode_pair_greeting(std::as_bytes(std::span(data, size)));
  if (!greeting) return 0;
  const PairOctets encoded = encode(*greeting);
  check(decode_pair_greeting(encoded) == greeting);
  check(!decode_pair_greeting(encode(*greeting, PairRefusal::no_such_qp)));
  return 0;
}
