// SPDX-License-Identifier: MIT
// The input of the fuzzer of streams: eight octets that say what start-up has agreed on, and steps of eight octets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "mpa/startup.h"
#include "rdmap/rdmap_format.h"

namespace uiw::fuzz {

constexpr std::size_t kStepSize = 8;

enum class Act : std::uint8_t {
  post_receive,
  post_send,
  post_write,
  post_read,
  post_atomic,
  post_immediate,
  post_invalidate,
  post_bind,
  register_memory,
  deregister_memory,
  change_memory,
  window,
  transmit,
  deliver,
  segment,  // the peer sends one
  octets,   // the peer sends some that are no FPDU
  end,
  setting,
  scribble,  // the program writes to its memory
  run,       // everything is delivered and sent
  count
};

struct Step {
  Act act;
  std::uint8_t a, b, c, d, e, f, g;
};

inline Step step_of(const std::uint8_t* from) {
  const auto act = static_cast<Act>(from[0] % static_cast<unsigned>(Act::count));
  return {act, from[1], from[2], from[3], from[4], from[5], from[6], from[7]};
}

struct Agreed {
  bool crc, markers_in, markers_out, initiator, remote_completion;
  mpa::PeerKind peer;
  mpa::ReadyToReceive rtr;
  rdmap::Reports reports;
  std::uint32_t ord, probe_slots, ird;
  std::size_t mulpdu, mulpdu_to_uiw;
};

inline Agreed agreed_of(const std::uint8_t* from) {
  Agreed agreed;
  agreed.crc = (from[0] & 1) != 0;
  agreed.markers_in = (from[0] & 2) != 0;
  agreed.markers_out = (from[0] & 4) != 0;
  agreed.initiator = (from[0] & 16) == 0;
  agreed.rtr = static_cast<mpa::ReadyToReceive>(from[0] >> 5 & 3);
  agreed.remote_completion = (from[1] & 1) != 0;
  const unsigned reports = (from[1] >> 1 & 3) % 3;
  agreed.reports = reports == 2 ? rdmap::Reports::always : rdmap::Reports::on_request;
  agreed.mulpdu = (from[1] & 8) != 0 ? 1440 : 128;
  agreed.mulpdu_to_uiw = (from[1] & 32) != 0 ? 1568 - agreed.mulpdu : agreed.mulpdu;  // the other one
  agreed.ord = from[2] & 3;
  agreed.probe_slots = from[2] >> 2 & 3;
  agreed.ird = from[2] >> 4 & 3;
  const bool uiw = (from[0] & 8) != 0 || reports != 0;
  agreed.peer = uiw ? mpa::PeerKind::uiw : mpa::PeerKind::other;
  const bool greets = agreed.rtr == mpa::ReadyToReceive::write || agreed.rtr == mpa::ReadyToReceive::read;
  if ((from[1] & 16) != 0 && greets && agreed.reports != rdmap::Reports::always) agreed.peer = mpa::PeerKind::not_known;
  return agreed;
}

}  // namespace uiw::fuzz
