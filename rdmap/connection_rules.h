// SPDX-License-Identifier: MIT
// What the two ends of a connection have agreed on, as this end keeps it. It is computed once, when a queue pair gets
// its connection, from the frames of start-up (mpa::Agreement), the settings and the attributes of the queue pair, and
// does not change. What turns out later, as the kind of the peer (SharedReads::peer), is no rule.
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
  bool initiator = true;  // of start-up: it sends first
  // A manual connection: both ends are uiw, and keep to the rules of InfiniBand. There only work that cannot get to the
  // peer shows that the connection has ended.
  bool manual = false;
  bool reliable = true;  // IBV_QPT_RC; on IBV_QPT_UC a message that meets no receive is lost
  bool one_cq = false;   // sends and receives complete to the same completion queue

  // ---- FPDUs ----
  unsigned revision = 2;  // of MPA
  bool crc = true;
  bool marks = false;          // this end puts markers into what it sends
  bool marked = false;         // what it receives has markers
  bool shared_octets = false;  // octets may come from memory that the peer can change
  // The largest ULPDU to send, in octets; and once the peer is known to be uiw.
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
  // The same with requests of uiw's own (probes), which start-up has negotiated: the room of SharedReads.
  std::uint32_t requests_out = 0, requests_in = 0;
  // `remote` where the peer answers requests; else Sends and Writes complete by the local rule all the same.
  Completion completion = Completion::local;

  mpa::ReadyToReceive rtr_to_send() const { return initiator ? rtr : mpa::ReadyToReceive::none; }
  mpa::ReadyToReceive rtr_to_come() const { return initiator ? mpa::ReadyToReceive::none : rtr; }
  // Whether a responder waits for the first message of its peer, and nothing else shows that the peer may be sent to.
  bool waits_for_any_message() const { return !initiator && !manual && rtr == mpa::ReadyToReceive::none; }
  // Whether this end copies all payload that it sends.
  bool copies() const { return crc || marks; }
  bool remote() const { return completion == Completion::remote && requests_out > 0; }
  // When the peer sends progress reports and RNR reports, and this end does.
  Reports reports() const { return manual ? Reports::always : Reports::on_request; }
  // Whether work that cannot be sent ends the connection with a Terminate. On InfiniBand the peer does not learn of it.
  bool terminates_local_errors() const { return !manual; }
  // Whether what the program has denied to the peer (ibv_modify_qp) is an operation that this end does not expect, as
  // on InfiniBand, and not an access without the right to it.
  bool denied_are_unexpected() const { return manual; }
};

}  // namespace uiw::rdmap
