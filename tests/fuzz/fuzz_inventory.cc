// SPDX-License-Identifier: MIT
// Inventories that another process of the host sends: whatever comes is refused or read, each record that is read names
// a device that there is, each text ends, and they are encoded as octets that say the same.
#include <cstdint>
#include <type_traits>

#include "provider/inventory/inventory_format.h"
#include "tests/fuzz/stream/check.h"

using namespace uiw::provider;
using uiw::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto inventory = decode_inventory(std::as_bytes(std::span(data, size)));
  if (!inventory) return 0;
  check(inventory->command.size() < sizeof InventoryHeader::command);
  for (const ShownDevice& device : inventory->devices) check(std::strlen(device.name) < sizeof device.name);
  for_each_kind(*inventory, [&](const auto& records) {
    using Record = typename std::decay_t<decltype(records)>::value_type;
    if constexpr (!std::is_same_v<Record, ShownDevice>) {
      for (const Record& record : records)
        check(record.device < inventory->devices.size() ||
              (std::is_same_v<Record, ShownCmId> && record.device == ShownCmId::kNoDevice));
    }
  });
  const auto octets = encode_inventory(*inventory);
  const auto again = decode_inventory(octets);
  check(again.has_value() && encode_inventory(*again) == octets);
  return 0;
}
