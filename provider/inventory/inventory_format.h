// SPDX-License-Identifier: MIT
// The format in which inventories are passed between processes of one host. Encoding and decoding stand side by side.
//
// An inventory is encoded as an InventoryHeader, with the sizes and counts of the records of each kind, and then the
// records, all as they are in memory. The inventory of another release of uiw is refused if its records have other
// sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "provider/inventory/inventory.h"

namespace uiw::provider {

constexpr std::size_t kInventoryKinds = 9;

struct InventoryHeader {
  std::array<char, 8> magic;
  std::array<std::uint32_t, kInventoryKinds> sizes;  // of one record
  std::array<std::uint32_t, kInventoryKinds> counts;
  std::array<char, 16> command;
};

// Calls the function for the records of each kind, in the order of the encoding.
template <typename Some, typename Function>
void for_each_kind(Some& inventory, Function function) {
  function(inventory.devices);
  function(inventory.contexts);
  function(inventory.pds);
  function(inventory.cqs);
  function(inventory.mrs);
  function(inventory.srqs);
  function(inventory.qps);
  function(inventory.cm_ids);
  function(inventory.refusals);
}

inline InventoryHeader inventory_header(const Inventory& inventory) {
  InventoryHeader header{{'u', 'i', 'w', '-', 'i', 'n', 'v', '1'}, {}, {}, {}};
  std::size_t kind = 0;
  for_each_kind(inventory, [&](const auto& records) {
    using Record = typename std::decay_t<decltype(records)>::value_type;
    static_assert(std::is_trivially_copyable_v<Record> && std::has_unique_object_representations_v<Record>);
    header.sizes[kind] = sizeof(Record);
    header.counts[kind++] = static_cast<std::uint32_t>(records.size());
  });
  inventory.command.copy(header.command.data(), header.command.size() - 1);
  return header;
}

inline std::vector<std::byte> encode_inventory(const Inventory& inventory) {
  std::vector<std::byte> octets;
  const auto add = [&octets](const void* data, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    octets.insert(octets.end(), from, from + size);
  };
  const InventoryHeader header = inventory_header(inventory);
  add(&header, sizeof header);
  for_each_kind(inventory, [&](const auto& records) { add(records.data(), records.size() * sizeof records[0]); });
  return octets;
}

// Returns no value if the octets are not a whole inventory with records of the same sizes as in this release. The other
// process may be hostile, so this function checks the device of each record and terminates each text.
inline std::optional<Inventory> decode_inventory(std::span<const std::byte> octets) {
  InventoryHeader header{};
  if (octets.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, octets.data(), sizeof header);
  octets = octets.subspan(sizeof header);
  Inventory inventory;
  const InventoryHeader own = inventory_header(inventory);
  if (header.magic != own.magic || header.sizes != own.sizes) return std::nullopt;
  header.command.back() = '\0';
  inventory.command = header.command.data();
  std::size_t kind = 0;
  bool whole = true;
  for_each_kind(inventory, [&](auto& records) {
    const std::size_t count = header.counts[kind++];
    if (count > octets.size() / sizeof records[0]) whole = false;
    if (!whole || count == 0) return;
    records.resize(count);
    std::memcpy(records.data(), octets.data(), count * sizeof records[0]);
    octets = octets.subspan(count * sizeof records[0]);
  });
  if (!whole || !octets.empty()) return std::nullopt;
  for (ShownDevice& device : inventory.devices) device.name[sizeof device.name - 1] = '\0';
  for (ShownRefusal& refusal : inventory.refusals) refusal.reason[sizeof refusal.reason - 1] = '\0';
  const std::size_t devices = inventory.devices.size();
  for_each_kind(inventory, [&](const auto& records) {
    using Record = typename std::decay_t<decltype(records)>::value_type;
    if constexpr (!std::is_same_v<Record, ShownDevice>) {
      for (const Record& record : records) {
        const bool none = std::is_same_v<Record, ShownCmId> && record.device == ShownCmId::kNoDevice;
        if (record.device >= devices && !none) whole = false;
      }
    }
  });
  return whole ? std::optional(std::move(inventory)) : std::nullopt;
}

}  // namespace uiw::provider
