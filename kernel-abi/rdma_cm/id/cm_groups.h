// SPDX-License-Identifier: MIT
// The multicast groups that an id has joined (cma.c: rdma_join_multicast, rdma_leave_multicast,
// cma_iboe_join_multicast). A join only reports the group's GID and the attributes of an address handle for the group.
// A queue pair receives from the group after ibv_attach_mcast, which librdmacm calls when MULTICAST_JOIN arrives, if
// the id has a queue pair.
//
// CmGroups is part of a CmId. Commands are called with the id's command lock held and return 0 or an errno.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/registry_lock.h"

namespace uiw::kernel_abi {

class CmId;

struct CmGroup {
  std::uint32_t number;  // unique in the process
  std::uint64_t uid;     // the program's name for the group
  std::uint32_t events_reported UIW_GUARDED_BY(g_registry_lock) = 0;
};

class CmGroups {
 public:
  explicit CmGroups(CmId& id) : id_(id) {}

  // Joins a group, sets `number` to its number, and reports MULTICAST_JOIN. EINVAL if the id has no device, is in
  // another state than addr_bound or addr_resolved, or is not of type UD, or if the address is no multicast address;
  // ENOSYS in the iWARP view; ENODEV if the device is gone.
  int join(const sockaddr_storage& address, std::uint64_t uid, std::uint32_t& number);
  // Leaves a group and drops its events that the program has not fetched. ENOENT if there is no such group.
  int leave(std::uint32_t number, std::uint32_t& events_reported);

  bool has(std::uint32_t number) const UIW_REQUIRES(g_registry_lock);

 private:
  CmId& id_;
  std::vector<std::shared_ptr<CmGroup>> groups_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
