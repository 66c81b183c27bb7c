// SPDX-License-Identifier: MIT
// Answers requests on NETLINK_RDMA about devices and the objects that processes have on them, as the kernel does: the
// client RDMA_NL_NLDEV of rdma/rdma_netlink.h (drivers/infiniband/core/nldev.c). Functions without side effects:
// requests in, answers out.
//
// The devices of uiw have indices from kOwnIndices on; those of the host are counted from 0. The answer to a request
// about all devices has those of the host first. A request about one device of the host, or for another client than
// RDMA_NL_NLDEV, is answered by the host's kernel alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernel-abi/netlink/netlink_format.h"
#include "kernel-abi/sysfs/tree_content.h"
#include "provider/inventory/inventory.h"

namespace uiw::kernel_abi {

// The index of a device of uiw is this number plus the N of its node uverbsN, which stays the same while the process
// lives.
constexpr std::uint32_t kOwnIndices = 0x10000;

struct NldevWorld {
  // Returns the devices of uiw; with `rescan` lists the interfaces again first.
  std::function<std::vector<NumberedDevice>(bool rescan)> devices;
  // Returns the processes of this user that use uiw, with their objects (provider/inventory/processes.h).
  std::function<std::vector<provider::ProcessInventory>()> processes;
  // Sends a request to the kernel and returns all messages of its answer; nothing if the kernel has no RDMA.
  std::function<Octets(OctetView request)> host;
};

// Answers the requests of one datagram, which came from the Netlink port `port`. Returns the datagrams of the answer.
// Stops, without an error, at octets that are no message.
std::vector<Octets> answer_nldev(Octets requests, std::uint32_t port, const NldevWorld& world);

}  // namespace uiw::kernel_abi
