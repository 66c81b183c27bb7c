// SPDX-License-Identifier: MIT
// The steps and attributes that ibv_modify_qp accepts. The functions have no state.
//
// The five states of the Verbs draft (section 6.2) and the states of libibverbs:
//
//     RESET, INIT, RTR   Idle (figure 7). The three differ only in their order, as InfiniBand requires it; a device
//                        that is shown as iWARP has no RESET: a new queue pair is in INIT
//     RTS                RTS (figure 8), once a connection has attached a stream
//     SQD                Closing (figure 11): posted work is sent, then the stream is closed; no way back.
//                        Without rdma_cm, or on a device that is shown as RoCE, SQD is that of InfiniBand: work
//                        that is posted later waits until the queue pair is in RTS again
//     ERR                Terminate (figure 9) while a Terminate is sent, Error (figure 10) afterwards
//     SQE                occurs for datagrams (IBV_QPT_UD) only: else an error of the send queue ends the stream
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#include "provider/process/device.h"

namespace uiw::provider {

class Context;

// The queue pair number that rdma_cm reports as the peer's to a program that calls ibv_modify_qp itself, as on RoCE. No
// queue pair has this number (provider/connect/qp_table.cc): rdma_cm makes the connection, and a step to RTR that names
// this number connects nothing.
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

// Whether the device grants these values. If so, raises `max_inline_data` to the least value that is granted, sets the
// values of a missing receive queue to 0, and rounds the sizes of queues up as RoCE or iWARP adapters do.
bool grant(ibv_qp_cap& cap, bool has_receive_queue, Transport transport);

// The attributes of `mask` that mean something to a queue pair of this type. The two types of XRC are the two halves of
// a reliable connection, and the attributes of the other half are ignored, as in the kernel
// (drivers/infiniband/core/uverbs_cmd.c: modify_qp_mask): rdma_cm and programs set all of them.
int meant(ibv_qp_type type, int mask);

// InfiniBand's table of steps. `mask` has only what is meant(). 0; EINVAL if there is no such step, or
// `mask` lacks an attribute that the step requires, or has one that is neither required nor optional; EOPNOTSUPP for
// bits above IBV_QP_DEST_QPN. A call without a state is a step that keeps the state. These are the rules of RoCE
// adapters (drivers/infiniband/core/verbs.c: ib_modify_qp_is_ok; manual page of ibv_modify_qp).
int check_step(ibv_qp_state from, int to, ibv_qp_type type, int mask);

// As check_step(), by the rules of iWARP adapters. If rdma_cm connects, a step requires no attribute, since rdma_cm
// does not set the attributes of InfiniBand. A step to RTR that names the peer by another number than kManagedQpNumber,
// and the step to RTS after it (`manual`), require the attributes that InfiniBand requires. `connected`: the queue pair
// has a stream; without a stream, the step from RTR to RTS is possible only if `manual`.
int check_rnic_step(ibv_qp_state from, int to, ibv_qp_type type, const ibv_qp_attr& attributes, int mask, bool manual,
                    bool connected);

// Whether the attributes of a step to RTR name a peer to connect to.
bool connects(const ibv_qp_attr& attributes, int mask);

// 0; EINVAL for an impossible value; EOPNOTSUPP for attributes that the device does not support. Throws std::bad_alloc.
int check_values(Context& context, const ibv_qp_attr& attributes, int mask);

// The rights (ddp/stag_table.h) that these qp_access_flags deny to the peer. Not used as long as the program has not
// set the flags: then nothing is denied, since rdma_cm allows everything.
std::uint32_t denied_rights(unsigned access);

// Copies the attributes in `mask` that a queue pair stores as they are, and the low 24 bits of PSNs. Does not copy
// states, ORD and IRD.
void copy_attributes(ibv_qp_attr& to, const ibv_qp_attr& from, int mask);

}  // namespace uiw::provider
