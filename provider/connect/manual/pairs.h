// SPDX-License-Identifier: MIT
// Manual connections: connects queue pairs without rdma_cm, for programs that exchange queue pair numbers and GIDs by
// themselves and call ibv_modify_qp.
//
// Each of the two ends may go to RTR at any time. The end with the smaller queue pair number (or GID, if the numbers
// are equal) calls, repeatedly if necessary. The other end listens on the TCP port that its queue pair number contains.
// A call for a queue pair that is not in RTR yet waits for the step to RTR, up to a time limit. A call is refused if
// the queue pair that it names does not exist or has another peer, or if it comes from a user of this host who has not
// reserved the port in the caller's queue pair number. A queue pair may be its own peer; its TCP socket is connected to
// itself in this case.
//
// If the stream of a queue pair turns out to come from another end than the peer, the stream is dropped
// (Connection::abandon()), and the queue pair looks for its peer again. A call that fails for lack of memory or
// descriptors is repeated, too.
//
// Calls are made and answered on the thread "uiw-cm" (CmLoop). All functions are thread-safe and do not block.
#pragma once

#include <cstdint>
#include <memory>

#include "provider/connect/attempt.h"
#include "provider/connect/manual/greeting_format.h"
#include "provider/process/device.h"

namespace uiw::provider::manual {

struct Ends {
  PairGreeting greeting;    // the greeting that this end sends
  unsigned ifindex = 0;     // of the device's interface; the scope of link-local addresses
  unsigned read_depth = 0;  // IRD: RDMA Reads and atomics that the peer's program may have outstanding
  std::uint8_t traffic_class = 0;
  std::shared_ptr<Attempt> attempt;  // of the queue pair
};

// Called when the queue pair goes to RTR: starts to look for its peer. 0, or an errno for ibv_modify_qp: EADDRINUSE or
// EADDRNOTAVAIL if this process cannot listen on the address of this end, or another errno of listen_on(). Throws
// std::bad_alloc.
int start(const Ends& ends, const DeviceInfo& device);
// Called when the queue pair is destroyed or goes to RESET: stops looking for its peer. When the queue pair is
// destroyed, calls that wait for it are refused. May also be called for queue pairs that were never in RTR.
void stop(std::uint32_t qp_number);

// In the child of a fork: forgets all pairs, which belong to the parent.
void after_fork_in_child();

}  // namespace uiw::provider::manual
