// SPDX-License-Identifier: MIT
// The steps and attributes that ibv_modify_qp accepts. The functions have no state.
//
// The five states of the Verbs draft (section 6.2) and the states of libibverbs:
//
//     RESET, INIT, RTR   Idle (figure 7). The three differ only in their order, as InfiniBand requires it
//     RTS                RTS (figure 8), once a connection has attached a stream
//     SQD                Closing (figure 11): posted work is sent, then the stream is closed; no way back.
//                        On a manual connection SQD is that of InfiniBand: work that is posted later
//                        waits until the queue pair is in RTS again
//     ERR                Terminate (figure 9) while a Terminate is sent, Error (figure 10) afterwards
//     SQE                does not occur: an error of the send queue ends the stream
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

namespace uiw::provider {

// The number of the peer queue pair that rdma_cm reports to a program which makes the steps by itself, as on RoCE. No
// queue pair has this number (provider/connect/qp_table.cc): the connection manager connects, and the step to RTR
// connects nothing.
constexpr std::uint32_t kManagedQpNumber = 1;

constexpr std::uint32_t kPsnMask = 0xFFFFFF;

// Reads a field of an enumeration type as a number, since a program may have stored any value in it.
template <typename Enumeration>
int number_in(const Enumeration& field) {
  int number;
  static_assert(sizeof number == sizeof field);
  std::memcpy(&number, &field, sizeof number);
  return number;
}

// Whether the device grants these values; raises those below the minimum, 0 for example.
bool grant(ibv_qp_cap& cap, bool has_receive_queue);

// Whether a program may make this step. Keeping the state is always allowed.
bool may_step(ibv_qp_state from, int to, bool manual);

// Whether the attributes of a step to RTR name a peer.
bool connects(const ibv_qp_attr& attributes, int mask);

// Whether the attributes include all that InfiniBand requires for this step (manual page of ibv_modify_qp).
bool has_all_for(ibv_qp_state from, ibv_qp_state to, int mask, ibv_qp_type type);

// 0; EINVAL for an impossible mask or value; EOPNOTSUPP for attributes that the device does not support. `to` is the
// state after the step. As with iWARP adapters, no step requires any attribute, since rdma_cm sets none; for a RoCE
// adapter see has_all_for(). But a step that names the peer always requires all that the manual page of ibv_modify_qp
// lists.
int check_attributes(const ibv_qp_attr& attributes, int mask, int to, ibv_qp_type type);

// The rights of ddp/stag_table.h that qp_access_flags deny to the peer. If the program has never set the flags, nothing
// is denied; rdma_cm allows everything.
std::uint32_t denied_rights(unsigned access);

// Copies the attributes that are only stored.
void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask);

}  // namespace uiw::provider
