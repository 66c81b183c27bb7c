// SPDX-License-Identifier: MIT
// Where in its work a sender stands. A value: a batch has two of them for each FPDU, so that it can be taken back in
// part.
#pragma once

#include <cstdint>

#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// How much work stands before a place in the stream, and how much of it the peer is to confirm: its answer to an RDMA
// Read, to an atomic operation or to a probe says that all work before that has been placed (RFC 5040 section 5.5).
struct Placement {
  static constexpr std::uint64_t kWeightOfWork = 64;  // beside its octets

  std::uint64_t weight = 0;            // of the work before, in octets
  std::uint64_t requested_weight = 0;  // so much of that a request stands behind...
  std::uint64_t requested_before = 0;  // ...which is the work before this entry
  std::uint32_t probes = 0;            // that stand before
  bool unconfirmed = false;            // no request stands behind some of the work
  bool completion_due = false;         // and a signaled completion waits for it

  // The place moves on behind a message of work that is not answered,
  void pass_work(std::uint32_t length, bool signaled) {
    weight += length + kWeightOfWork;
    unconfirmed = true;
    completion_due |= signaled;
  }
  // work that sends nothing, and completes with what stands before it,
  void pass_local_work(bool signaled) { completion_due |= unconfirmed && signaled; }
  // a request that confirms the work before the entry `sequence`.
  void pass_request(std::uint64_t sequence) {
    requested_weight = weight;
    requested_before = sequence;
    unconfirmed = completion_due = false;
  }
};

struct Cursor {
  enum class Source : std::uint8_t { none, work, response, terminate, rtr, probe, report };
  std::uint64_t sequence = 0;  // the send queue entry in progress, or the next one
  std::uint64_t response = 0;  // the inbound read to answer next, by its number in the ring
  std::uint32_t offset = 0;    // octets of the message in progress that stand before
  Msn send_msn{1};
  Msn read_msn{1};
  Msn atomic_msn{1};
  std::uint32_t writes = 0;   // RDMA Writes that stand before, all of them
  std::uint32_t reports = 0;  // progress reports that stand before, of ReportQueue
  Progress reported;          // of the peer's work: what answers and progress reports before this say
  Placement placement;
  Source source = Source::none;
  bool second = false;         // of the work in progress the Write is out, and its Immediate Data comes next
  bool response_next = false;  // whose turn it is
  bool rtr_sent = false;
  bool terminate_sent = false;
};

}  // namespace uiw::rdmap
