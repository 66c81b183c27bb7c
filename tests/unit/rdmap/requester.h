// SPDX-License-Identifier: MIT
// One end of a stream that follows the remote completion rule, and whose peer is the test.
#pragma once

#include "tests/unit/rdmap/pair.h"

namespace uiw::test {

struct Requester {
  End end;
  Bytes data = pattern(100), sink = Bytes(100), result = Bytes(8);
  std::vector<Bytes> out;  // ULPDUs sent, whole ones
  Bytes stream;
  std::unique_ptr<rdmap::OutgoingBatch> batch = std::make_unique<rdmap::OutgoingBatch>();

  explicit Requester(std::uint32_t ord = 4, std::uint32_t probe_slots = 1, std::uint32_t depth = 64,
                     std::size_t mulpdu = 1440)
      : end(1, depth) {
    end.start({.crc = false,
               .mulpdu = mulpdu,
               .ord = ord,
               .completion = rdmap::Completion::remote,
               .probe_slots = probe_slots});
  }
  void post(std::uint64_t id, bool signaled = true) {
    end.send(id, {memory_segment(data)});
    end.queue.at(end.queue.tail() - 1).signaled = signaled;
  }
  // One sendmsg, of which TCP takes so many octets. How many FPDUs it held.
  std::size_t go(std::size_t most = ~std::size_t{0}) {
    if (end.tx.fill(*batch) != rdmap::Transmitter::Fill::ready) return 0;
    const Bytes octets = gather(batch->fpdus.vectors(), most);
    end.tx.sent(*batch, octets.size());
    stream.insert(stream.end(), octets.begin(), octets.end());
    return batch->fpdus.fpdus();
  }
  // Which messages went out since the last time, a letter each: probe, read, and the others.
  std::string sent() {
    std::string text;
    for (const Bytes& ulpdu : ulpdus_of(stream, false)) {
      const auto opcode = std::to_integer<unsigned>(ulpdu[1]) & 15U;
      if (opcode == 1 || opcode == 10) CHECK(big_endian(Octets(ulpdu).subspan(10, 4)) == ++read_msn);
      if (opcode == 1) {
        text += big_endian(Octets(ulpdu).subspan(18 + 12, 4)) == 0 ? 'p' : 'r';
      } else {
        text += opcode == 0 ? 'w' : opcode == 3 ? 's' : opcode == 8 ? 'i' : opcode == 10 ? 'a' : '?';
      }
    }
    stream.clear();
    return text;
  }
  std::string all() {
    while (go() > 0) {
    }
    return sent();
  }
  // The peer answers the oldest request.
  void answer() {
    REQUIRE_FALSE(end.reads->outstanding.empty());
    end.tx.read_complete();
  }
  std::vector<std::uint64_t> good() const {
    std::vector<std::uint64_t> ids;
    for (const Sent& sent : end.sent) {
      if (sent.status == Status::success) ids.push_back(sent.id);
    }
    return ids;
  }
  std::uint64_t read_msn = 0;
};

using Ids = std::vector<std::uint64_t>;

}  // namespace uiw::test
