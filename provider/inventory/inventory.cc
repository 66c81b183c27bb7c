// SPDX-License-Identifier: MIT
#include "provider/inventory/inventory.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/text_file.h"

namespace uiw::provider {

namespace {

constinit std::array<std::atomic<InventorySource>, kInventorySources> sources{};

std::string command_of_process() {
  std::array<char, 16> name{};
  if (const TextFile file = open_text_file("/proc/self/comm"); file) {
    if (std::fgets(name.data(), name.size(), file.get()) == nullptr) name[0] = '\0';
  }
  name[std::strcspn(name.data(), "\n")] = '\0';
  return name[0] != '\0' ? name.data() : std::string(program_invocation_short_name).substr(0, name.size() - 1);
}

}  // namespace

void add_inventory_source(InventorySource source) {
  for (auto& slot : sources) {
    InventorySource nobody = nullptr;
    if (slot.compare_exchange_strong(nobody, source) || nobody == source) return;
  }
}

namespace {

Inventory look_once() {
  Inventory inventory;
  for (const PortCounters* one = next_port_counters(nullptr); one != nullptr; one = next_port_counters(one)) {
    if (one->device().empty()) continue;
    one->add_to(inventory.devices[inventory.index_of_device(one->device())].counts);
  }
  for (const auto& source : sources) {
    if (const InventorySource function = source.load()) function(inventory);
  }
  return inventory;
}

}  // namespace

// Takes the inventory again, up to eight times in all, if a connection's traffic was counted meanwhile. When a
// connection ends, its traffic moves from the queue pair to the port's counters. If the counters were read before that
// and the queue pair after it, this traffic would be missing.
Inventory take_inventory() {
  constexpr int kMostLooks = 8;
  Inventory inventory;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    const std::uint64_t counted = counted_connections.load();
    inventory = look_once();
    if (counted == counted_connections.load()) break;
  }
  inventory.command = command_of_process();
  return inventory;
}

}  // namespace uiw::provider
