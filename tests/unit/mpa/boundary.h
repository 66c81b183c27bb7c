// SPDX-License-Identifier: MIT
// Whether a deframer is between two FPDUs, the place where a peer may close in good order.
#pragma once

#include <algorithm>

#include "mpa/deframer.h"
#include "tests/unit/octets.h"

namespace uiw::test {

// Between two it takes another FPDU as such. The deframer is given one, so the stream is not to be continued behind it.
inline bool at_boundary(mpa::Deframer& deframer) {
  struct Sink final : mpa::UlpduSink {
    const Bytes body = pattern(40, 99);
    bool whole = false;
    Verdict ulpdu(Octets piece, std::size_t offset, std::size_t) override {
      whole = offset == 0 && std::equal(piece.begin(), piece.end(), body.begin(), body.end());
      return Verdict::go_on;
    }
  } sink;
  const auto outcome = deframer.receive(fpdu(sink.body, true), sink);
  return outcome.result == mpa::Deframer::Result::more && sink.whole;
}

}  // namespace uiw::test
