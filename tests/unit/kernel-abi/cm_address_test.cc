// SPDX-License-Identifier: MIT
// Sources: kernel-abi/rdma_cm/cm_address.cc (hidden in libuiw.so.1)
#include "kernel-abi/rdma_cm/cm_address.h"

#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <cstring>

using namespace uiw::kernel_abi;

namespace {

sockaddr_storage ip(const char* text, std::uint16_t port = 0) {
  sockaddr_storage address = {};
  if (std::strchr(text, ':') != nullptr) {
    sockaddr_in6 ipv6 = {};
    ipv6.sin6_family = AF_INET6;
    REQUIRE(inet_pton(AF_INET6, text, &ipv6.sin6_addr) == 1);
    std::memcpy(&address, &ipv6, sizeof ipv6);
  } else {
    sockaddr_in ipv4 = {};
    ipv4.sin_family = AF_INET;
    REQUIRE(inet_pton(AF_INET, text, &ipv4.sin_addr) == 1);
    std::memcpy(&address, &ipv4, sizeof ipv4);
  }
  set_port(address, port);
  return address;
}

}  // namespace

TEST_CASE("an address is taken only whole") {
  const sockaddr_storage ipv6 = ip("2001:db8::1", 7);
  CHECK(address_from(&ipv6, sizeof(sockaddr_in6)).ss_family == AF_INET6);
  CHECK(address_from(&ipv6, sizeof(sockaddr_in6) - 1).ss_family == 0);
  CHECK(address_from(&ipv6, 1).ss_family == 0);
  const sockaddr_storage unknown = wildcard_of(AF_UNIX);
  CHECK(address_from(&unknown, sizeof unknown).ss_family == 0);
  CHECK(address_size(AF_IB) == 48);
}

TEST_CASE("wildcards and scopes are told apart") {
  CHECK(is_wildcard(ip("0.0.0.0", 9)));
  CHECK(is_wildcard(ip("::")));
  CHECK(is_wildcard(wildcard_of(AF_IB)));
  CHECK_FALSE(is_wildcard(ip("192.0.2.1")));
  CHECK(lacks_scope(ip("fe80::1")));
  CHECK_FALSE(lacks_scope(ip("2001:db8::1")));
}

TEST_CASE("ports are read and written in every family") {
  CHECK(port_of(ip("192.0.2.1", 4711)) == 4711);
  CHECK(port_of(ip("::", 4711)) == 4711);
  sockaddr_storage ib = wildcard_of(AF_IB);
  set_port(ib, 4711);
  CHECK(port_of(ib) == 4711);
  CHECK(port_of(loopback_of(AF_INET6, 5)) == 5);
}

TEST_CASE("IPv4-mapped addresses are IPv4 addresses") {
  const sockaddr_storage plain = unmapped(ip("::ffff:192.0.2.1", 80));
  CHECK(plain.ss_family == AF_INET);
  CHECK(port_of(plain) == 80);
  CHECK(unmapped(ip("2001:db8::1")).ss_family == AF_INET6);
}

TEST_CASE("an IPv4-mapped address and its IPv4 address are the same host") {
  CHECK(is_same_host(ip("192.0.2.1", 1), ip("192.0.2.1", 2)));
  CHECK(is_same_host(ip("192.0.2.1"), ip("::ffff:192.0.2.1")));
  CHECK(is_same_host(ip("2001:db8::1"), ip("2001:db8::1")));
  CHECK_FALSE(is_same_host(ip("192.0.2.1"), ip("192.0.2.2")));
  CHECK_FALSE(is_same_host(ip("0.0.0.0"), ip("192.0.2.1")));
  CHECK_FALSE(is_same_host(ip("2001:db8::1"), ip("2001:db8::2")));
  CHECK_FALSE(is_same_host(ip("0.0.0.0"), ip("::")));
}
