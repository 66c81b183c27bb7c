// SPDX-License-Identifier: MIT
// RFC 5044 section 7.1 (frames and their exchange), RFC 6581 section 9 (enhanced header, read depths, peer-to-peer
// mode).
#include "mpa/startup.h"

#include <algorithm>

namespace uiw::mpa {

namespace {

std::uint16_t depth_field(unsigned depth) { return static_cast<std::uint16_t>(std::min(depth, kMaxReadDepth)); }

std::vector<std::byte> frame(StartupHeader header, const EnhancedHeader* enhanced,
                             const std::vector<std::byte>& private_data) {
  const std::size_t extra = enhanced != nullptr ? kEnhancedHeaderSize : 0;
  const std::size_t size = std::min(private_data.size(), kMaxPdLength - extra);
  header.pd_length = static_cast<std::uint16_t>(extra + size);
  header.enhanced = enhanced != nullptr;
  std::vector<std::byte> octets(kStartupHeaderSize + extra + size);
  encode(header, octets.data());
  if (enhanced != nullptr) encode(*enhanced, octets.data() + kStartupHeaderSize);
  std::copy_n(private_data.begin(), size, octets.begin() + static_cast<std::ptrdiff_t>(kStartupHeaderSize + extra));
  return octets;
}

// An RDMA Read that is the ready-to-receive message counts against ORD like any other RDMA Read, so it needs an ORD of
// at least 1.
bool offers_read_as_rtr(const Proposal& own) { return own.read_as_rtr && own.ord > 0; }

// What is known of the peer's kind after start-up. An RDMA Write or Read as ready-to-receive message can say that its
// sender is uiw (rdmap::kHello), so the kind is not known yet. An empty FPDU cannot say this. So if the
// ready-to-receive message is an empty FPDU, or if there is none, the peer counts as `other`.
PeerKind peer_after(ReadyToReceive rtr) {
  return rtr == ReadyToReceive::write || rtr == ReadyToReceive::read ? PeerKind::not_known : PeerKind::other;
}

// Splits private data into the enhanced header, if there is one, and the rest, which becomes `said.private_data`. False
// if the length of the private data is wrong, or the enhanced header is cut short.
bool split(const StartupHeader& header, Octets pd, PeerSaid& said, EnhancedHeader& enhanced) {
  if (pd.size() != header.pd_length) return false;
  if (header.enhanced && header.revision >= 2) {  // in revision 1 the flag is reserved, hence ignored
    const auto decoded = decode_enhanced_header(pd);
    if (!decoded) return false;
    enhanced = *decoded;
    pd = pd.subspan(kEnhancedHeaderSize);
    said.read_depths_known = true;
    said.ird = enhanced.ird;
    said.ord = enhanced.ord;
  }
  said.private_data.assign(pd.begin(), pd.end());
  return true;
}

}  // namespace

std::vector<std::byte> request_frame(const Proposal& own) {
  StartupHeader header;
  header.kind = FrameKind::request;
  header.markers = own.markers;
  header.crc = own.crc;
  header.revision = static_cast<std::uint8_t>(own.revision);
  if (own.revision < 2) return frame(header, nullptr, own.private_data);
  EnhancedHeader enhanced;
  enhanced.peer_to_peer = true;  // verbs programs may send first from either side
  enhanced.rtr_write = true;
  enhanced.rtr_read = offers_read_as_rtr(own);
  enhanced.ird = depth_field(own.ird);
  enhanced.ord = depth_field(own.ord);
  return frame(header, &enhanced, own.private_data);
}

StartupError read_request(const StartupHeader& header, Octets pd, PeerSaid& said, EnhancedHeader& enhanced) {
  if (header.kind != FrameKind::request) return StartupError::invalid_frame;
  if (!split(header, pd, said, enhanced)) return StartupError::invalid_frame;
  return StartupError::none;
}

std::vector<std::byte> reply_frame(const StartupHeader& request, const EnhancedHeader& enhanced, const Proposal& own,
                                   Agreement& agreement) {
  StartupHeader header;
  header.kind = FrameKind::reply;
  header.revision = request.revision;
  header.markers = own.markers;
  // One flag decides on CRC for both directions: CRC is on if either side wants it (RFC 5044 section 7.1).
  header.crc = own.crc || request.crc;
  agreement.crc = header.crc;
  agreement.marks = request.markers;
  agreement.marked = own.markers;
  agreement.long_fpdus = header.long_fpdus = request.long_fpdus;
  agreement.revision = request.revision;
  agreement.ird = own.ird;
  agreement.ord = own.ord;
  agreement.rtr = ReadyToReceive::none;
  if (!request.enhanced || request.revision < 2) return frame(header, nullptr, own.private_data);

  EnhancedHeader reply;
  if (enhanced.ird != kReadDepthNotNegotiated) agreement.ord = std::min<unsigned>(agreement.ord, enhanced.ird);
  // The IRD of the reply answers the ORD of the request, and the ORD of the reply answers the IRD of the request. A
  // depth that the request does not negotiate is not negotiated by the reply either (RFC 6581 section 9.1).
  if (enhanced.ord != kReadDepthNotNegotiated) reply.ird = depth_field(own.ird);
  if (enhanced.ird != kReadDepthNotNegotiated) reply.ord = depth_field(agreement.ord);
  if (enhanced.peer_to_peer) {
    reply.peer_to_peer = true;
    if (enhanced.rtr_write) {
      agreement.rtr = ReadyToReceive::write;
    } else if (enhanced.rtr_read && own.read_as_rtr && own.ird > 0) {
      agreement.rtr = ReadyToReceive::read;
    } else if (enhanced.rtr_fulpdu) {
      agreement.rtr = ReadyToReceive::fulpdu;
    } else {
      reply.peer_to_peer = false;  // no ready-to-receive message of the request suits: client-server mode is used, in
                                   // which the initiator sends first
    }
    reply.rtr_write = agreement.rtr == ReadyToReceive::write;
    reply.rtr_read = agreement.rtr == ReadyToReceive::read;
    reply.rtr_fulpdu = agreement.rtr == ReadyToReceive::fulpdu;
    agreement.peer = peer_after(agreement.rtr);
  }
  return frame(header, &reply, own.private_data);
}

std::vector<std::byte> reject_frame(const StartupHeader& request, const std::vector<std::byte>& private_data) {
  StartupHeader header;
  header.kind = FrameKind::reply;
  header.revision = request.revision;
  header.crc = request.crc;
  header.rejected = true;
  if (!request.enhanced || request.revision < 2) return frame(header, nullptr, private_data);
  EnhancedHeader none;
  none.ird = 0;
  none.ord = 0;
  return frame(header, &none, private_data);
}

StartupError read_reply(const Proposal& own, const StartupHeader& header, Octets pd, PeerSaid& said,
                        Agreement& agreement) {
  if (header.kind != FrameKind::reply) return StartupError::invalid_frame;
  EnhancedHeader enhanced;
  if (header.revision > own.revision || !split(header, pd, said, enhanced)) return StartupError::invalid_frame;
  if (header.rejected) {
    // A peer that knows only revision 1 rejects the request with a frame of revision 1.
    return header.revision < own.revision ? StartupError::revision : StartupError::rejected;
  }
  agreement.crc = own.crc || header.crc;
  agreement.marks = header.markers;
  agreement.marked = own.markers;
  agreement.revision = header.revision;
  agreement.ird = own.ird;
  agreement.ord = own.ord;
  agreement.rtr = ReadyToReceive::none;
  if (!header.enhanced || header.revision < 2) return StartupError::none;
  // The responder knows our IRD, and its ORD must not exceed our IRD.
  if (enhanced.ord != kReadDepthNotNegotiated && enhanced.ord > own.ird) return StartupError::too_many_reads;
  if (enhanced.ird != kReadDepthNotNegotiated) agreement.ord = std::min<unsigned>(own.ord, enhanced.ird);
  if (enhanced.peer_to_peer) {
    if (enhanced.rtr_write) {
      agreement.rtr = ReadyToReceive::write;
    } else if (enhanced.rtr_read && offers_read_as_rtr(own)) {
      agreement.rtr = ReadyToReceive::read;
    } else {
      return StartupError::no_rtr;
    }
    agreement.peer = peer_after(agreement.rtr);
  }
  return StartupError::none;
}

}  // namespace uiw::mpa
