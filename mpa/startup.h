// SPDX-License-Identifier: MIT
// Connection start-up (RFC 5044 section 7.1, RFC 6581): what the request and reply frames say, and what the two sides
// agree on. The functions make and read frames; the caller sends and receives the octets and keeps the deadline. The
// functions have no state, so they are thread-safe; they throw std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpa/mpa_format.h"

namespace uiw::mpa {

// The ready-to-receive message: what the initiator sends first after the reply, so that the responder may send (RFC
// 6581 section 9).
enum class ReadyToReceive : std::uint8_t { none, fulpdu, write, read };

// What one side proposes.
struct Proposal {
  bool crc = true;
  unsigned revision = 2;
  unsigned ird = 0;
  unsigned ord = 0;
  std::vector<std::byte> private_data;  // without the enhanced header: the program's octets and those that uiw adds
  bool markers = false;                 // this side wants markers in what it receives (RFC 5044 section 4.3)
  // Whether this side can send and answer an RDMA Read as ready-to-receive message, as far as its ORD and IRD allow.
  bool read_as_rtr = true;
};

// Whether the peer is uiw, too: uiw has extensions of iWARP that it uses only towards another uiw. The headers of the
// start-up frames cannot say whether their sender is uiw, since all their unused bits are reserved. So, unless the peer
// of a connection can only be uiw, the first messages say it (rdmap::kHello).
enum class PeerKind : std::uint8_t { other, not_known, uiw };

// What the two ends have negotiated by their frames.
struct Agreement {
  bool crc = true;
  unsigned revision = 2;
  unsigned ird = 0;  // RDMA Reads and atomic operations of the peer that this side must accept at a time
  unsigned ord = 0;  // RDMA Reads and atomic operations that this side may have outstanding
  // Initiator: which message to send first. Responder: which message to expect first. The responder must not send
  // before the initiator's first FPDU has arrived (RFC 5044 section 7.1.2), but it does not insist that this FPDU is
  // the expected one.
  ReadyToReceive rtr = ReadyToReceive::none;
  PeerKind peer = PeerKind::other;
  // The peer's request has asked for FPDUs that are longer than a TCP segment (RFC 5044 section 4.5: a sender SHOULD
  // NOT send them, a receiver has to take them). uiw takes them from every peer, and no request of uiw asks for them.
  bool long_fpdus = false;
  bool marks = false;   // this side puts markers into what it sends
  bool marked = false;  // what this side receives has markers

  // Whether this side copies all payload that it sends (mpa::Framer::copies()).
  bool copies() const { return crc || marks; }

  bool operator==(const Agreement&) const = default;
};

// What the peer's frame says.
struct PeerSaid {
  unsigned ird = 0;
  unsigned ord = 0;
  bool read_depths_known = false;  // false: the frame has no enhanced header, hence no read depths
  std::vector<std::byte> private_data;
};

enum class StartupError {
  none,
  invalid_frame,   // wrong kind, revision, length or enhanced header: close without a message to the peer
  revision,        // the peer rejected revision 2: call again with revision 1
  rejected,        // the peer's consumer has rejected the connection
  too_many_reads,  // the responder's ORD exceeds our IRD: Terminate LLP/MPA/0x06 (RFC 6581 section 8)
  no_rtr,          // no ready-to-receive message suits both: Terminate LLP/MPA/0x07 (RFC 6581 section 8)
};

// The initiator's request (RFC 5044 section 7.1.1), at most kMaxStartupFrame octets.
std::vector<std::byte> request_frame(const Proposal& own);

// For the responder: reads a request, `header` and the `header.pd_length` octets `pd` after it. Fills in `said` and
// `enhanced`.
StartupError read_request(const StartupHeader& header, Octets pd, PeerSaid& said, EnhancedHeader& enhanced);

// The responder's reply and rejection. reply_frame() fills in `agreement`.
std::vector<std::byte> reply_frame(const StartupHeader& request, const EnhancedHeader& enhanced, const Proposal& own,
                                   Agreement& agreement);
std::vector<std::byte> reject_frame(const StartupHeader& request, const std::vector<std::byte>& private_data);

// For the initiator: reads the reply, `header` and the octets `pd` after it. Fills in `said` and `agreement`.
StartupError read_reply(const Proposal& own, const StartupHeader& header, Octets pd, PeerSaid& said,
                        Agreement& agreement);

}  // namespace uiw::mpa
