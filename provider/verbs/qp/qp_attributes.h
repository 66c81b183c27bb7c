// SPDX-License-Identifier: MIT
// What ibv_modify_qp may ask for: steps between states, and attributes.
//
// The five states of the Verbs draft (section 6.2) behind those of libibverbs:
//
//   RESET, INIT, RTR   Idle (figure 7): the stages of InfiniBand ask for nothing but their order
//   RTS                RTS (figure 8), once a connection gave it a stream
//   SQD                Closing (figure 11): what is posted is sent, then the stream is closed; no way back. Connected
//   by
//                      hand, that of InfiniBand: what is posted later waits until the queue pair is back in RTS
//   ERR                Terminate (figure 9) while a Terminate goes out, Error (figure 10) afterwards
//   SQE                none: an error of the send queue ends the stream
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

namespace uiw::provider {

// The peer's number that rdma_cm gives a program which steps through the states by itself, as it does on RoCE: no queue
// pair has it (qp_table.cc). The connection manager connects; the step to RTR connects nothing.
constexpr std::uint32_t kManagedQpNumber = 1;

constexpr std::uint32_t kPsnMask = 0xFFFFFF;

// A program may have put any number into a field of an enumeration: read as such, until it was checked.
template <typename Enumeration>
int number_in(const Enumeration& field) {
  int number;
  static_assert(sizeof number == sizeof field);
  std::memcpy(&number, &field, sizeof number);
  return number;
}

// Can a program take a queue pair from one state to the other? A state may always be kept.
bool may_step(ibv_qp_state from, int to, bool manual);

// Do these attributes, of a step to RTR, name the peer?
bool connects(const ibv_qp_attr& attributes, int mask);

// Are all attributes given that InfiniBand asks for on the way from RTR to RTS (manual page of ibv_modify_qp)?
bool has_all_for_rts(int mask, ibv_qp_type type);

// 0; EINVAL for a mask or value that cannot be, EOPNOTSUPP for what this device does not offer. `to` is the
// state that the queue pair shall have. As with iWARP adapters, no step demands any attribute: rdma_cm gives
// none. But one that names the peer demands all that the manual page of ibv_modify_qp lists.
int check_attributes(const ibv_qp_attr& attributes, int mask, int to, ibv_qp_type type);

// What a peer may not do, by qp_access_flags: rights of ddp/stag_table.h. A queue pair that was never given
// any flags denies nothing; rdma_cm gives all of them.
std::uint32_t denied_rights(unsigned access);

// The attributes that are only remembered.
void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask);

}  // namespace uiw::provider
