// SPDX-License-Identifier: MIT
// The rules of one connection. They are computed once, when a queue pair is connected, from what the two ends have
// negotiated (mpa::Agreement), the settings and the attributes of the queue pair, and do not change. Facts that are
// learnt later, such as the kind of the peer (SharedReads::peer), are not part of the rules.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpa/startup.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// When Sends and Writes complete. `local`: when TCP has taken the last octet (RFC 5040 section 5.5). `remote`: when the
// peer has placed the message, as on InfiniBand.
enum class Completion : std::uint8_t { local, remote };

struct ConnectionRules {
  bool initiator = true;  // this end sends the first frame of start-up
  // A manual connection: the program has connected the queue pair itself, with ibv_modify_qp and without rdma_cm. Both
  // ends are uiw and follow the rules of InfiniBand: if the peer goes away, the program learns of that only when work
  // that it has posted fails.
  bool manual = false;
  bool reliable = true;     // IBV_QPT_RC; on IBV_QPT_UC a message is lost if no receive is posted for it
  bool one_cq = false;      // sends and receives complete to the same completion queue
  bool xrc_target = false;  // the peer names the shared receive queue that its work is for (kSharedQueue)

  // ---- FPDUs ----
  unsigned revision = 2;  // of MPA
  bool crc = true;
  bool marks = false;          // this end puts markers into the FPDUs that it sends
  bool marked = false;         // the FPDUs that this end receives have markers
  bool shared_octets = false;  // this end may parse octets in shared memory, which the peer can still change
  // Not 0: the octets of an RDMA Write are sent in an order that depends on this number (transmit/disorder.h).
  std::uint32_t disorder = 0;
  // The largest ULPDU to send, in octets; `mulpdu_to_uiw` applies once the peer is known to be uiw.
  std::size_t mulpdu = 1440, mulpdu_to_uiw = 1440;

  // ---- The first messages ----
  // The ready-to-receive message (RFC 6581 section 9), which the initiator sends.
  mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;
  bool hello = false;                         // the ready-to-receive message says that this end is uiw (kHello)
  mpa::PeerKind peer = mpa::PeerKind::other;  // the kind of the peer, as far as start-up has shown it

  // ---- Requests and completions ----
  // How many RDMA Reads and atomic operations this end (ORD) and the peer (IRD) may have outstanding, as reported to
  // the program. The program may lower ORD.
  std::uint32_t ord = 0, ird = 0;
  // What start-up has negotiated for ORD (`requests_out`) and IRD (`requests_in`), up to a limit. These are at least
  // `ord` and `ird`, and may be greater, since uiw adds requests itself (probes, which are RDMA Reads of no octets).
  // The queues of SharedReads have room for these numbers of requests.
  std::uint32_t requests_out = 0, requests_in = 0;
  // `remote` has an effect only if the peer accepts RDMA Reads, since their answers show what the peer has placed; see
  // remote(). Otherwise Sends and Writes complete as with `local`.
  Completion completion = Completion::local;

  // The program is checked: the host is told of what is placed where (ReceiveHost::write_comes(), answer_comes()),
  // and carries out atomic operations (SendHost::execute()).
  bool watched = false;

  mpa::ReadyToReceive rtr_to_send() const { return initiator ? rtr : mpa::ReadyToReceive::none; }
  mpa::ReadyToReceive rtr_to_come() const { return initiator ? mpa::ReadyToReceive::none : rtr; }
  // Whether this end is the responder of an rdma_cm connection that waits for the initiator's first message, whatever
  // that is, since the two ends have agreed on no ready-to-receive message (RFC 5044 section 7.1.2).
  bool waits_for_any_message() const { return !initiator && !manual && rtr == mpa::ReadyToReceive::none; }
  // Whether this end copies all payload that it sends.
  bool copies() const { return crc || marks; }
  bool remote() const { return completion == Completion::remote && requests_out > 0; }
  // When the two ends, if both are uiw, tell each other how much work they have placed (rdmap_format.h).
  Reports reports() const { return manual ? Reports::always : Reports::on_request; }
  // Whether work that cannot be sent ends the connection with a Terminate. On a manual connection the peer is not told
  // of this error, as on InfiniBand.
  bool terminates_local_errors() const { return !manual; }
  // Whether an operation that the program has denied to the peer (ibv_modify_qp) is reported as an unexpected opcode.
  // It then completes at the peer as an invalid request, as on InfiniBand. Otherwise it is reported like an access with
  // an STag that lacks the right.
  bool denied_are_unexpected() const { return manual; }
};

}  // namespace uiw::rdmap
