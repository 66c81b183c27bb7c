// SPDX-License-Identifier: MIT
// Terminate headers (RFC 5040 section 4.8): what is decoded can be encoded again and says the same.
#include <algorithm>
#include <cstdlib>

#include "rdmap/rdmap_format.h"

using namespace uiw;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto terminate = rdmap::decode_terminate(std::as_bytes(std::span(data, size)));
  if (!terminate) return 0;
  std::byte out[rdmap::kMaxTerminate];
  const std::size_t written = rdmap::encode(*terminate, out);
  if (written > size || written > sizeof out) std::abort();
  const auto again = rdmap::decode_terminate({out, written});
  if (!again || again->layer != terminate->layer || again->type != terminate->type || again->code != terminate->code ||
      again->has_ddp_header != terminate->has_ddp_header || again->ddp_header != terminate->ddp_header ||
      again->has_read_request != terminate->has_read_request || again->read_request != terminate->read_request) {
    std::abort();
  }
  return 0;
}
