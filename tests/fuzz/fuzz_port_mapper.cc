// SPDX-License-Identifier: MIT
// Messages of the port mapper: whatever comes is refused or read, and what is read is encoded as octets that say the
// same.
#include <cstdint>
#include <cstdlib>

#include "provider/connect/mapper/port_mapper_format.h"

using namespace uiw::provider;

namespace {

void check(bool condition) {
  if (!condition) std::abort();
}

bool same(const sockaddr_storage& one, const sockaddr_storage& other) {
  return std::memcmp(&one, &other, sizeof one) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = decode_port_mapper(std::as_bytes(std::span(data, size)));
  if (!message) return 0;
  check(message->called.ss_family == AF_INET || message->called.ss_family == AF_INET6);
  check(message->caller.ss_family == message->called.ss_family);
  const EncodedPortMapper encoded = encode(*message);
  check(encoded.size <= encoded.room.size());
  const auto again = decode_port_mapper(encoded.octets());
  check(again.has_value());
  check(again->kind == message->kind && again->space == message->space && again->time == message->time);
  check(again->association == message->association);
  check(same(again->caller, message->caller) && same(again->called, message->called));
  return 0;
}
