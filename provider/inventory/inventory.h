// SPDX-License-Identifier: MIT
// The inventory of a process: its RDMA objects (contexts, queue pairs and so on), and the counters of its devices'
// ports.
//
// The records are passed between processes as they are in memory (inventory_format.h), so they have no pointers and no
// padding. `device` is an index into Inventory::devices. `number` is unique among the objects of one kind in the
// process; numbers of queue pairs, and keys, are those that programs see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "provider/process/shown/port_counters.h"

namespace uiw::provider {

struct ShownDevice {
  char name[64];  // ends with a NUL
  PortCounts counts;
};
struct ShownContext {
  std::uint32_t device, number;
};
struct ShownPd {
  std::uint32_t device, number, context, users;
};
struct ShownCq {
  std::uint32_t device, number, context, users;
  std::uint32_t entries, unused = 0;
};
struct ShownMr {
  std::uint32_t device, number, pd, key;
  std::uint64_t iova, length;
};
struct ShownSrq {
  std::uint32_t device, number, pd, unused = 0;
};
struct ShownQp {
  std::uint32_t device, number, pd;
  std::uint32_t remote;  // the peer's queue pair number; 0 if it is not known
  std::uint32_t rq_psn, sq_psn;
  std::uint8_t type, state;  // enum ibv_qp_type, ibv_qp_state
  std::uint8_t migration;    // enum ibv_mig_state
  std::uint8_t unused = 0;
};
// A request of a peer for memory that was refused, and why; in processes that are checked (provider/check/).
struct ShownRefusal {
  std::uint32_t device, key;
  std::uint64_t offset;
  char reason[240];  // ends with a NUL
};
struct ShownCmId {
  static constexpr std::uint32_t kNoDevice = ~std::uint32_t{0};
  std::uint32_t device;  // an index, or kNoDevice if the id is bound to no address of a device
  std::uint32_t number;
  std::uint32_t qp;          // 0 while the id has no queue pair
  std::uint32_t port_space;  // RDMA_PS_*
  std::uint8_t state;        // enum rdma_cm_state of the kernel (include/rdma/rdma_cm.h)
  std::uint8_t qp_type;
  std::uint8_t unused[2] = {};
  std::uint8_t source[28], destination[28];  // sockaddr_in or sockaddr_in6; family 0: no address
};

struct Inventory {
  std::string command;  // the name of the process (proc(5): /proc/PID/comm), at most 15 octets
  std::vector<ShownDevice> devices;
  std::vector<ShownContext> contexts;
  std::vector<ShownPd> pds;
  std::vector<ShownCq> cqs;
  std::vector<ShownMr> mrs;
  std::vector<ShownSrq> srqs;
  std::vector<ShownQp> qps;
  std::vector<ShownCmId> cm_ids;
  std::vector<ShownRefusal> refusals;

  // The index of the device with this name. Adds the device if it is missing.
  std::uint32_t index_of_device(const std::string& name) {
    ShownDevice wanted{};
    name.copy(wanted.name, sizeof wanted.name - 1);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (std::strcmp(devices[i].name, wanted.name) == 0) return static_cast<std::uint32_t>(i);
    }
    devices.push_back(wanted);
    return static_cast<std::uint32_t>(devices.size() - 1);
  }
};

struct ProcessInventory {
  std::uint32_t pid = 0;  // in the caller's PID namespace; 0 if the process has no number there
  Inventory inventory;
};

// A function that adds its part to the inventory of this process. Called on any thread, also on the thread "uiw-cm", so
// it must not wait for that thread.
using InventorySource = void (*)(Inventory&);
// Sources are added when the library is loaded, at most kInventorySources. To add a function again has no effect.
constexpr unsigned kInventorySources = 4;
void add_inventory_source(InventorySource source);

// The inventory of this process. Throws std::bad_alloc.
Inventory take_inventory();

}  // namespace uiw::provider
