// SPDX-License-Identifier: MIT
// The multicast groups that an id has joined (cma.c: rdma_join_multicast, rdma_leave_multicast,
// cma_iboe_join_multicast). A join finds the group's GID and an address for it; what a queue pair receives is decided
// by ibv_attach_mcast, which librdmacm calls when it gets the event, if the id has a queue pair.
//
// It is part of a CmId. Commands are called with the id's command lock held and return 0 or an errno.
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
  std::uint64_t uid;     // the program's name for it
  std::uint32_t events_reported UIW_GUARDED_BY(g_registry_lock) = 0;
};

class CmGroups {
 public:
  explicit CmGroups(CmId& id) : id_(id) {}

  // Joins a group, sets `number` to its number, and reports MULTICAST_JOIN. EINVAL if the id has no device or is not of
  // type UD, or the address is no group's; ENOSYS in the iWARP view.
  int join(const sockaddr_storage& address, std::uint64_t uid, std::uint32_t& number);
  // Leaves a group and drops its events that the program has not fetched. ENOENT if there is no such group.
  int leave(std::uint32_t number, std::uint32_t& events_reported);

  bool has(std::uint32_t number) const UIW_REQUIRES(g_registry_lock);

 private:
  CmId& id_;
  std::vector<std::shared_ptr<CmGroup>> groups_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
