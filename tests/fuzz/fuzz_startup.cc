// SPDX-License-Identifier: MIT
// Start-up frames (RFC 5044 section 7.1, RFC 6581): whatever a peer says, both sides come to an answer that holds.
#include <cstdlib>

#include "mpa/startup.h"

using namespace uiw;
using namespace uiw::mpa;

namespace {
void check(bool condition) {
  if (!condition) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  Proposal own;
  own.crc = (data[0] & 1) != 0;
  own.revision = (data[0] & 2) != 0 ? 2 : 1;
  own.ird = data[1];
  own.ord = data[2];
  const Octets frame = std::as_bytes(std::span(data + 3, size - 3));
  const auto header = decode_startup_header(frame);
  if (!header || frame.size() < kStartupHeaderSize + header->pd_length) return 0;
  const Octets pd = frame.subspan(kStartupHeaderSize, header->pd_length);

  std::byte again[kStartupHeaderSize];
  encode(*header, again);
  check(decode_startup_header(again) == header);

  PeerSaid said;
  EnhancedHeader enhanced;
  Agreement agreement;
  if (read_request(*header, pd, said, enhanced) == StartupError::none) {
    own.private_data = said.private_data;
    const auto reply = reply_frame(*header, enhanced, own, agreement);
    check(reply.size() <= kMaxStartupFrame);
    const auto back = decode_startup_header(reply);
    check(back && back->kind == FrameKind::reply && reply.size() == kStartupHeaderSize + back->pd_length);
    check(agreement.crc == (own.crc || header->crc) && agreement.ord <= own.ord && agreement.ird == own.ird);
    check(agreement.peer != PeerKind::uiw);
    if (agreement.rtr != ReadyToReceive::none) check(header->enhanced && enhanced.peer_to_peer);
    const auto reject = reject_frame(*header, said.private_data);
    check(decode_startup_header(reject).has_value());
  }
  PeerSaid heard;
  Agreement active;
  if (read_reply(own, *header, pd, heard, active) == StartupError::none) {
    check(active.ord <= own.ord && active.revision <= own.revision && (active.crc || !own.crc));
    check(active.rtr != ReadyToReceive::fulpdu);  // not offered
  }
  return 0;
}
