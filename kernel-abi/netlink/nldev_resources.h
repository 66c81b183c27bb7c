// SPDX-License-Identifier: MIT
// What processes have, as attributes of NETLINK_RDMA (drivers/infiniband/core/nldev.c, restrack.c): the commands
// RDMA_NLDEV_CMD_RES_*_GET and STAT_GET. Functions without side effects.
//
// The kernel numbers the objects of all processes together. Here each process numbers its own, and what is shown is its
// PID and, in the low ten bits, that number. So no other process shows the same number, and it stays the same as long
// as the object lives. Queue pairs have the numbers that programs know.
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

// One kind of objects: the attributes of a list of them, of one of them in the list, and of the number by which one is
// asked for.
struct ResourceKind {
  unsigned table, entry, number;
  struct Object {
    std::uint32_t number;
    std::function<void(NetlinkWriter&)> write;  // its attributes; `processes` must be live
  };
  std::vector<Object> (*objects)(const Processes& processes, std::string_view device);
};
// The kind that a command asks for; null for other commands.
const ResourceKind* resource_kind(unsigned command);

// RDMA_NLDEV_ATTR_RES_SUMMARY: how many of each kind the device has.
void write_summary(NetlinkWriter& writer, const Processes& processes, std::string_view device);
// RDMA_NLDEV_ATTR_STAT_HWCOUNTERS: those of ports/1/hw_counters.
void write_hw_counters(NetlinkWriter& writer, const Processes& processes, std::string_view device);

}  // namespace uiw::kernel_abi
