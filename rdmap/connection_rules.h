// SPDX-License-Identifier: MIT
// What the two ends of a connection have agreed on, as this end keeps it. Computed once, when a queue pair gets its
// connection, from the frames of start-up (mpa::Agreement), the settings and the attributes of the queue pair; it does
// not change. What is found out later, such as the kind of the peer (SharedReads::peer), is not part of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpa/startup.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// When Sends and Writes complete: when TCP has taken the last octet (RFC 5040 section 5.5), or when the peer has placed
// them, as on InfiniBand.
enum class Completion : std::uint8_t { local, remote };

struct ConnectionRules {
  bool initiator = true;  // this end sends the first frame of start-up
  // A manual connection: the program has connected the queue pair itself, with ibv_modify_qp and without rdma_cm. Both
  // ends are uiw and keep to the rules of InfiniBand: if the peer goes away, the program learns of it only when work
  // that it has posted fails.
  bool manual = false;
  bool reliable = true;  // IBV_QPT_RC; on IBV_QPT_UC a message is lost if no receive is posted for it
  bool one_cq = false;   // sends and receives complete to the same completion queue

  // ---- FPDUs ----
  unsigned revision = 2;  // of MPA
  bool crc = true;
  bool marks = false;          // this end puts markers into what it sends
  bool marked = false;         // what it receives has markers
  bool shared_octets = false;  // octets may come from memory that the peer can change
  // The largest ULPDU to send, in octets; the second value counts once the peer is known to be uiw.
  std::size_t mulpdu = 1440, mulpdu_to_uiw = 1440;

  // ---- The first messages ----
  // The ready-to-receive message (RFC 6581 section 9), which the initiator sends.
  mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;
  bool hello = false;                         // that message says that this end is uiw
  mpa::PeerKind peer = mpa::PeerKind::other;  // as start-up has shown it

  // ---- Requests and completions ----
  // How many RDMA Reads and atomic operations may be outstanding, from this end and from the peer, as the program sees
  // it. The program may lower ORD.
  std::uint32_t ord = 0, ird = 0;
  // As `ord` and `ird`, plus requests of uiw's own (probes): what start-up has negotiated, and the room of SharedReads.
  std::uint32_t requests_out = 0, requests_in = 0;
  // `remote` only counts if the peer answers requests; otherwise Sends and Writes complete by the local rule.
  Completion completion = Completion::local;

  mpa::ReadyToReceive rtr_to_send() const { return initiator ? rtr : mpa::ReadyToReceive::none; }
  mpa::ReadyToReceive rtr_to_come() const { return initiator ? mpa::ReadyToReceive::none : rtr; }
  // Whether a responder has to wait for the first message of its peer, since nothing else shows that it may send.
  bool waits_for_any_message() const { return !initiator && !manual && rtr == mpa::ReadyToReceive::none; }
  // Whether this end copies all payload that it sends.
  bool copies() const { return crc || marks; }
  bool remote() const { return completion == Completion::remote && requests_out > 0; }
  // When the two ends send progress reports and RNR reports.
  Reports reports() const { return manual ? Reports::always : Reports::on_request; }
  // Whether work that cannot be sent ends the connection with a Terminate. On InfiniBand the peer does not learn of it.
  bool terminates_local_errors() const { return !manual; }
  // Whether an operation that the program has denied to the peer (ibv_modify_qp) counts as unexpected, as on
  // InfiniBand, and not as an access without the right to it.
  bool denied_are_unexpected() const { return manual; }
};

}  // namespace uiw::rdmap
