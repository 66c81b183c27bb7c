// SPDX-License-Identifier: MIT
// Adds the connection identifiers to the inventory of this process (provider/inventory/inventory.h).
#include <cstring>
#include <thread>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_registry.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/inventory/inventory.h"

namespace uiw::kernel_abi {
namespace {

// How often show_id() tries to take the command lock of an id; after that, the id is left out. show_id() does not wait
// for the lock, since it may run on the thread "uiw-cm", which should not wait for a command of the program.
constexpr int kAttempts = 16;

// enum rdma_cm_state of include/rdma/rdma_cm.h.
std::uint8_t kernel_state(CmState state, ConnectionPhase phase) {
  switch (state) {
    case CmState::idle: return 0;
    case CmState::addr_bound: return 7;
    case CmState::addr_query: return 1;
    case CmState::addr_resolved: return 2;
    case CmState::route_resolved: return 4;
    case CmState::connect: return phase == ConnectionPhase::ended ? 6 : 5;
    case CmState::listen: return 8;
    case CmState::destroyed: return 10;
  }
  return 0;
}

template <std::size_t kSize>
void show_address(const sockaddr_storage& address, std::uint8_t (&shown)[kSize]) {
  static_assert(kSize == sizeof(sockaddr_in6));
  if (address.ss_family == AF_INET || address.ss_family == AF_INET6) std::memcpy(shown, &address, kSize);
}

void show_id(CmId& id, provider::Inventory& inventory) {
  UniqueLock command(id.command_lock(), std::defer_lock);
  for (int attempt = 1; !command.try_lock(); ++attempt) {
    if (attempt == kAttempts) return;
    std::this_thread::yield();
  }
  provider::ShownCmId shown{};
  {
    const LockGuard lock(g_registry_lock);
    if (id.is_destroyed() || id.is_left_to_parent() || id.events().channel()->inherited()) return;
    shown.state = id.is_removed() ? 9 : kernel_state(id.state(), id.connection().phase());
    shown.qp = id.connection().qp_number();
  }
  const CmRoute& route = id.route();
  shown.device =
      route.device() ? inventory.index_of_device(route.device()->counters->device()) : provider::ShownCmId::kNoDevice;
  shown.number = id.number() + 1;
  shown.port_space = route.port_space();
  shown.qp_type = route.qp_type();
  show_address(route.source(), shown.source);
  show_address(route.destination(), shown.destination);
  inventory.cm_ids.push_back(shown);
}

void show_ids(provider::Inventory& inventory) {
  for (const std::shared_ptr<CmId>& id : CmRegistry::instance().ids()) show_id(*id, inventory);
}

[[maybe_unused]] const bool added = [] {
  provider::add_inventory_source(show_ids);
  return true;
}();

}  // namespace
}  // namespace uiw::kernel_abi
