// SPDX-License-Identifier: MIT
#include "provider/process/device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

using namespace uiw::provider;

namespace {
sockaddr_in ipv4(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, text, &address.sin_addr) == 1);
  return address;
}
sockaddr_in6 ipv6(const char* text) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, text, &address.sin6_addr) == 1);
  return address;
}
template <typename Address>
const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}
}  // namespace

TEST_CASE("device: a GID is the address, IPv4 mapped", "[device]") {
  CHECK(gid_of(generic(ipv4("10.1.2.3"))) == Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 1, 2, 3});
  CHECK(gid_of(generic(ipv6("2001:db8::5"))) == Gid{0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5});
  sockaddr other{};
  other.sa_family = AF_UNIX;
  CHECK(gid_of(&other) == Gid{});
}

TEST_CASE("device: the loopback interface is one", "[device]") {
  const auto devices = enumerate_devices();
  const auto found = std::find_if(devices.begin(), devices.end(), [](const auto& d) { return d.interface == "lo"; });
  REQUIRE(found != devices.end());
  CHECK(found->name == "uiw_lo");
  CHECK(found->loopback);
  CHECK(found->ifindex > 0);
  CHECK(found->guid != 0);
  CHECK(found->mtu >= 1280);
  const Gid local = gid_of(generic(ipv4("127.0.0.1")));
  CHECK(std::find(found->gids.begin(), found->gids.end(), local) != found->gids.end());
}

TEST_CASE("device: in the order of interfaces, each with addresses and a GUID of its own", "[device]") {
  const auto devices = enumerate_devices();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    CHECK(devices[i].name == "uiw_" + devices[i].interface);
    CHECK_FALSE(devices[i].gids.empty());
    for (std::size_t j = 0; j < i; ++j) {
      CHECK(devices[j].ifindex < devices[i].ifindex);
      CHECK(devices[j].guid != devices[i].guid);
    }
  }
  const auto again = enumerate_devices();
  REQUIRE(again.size() == devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) CHECK(again[i].guid == devices[i].guid);
}

TEST_CASE("device: the device of an address", "[device]") {
  CHECK(device_of(generic(ipv4("127.0.0.1"))).name == "uiw_lo");
  CHECK(device_of(generic(ipv4("127.200.3.4"))).name == "uiw_lo");
  CHECK(device_of(generic(ipv4("0.0.0.0"))).name.empty());
  CHECK(device_of(generic(ipv6("::"))).name.empty());
  CHECK(device_of(generic(ipv4("192.0.2.1"))).name.empty());
  CHECK(device_of(generic(ipv6("2001:db8::1"))).name.empty());
  sockaddr other{};
  other.sa_family = AF_UNIX;
  CHECK(device_of(&other).name.empty());
  for (const auto& device : enumerate_devices()) {
    for (const Gid& gid : device.gids) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      std::memcpy(&address.sin6_addr, gid.data(), gid.size());
      if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        std::memcpy(&v4.sin_addr, gid.data() + 12, 4);
        CHECK(device_of(generic(v4)).name == device.name);
      } else {
        address.sin6_scope_id = device.ifindex;
        CHECK(device_of(generic(address)).name == device.name);
        if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) {
          address.sin6_scope_id = 0x7FFFFFFF;
          CHECK(device_of(generic(address)).name.empty());
        }
      }
    }
  }
}

TEST_CASE("device: the index of an address in the GID table", "[device]") {
  DeviceInfo device;
  for (const auto* text : {"fe80::1", "2001:db8::1"}) device.gids.push_back(gid_of(generic(ipv6(text))));
  for (const auto* text : {"127.0.0.1", "10.0.0.1"}) device.gids.push_back(gid_of(generic(ipv4(text))));
  CHECK(gid_index_of(device, generic(ipv6("fe80::1"))) == 0);
  CHECK(gid_index_of(device, generic(ipv6("2001:db8::1"))) == 1);
  CHECK(gid_index_of(device, generic(ipv4("10.0.0.1"))) == 3);
  // Answered to without being listed: the first of the family.
  CHECK(gid_index_of(device, generic(ipv4("127.0.0.2"))) == 2);
  CHECK(gid_index_of(device, generic(ipv6("2001:db8::2"))) == 0);
  device.gids.resize(2);
  CHECK(gid_index_of(device, generic(ipv4("10.0.0.1"))) == 0);
}
