// SPDX-License-Identifier: MIT
// Manual connections: programs that exchange queue pair number and GID by themselves and call ibv_modify_qp.
//
// Each of the two ends may go to RTR at any time. The one whose number (then GID) is smaller calls, as often as it
// takes; the other listens on the port that its number names. A call for a queue pair that is not in RTR yet is held,
// one for a queue pair that does not exist, or that belongs to another peer, is refused, and so is one of another user
// of this host than its greeting claims. A queue pair may be its own peer: then its socket is connected to itself.
//
// Where the stream of a queue pair turns out to be with somebody else than its peer, it is dropped
// (QpConnection::drop_stream()), and the two look for each other again. What fails for lack of memory or descriptors is
// tried again likewise.
//
// Everything happens on the thread of CmLoop; all functions are thread-safe and do not block.
#pragma once

#include <cstdint>
#include <memory>

#include "provider/connect/attempt.h"
#include "provider/connect/manual/greeting_format.h"
#include "provider/process/device.h"

namespace uiw::provider::manual {

struct Ends {
  PairGreeting greeting;    // as this end says it
  unsigned ifindex = 0;     // of the device: the scope of link-local addresses
  unsigned read_depth = 0;  // IRD: how many RDMA Reads and atomics the peer's program may have outstanding
  std::uint8_t traffic_class = 0;
  std::shared_ptr<Attempt> attempt;  // of the queue pair
};

// The queue pair has gone to RTR. 0, or the errno of ibv_modify_qp: EADDRINUSE, EADDRNOTAVAIL where nothing can listen
// on the address that this end goes by.
int start(const Ends& ends, const DeviceInfo& device);
// It is gone, or back in RESET: who waits for it is told so. Also for queue pairs that were never in RTR.
void stop(std::uint32_t qp_number);

// Work has been posted to a queue pair connected without rdma_cm: from here on it is looked at now and then whether
// such work gets on, until there is none. Costs a load where that is so already.
void start_retry_timers() noexcept;

// In the child of a fork: the pairs are the parent's.
void after_fork_in_child();

}  // namespace uiw::provider::manual
