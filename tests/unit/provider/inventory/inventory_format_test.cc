// SPDX-License-Identifier: MIT
#include "provider/inventory/inventory_format.h"

#include <catch2/catch.hpp>
#include <cstring>

using namespace uiw::provider;

namespace {

Inventory sample() {
  Inventory inventory;
  inventory.command = "a program";
  const std::uint32_t lo = inventory.index_of_device("uiw_lo"), eth = inventory.index_of_device("uiw_eth0");
  inventory.devices[lo].counts[index_of(PortCounter::octets_sent)] = 1234567890123;
  inventory.contexts = {{lo, 1}, {eth, 2}};
  inventory.pds = {{eth, 3, 2, 7}};
  inventory.mrs = {{eth, 4, 3, 0xabcd, 0x1000, 4096}, {lo, 5, 3, 1, 0, ~std::uint64_t{0}}};
  ShownQp qp{};
  qp.device = lo;
  qp.number = 0x123456;
  qp.state = 3;
  inventory.qps = {qp};
  ShownCmId id{};
  id.device = ShownCmId::kNoDevice;
  id.state = 8;
  inventory.cm_ids = {id};
  inventory.refusals = {{eth, 0x1234, 0x1000, "no region has this key"}};
  return inventory;
}

template <typename Value>
void store(std::vector<std::byte>& octets, std::size_t offset, Value value) {
  std::memcpy(octets.data() + offset, &value, sizeof value);
}

std::size_t place_of_counts() { return offsetof(InventoryHeader, counts); }

}  // namespace

TEST_CASE("an inventory arrives as it was sent", "[inventory]") {
  const Inventory sent = sample();
  const auto octets = encode_inventory(sent);
  const auto arrived = decode_inventory(octets);
  REQUIRE(arrived);
  CHECK(arrived->command == "a program");
  REQUIRE(arrived->devices.size() == 2);
  CHECK(std::string(arrived->devices[1].name) == "uiw_eth0");
  CHECK(arrived->devices[0].counts == sent.devices[0].counts);
  REQUIRE(arrived->mrs.size() == 2);
  CHECK(arrived->mrs[0].key == 0xabcd);
  CHECK(arrived->mrs[1].length == ~std::uint64_t{0});
  REQUIRE(arrived->qps.size() == 1);
  CHECK(arrived->qps[0].number == 0x123456);
  CHECK(arrived->cm_ids.size() == 1);
  REQUIRE(arrived->refusals.size() == 1);
  CHECK(std::string(arrived->refusals[0].reason) == "no region has this key");
  CHECK(encode_inventory(*arrived) == octets);
}

TEST_CASE("an inventory that is cut off, or has more, is refused", "[inventory]") {
  auto octets = encode_inventory(sample());
  for (std::size_t size = 0; size < octets.size(); ++size) {
    CHECK_FALSE(decode_inventory(std::span(octets).first(size)));
  }
  octets.push_back(std::byte{0});
  CHECK_FALSE(decode_inventory(octets));
}

TEST_CASE("an inventory of another release is refused", "[inventory]") {
  auto octets = encode_inventory(sample());
  SECTION("by its name") { octets[0] = std::byte{'x'}; }
  SECTION("by the size of its records") { store<std::uint32_t>(octets, offsetof(InventoryHeader, sizes) + 4, 12); }
  CHECK_FALSE(decode_inventory(octets));
}

TEST_CASE("counts that promise more than there is are refused, however large", "[inventory]") {
  for (std::size_t kind = 0; kind < kInventoryKinds; ++kind) {
    for (const std::uint32_t count : {3U, 0x7fffffffU, 0xffffffffU}) {
      auto octets = encode_inventory(sample());
      store(octets, place_of_counts() + 4 * kind, count);
      CHECK_FALSE(decode_inventory(octets));
    }
  }
}

TEST_CASE("a record must name a device that there is; only an id may have none", "[inventory]") {
  Inventory inventory = sample();
  SECTION("a queue pair with a device too far") { inventory.qps[0].device = 2; }
  SECTION("a region without one") { inventory.mrs[0].device = ShownCmId::kNoDevice; }
  SECTION("an id with a device too far") { inventory.cm_ids[0].device = 2; }
  CHECK_FALSE(decode_inventory(encode_inventory(inventory)));
}

TEST_CASE("texts of another process end", "[inventory]") {
  Inventory inventory = sample();
  std::memset(inventory.devices[0].name, 'x', sizeof inventory.devices[0].name);
  auto octets = encode_inventory(inventory);
  std::memset(octets.data() + offsetof(InventoryHeader, command), 'y', sizeof InventoryHeader::command);
  const auto arrived = decode_inventory(octets);
  REQUIRE(arrived);
  CHECK(arrived->command == std::string(15, 'y'));
  CHECK(std::strlen(arrived->devices[0].name) == sizeof arrived->devices[0].name - 1);
}
