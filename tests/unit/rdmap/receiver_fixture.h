// SPDX-License-Identifier: MIT
// Segments as a peer may send them, and a receiver that is given them.
#pragma once

#include <catch2/catch.hpp>

#include "rdmap/receiver.h"
#include "tests/unit/rdmap/pair.h"

namespace uiw::test {

constexpr unsigned kWrite = 0x40, kReadRequest = 0x41, kReadResponse = 0x42, kSend = 0x43, kSendInvalidate = 0x44,
                   kTerminate = 0x47;

// `control`: the RDMAP octet. `ddp`: T, L and DV.
inline Bytes tagged(unsigned control, std::uint32_t stag, std::uint64_t offset, Octets payload, unsigned ddp = 0xC1) {
  return Wire().u8(ddp).u8(control).u32(stag).u64(offset).add(payload);
}
inline Bytes untagged(unsigned control, std::uint32_t queue, std::uint32_t msn, std::uint32_t mo, Octets payload,
                      unsigned ddp = 0x41, std::uint32_t word = 0) {
  return Wire().u8(ddp).u8(control).u32(word).u32(queue).u32(msn).u32(mo).add(payload);
}
inline Bytes read_request(std::uint32_t msn, std::uint32_t size, std::uint32_t stag, std::uint64_t offset,
                          std::uint64_t sink_offset = 0x500) {
  return untagged(kReadRequest, 1, msn, 0, Wire().u32(0x1234).u64(sink_offset).u32(size).u32(stag).u64(offset).bytes());
}

struct ReceiverFixture {
  End end{77};
  Bytes memory = Bytes(4096), read_only = pattern(4096), local_only = Bytes(64), foreign = Bytes(64);
  int other_domain = 0;
  std::uint32_t writable = 0, readable = 0, local = 0, foreign_stag = 0;
  ReceiverFixture() {
    end.start({.ord = 2, .ird = 2});
    writable = static_cast<std::uint32_t>(end.expose(memory, ddp::kLocalWrite | ddp::kRemoteWrite, 0x10000));
    readable = static_cast<std::uint32_t>(end.expose(read_only, ddp::kRemoteRead, 0x20000));
    local = static_cast<std::uint32_t>(end.expose(local_only, ddp::kLocalWrite, 0));
    foreign_stag = static_cast<std::uint32_t>(
        end.expose(foreign, ddp::kLocalWrite | ddp::kRemoteWrite | ddp::kRemoteRead, 0, &other_domain));
  }
  mpa::UlpduSink::Verdict give(const Bytes& ulpdu) { return end.give(ulpdu); }

  // The ULPDU is refused, and a Terminate brings back these codes and the headers asked for.
  void refused(const Bytes& ulpdu, unsigned layer, unsigned type, unsigned code, bool ddp_header = true,
               bool read_header = false) {
    REQUIRE(give(ulpdu) == mpa::UlpduSink::Verdict::stop);
    terminates(ulpdu, layer, type, code, ddp_header, read_header);
  }
  void terminates(const Bytes& ulpdu, unsigned layer, unsigned type, unsigned code, bool ddp_header, bool read_header) {
    REQUIRE(end.rx.error());
    CHECK_FALSE(end.rx.peer_terminate());
    end.tx.terminate(*end.rx.error());
    const auto out = ulpdus_of(take_all(end), true);
    REQUIRE(out.size() == 1);
    // RFC 5040 sections 4.8 and 5.4: queue 2, MSN 1, one segment.
    const std::size_t header = (ulpdu[0] & std::byte{0x80}) != std::byte{0} ? 14 : 18;
    Wire expected;
    expected.u8(0x41).u8(kTerminate).u32(0).u32(2).u32(1).u32(0);
    expected.u8(layer << 4 | type).u8(code).u16((ddp_header ? 0xC000U : 0U) | (read_header ? 0x2000U : 0U));
    if (ddp_header) expected.u16(static_cast<unsigned>(ulpdu.size())).add(Octets(ulpdu).first(header));
    if (read_header) expected.add(Octets(ulpdu).subspan(18, 28));
    CHECK(out[0] == expected.bytes());
    CHECK(end.tx.terminate_sent());
    CHECK_FALSE(end.tx.pending());
  }
};

}  // namespace uiw::test
