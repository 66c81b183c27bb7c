// SPDX-License-Identifier: MIT
// Datagrams of UD queue pairs, and look-ups of rdma_cm's port space UDP: what is taken is what an encoder makes. The
// first octet says which of the two it is, and whether the CRC is mended, since chance does not find the right one.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "mpa/crc32c.h"
#include "provider/connect/lookup/lookup_format.h"
#include "provider/datagram/datagram_format.h"

using namespace uiw;

namespace {

constexpr std::size_t kCrcSize = 4;

void check(bool condition) {
  if (!condition) std::abort();
}

void mend_crc(std::vector<std::byte>& octets) {
  if (octets.size() < kCrcSize) return;
  mpa::Crc32c crc;
  crc.add(Octets(octets).first(octets.size() - kCrcSize));
  mpa::store_crc(octets.data() + octets.size() - kCrcSize, crc.value());
}

void datagram(Octets octets) {
  const provider::DecodedDatagram decoded = provider::decode_datagram(octets);
  if (decoded.error != provider::DatagramError::none) return;
  check(decoded.payload.size() == octets.size() - provider::kDatagramOverhead);
  check(decoded.payload.data() == octets.data() + provider::kDatagramHeaderSize);
  const provider::DatagramHeaderOctets again = provider::encode(decoded.header);
  std::vector<std::byte> whole(again.begin(), again.end());
  whole.insert(whole.end(), decoded.payload.begin(), decoded.payload.end());
  whole.resize(whole.size() + kCrcSize);
  mend_crc(whole);
  const provider::DecodedDatagram second = provider::decode_datagram(whole);
  check(second.error == provider::DatagramError::none && second.header == decoded.header);
}

void lookup(Octets octets) {
  const auto decoded = provider::decode_lookup(octets);
  if (!decoded) return;
  const provider::EncodedLookup again = provider::encode(*decoded);
  check(std::equal(octets.begin(), octets.end(), again.octets().begin(), again.octets().end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Octets input = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> octets(input.begin(), input.end());
  if ((data[0] & 1) != 0) mend_crc(octets);
  if ((data[0] & 2) != 0)
    lookup(octets);
  else
    datagram(octets);
  return 0;
}
