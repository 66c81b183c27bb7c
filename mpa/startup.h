// SPDX-License-Identifier: MIT
// Start-up of a connection (RFC 5044 section 7.1, RFC 6581): what the frames say, and what both sides then do.
// Frames in, frames out; the caller moves the octets and watches the clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpa/mpa_format.h"

namespace uiw::mpa {

// What the initiator sends first once the reply is there, so that the responder may send (RFC 6581 section 9).
enum class ReadyToReceive : std::uint8_t { none, fulpdu, write, read };

// What a side brings to the table.
struct Proposal {
  bool crc = true;
  unsigned revision = 2;
  unsigned ird = 0;
  unsigned ord = 0;
  std::vector<std::byte> private_data;  // of the consumer
  bool send_with_immediate = true;
};

// What the two frames come to.
struct Agreement {
  bool crc = true;
  unsigned revision = 2;
  unsigned ird = 0;  // incoming reads this side must hold
  unsigned ord = 0;  // outgoing reads this side may have outstanding
  // Initiator: what to send first. Responder: what it waits for before it sends; none means the first FPDU of any
  // kind (RFC 5044 section 7.1.2), which it must await in any case.
  ReadyToReceive rtr = ReadyToReceive::none;
  bool send_with_immediate = false;  // either side may send rdmap::Opcode::send_immediate
};

struct PeerSaid {
  unsigned ird = 0;
  unsigned ord = 0;
  bool read_depths_known = false;  // revision 1 carries none
  std::vector<std::byte> private_data;
  bool send_with_immediate = false;
};

enum class StartupError {
  none,
  invalid_frame,   // wrong key, kind, length or enhanced header: close, tell the consumer nothing
  markers_wanted,  // the peer insists on markers, which this side does not send
  revision,        // the peer rejected revision 2: call again with revision 1
  rejected,        // the consumer of the peer said no
  too_many_reads,  // the responder wants more than this side holds: Terminate LLP/MPA/0x06
  no_rtr,          // no ready-to-receive message both can do: Terminate LLP/MPA/0x07
};

// One frame as octets, no longer than kMaxStartupFrame.
std::vector<std::byte> request_frame(const Proposal& own);

// The responder's view of a request: `header` and the `header.pd_length` octets after it.
StartupError read_request(const StartupHeader& header, Octets pd, PeerSaid& said, EnhancedHeader& enhanced);

// The responder's answer. `agreement` is filled in.
std::vector<std::byte> reply_frame(const StartupHeader& request, const EnhancedHeader& enhanced, const Proposal& own,
                                   Agreement& agreement);
std::vector<std::byte> reject_frame(const StartupHeader& request, const std::vector<std::byte>& private_data);

// The initiator's view of the reply.
StartupError read_reply(const Proposal& own, const StartupHeader& header, Octets pd, PeerSaid& said,
                        Agreement& agreement);

}  // namespace uiw::mpa
