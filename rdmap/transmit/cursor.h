// SPDX-License-Identifier: MIT
// A position in the outgoing stream of a sender: what has been sent, and what is next. A Cursor is a plain value.
// OutgoingBatch keeps the position after each of its FPDUs. If TCP accepts only some FPDUs of a batch, the next batch
// is built from the position after them.
#pragma once

#include <cstdint>

#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

// How much work precedes a position, and how much of it the peer has been asked to confirm. The peer's answer to a
// request (an RDMA Read, an atomic operation, or a probe, which is a Read of no octets) confirms that all work before
// this request has been placed (RFC 5040 section 5.5).
struct Placement {
  // The weight of a Send, RDMA Write or Immediate Data is the size of its payload in octets plus this number. Other
  // work has no weight.
  static constexpr std::uint64_t kWeightOfWork = 64;

  std::uint64_t weight = 0;            // of all work before the position
  std::uint64_t requested_weight = 0;  // the part of `weight` before the last request
  std::uint64_t requested_before = 0;  // the answer to the last request confirms the work before this entry
  std::uint32_t probes = 0;            // probes before the position
  bool unconfirmed = false;            // no request follows the last work before the position
  bool completion_due = false;         // a signaled completion depends on unconfirmed work before the position

  // Moves the position past a message that gets no answer (Send, RDMA Write).
  void pass_work(std::uint32_t length, bool signaled) {
    weight += length + kWeightOfWork;
    unconfirmed = true;
    completion_due |= signaled;
  }
  // Moves the position past work that sends nothing and completes together with the work before it.
  void pass_local_work(bool signaled) { completion_due |= unconfirmed && signaled; }
  // Moves the position past a request whose answer confirms the work before the entry `sequence`.
  void pass_request(std::uint64_t sequence) {
    requested_weight = weight;
    requested_before = sequence;
    unconfirmed = completion_due = false;
  }
};

struct Cursor {
  enum class Source : std::uint8_t { none, work, response, terminate, rtr, probe, report };
  std::uint64_t sequence = 0;  // the send queue entry in progress, or the next one
  std::uint64_t response = 0;  // the peer's request to answer next, by its number in SharedReads::inbound
  std::uint32_t offset = 0;    // octets of the message in progress that are sent
  Msn send_msn{1};
  Msn read_msn{1};
  Msn atomic_msn{1};
  std::uint32_t writes = 0;   // posted RDMA Writes before the position, modulo 2^32
  std::uint32_t reports = 0;  // entries of ReportQueue before the position
  Progress reported;          // how much of the peer's work answers and reports before the position confirm
  Placement placement;
  Source source = Source::none;
  bool immediate_next = false;  // the Write of the work in progress is sent; its Immediate Data is next
  bool response_next = false;   // responses and posted work take turns: a response is next
  bool rtr_sent = false;
  bool terminate_sent = false;
};

}  // namespace uiw::rdmap
