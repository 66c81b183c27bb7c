// SPDX-License-Identifier: MIT
// The verbs and rdma_cm objects of processes as attributes of NETLINK_RDMA (drivers/infiniband/core/nldev.c,
// restrack.c), for the commands RDMA_NLDEV_CMD_RES_*_GET and STAT_GET. Functions without side effects.
//
// The kernel numbers the objects of all processes together. Here each process numbers its own objects. The number shown
// has the PID in the upper bits and the low ten bits of the object's number below them. So two processes that have PIDs
// in this PID namespace never show the same number, and an object keeps its number. Queue pairs are shown by their QP
// numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "kernel-abi/netlink/netlink_format.h"
#include "provider/inventory/inventory.h"

namespace uiw::kernel_abi {

using Processes = std::vector<provider::ProcessInventory>;

// One kind of objects. `table`, `entry` and `number` are attribute types: of a list of such objects, of one object in
// the list, and of the number by which a request asks for one.
struct ResourceKind {
  unsigned table, entry, number;
  struct Object {
    std::uint32_t number;
    std::function<void(NetlinkWriter&)> write;  // usable while the `processes` of objects() exist
  };
  std::vector<Object> (*objects)(const Processes& processes, std::string_view device);
};
// The kind that a command asks for; null for other commands.
const ResourceKind* resource_kind(unsigned command);

// Writes RDMA_NLDEV_ATTR_RES_SUMMARY: how many objects of each kind the device has.
void write_summary(NetlinkWriter& writer, const Processes& processes, std::string_view device);
// Writes RDMA_NLDEV_ATTR_STAT_HWCOUNTERS: the counters that sysfs has in ports/1/hw_counters.
void write_hw_counters(NetlinkWriter& writer, const Processes& processes, std::string_view device);

}  // namespace uiw::kernel_abi
