// SPDX-License-Identifier: MIT
// Copies addresses to and from sockaddr_storage by memcpy, without casts, since the program may pass any octets.
#include "kernel-abi/rdma_cm/cm_address.h"

#include <arpa/inet.h>
#include <endian.h>

#include <cstring>

namespace uiw::kernel_abi {
namespace {

template <typename Address>
Address as(const sockaddr_storage& storage) {
  static_assert(sizeof(Address) <= sizeof(sockaddr_storage));
  Address address;
  std::memcpy(&address, &storage, sizeof address);
  return address;
}

template <typename Address>
sockaddr_storage stored(const Address& address) {
  sockaddr_storage storage = {};
  std::memcpy(&storage, &address, sizeof address);
  return storage;
}

bool is_zero(const void* octets, std::size_t size) {
  static constexpr unsigned char kZero[16] = {};
  return std::memcmp(octets, kZero, size) == 0;
}

}  // namespace

std::size_t address_size(int family) {
  switch (family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case AF_IB: return sizeof(sockaddr_ib);
    default: return 0;
  }
}

sockaddr_storage address_from(const void* octets, std::size_t size) {
  sockaddr_storage address = {};
  if (size < sizeof address.ss_family) return address;
  sa_family_t family;
  std::memcpy(&family, octets, sizeof family);
  const std::size_t needed = address_size(family);
  if (needed != 0 && needed <= size) std::memcpy(&address, octets, needed);
  return address;
}

bool is_wildcard(const sockaddr_storage& address) {
  switch (address.ss_family) {
    case AF_INET: return as<sockaddr_in>(address).sin_addr.s_addr == htonl(INADDR_ANY);
    case AF_INET6: return is_zero(as<sockaddr_in6>(address).sin6_addr.s6_addr, 16);
    case AF_IB: {
      const auto ib = as<sockaddr_ib>(address);
      return is_zero(&ib.sib_addr, sizeof ib.sib_addr);
    }
    default: return true;
  }
}

bool is_loopback(const sockaddr_storage& address) {
  const sockaddr_storage plain = unmapped(address);
  if (plain.ss_family == AF_INET) return ntohl(as<sockaddr_in>(plain).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  if (plain.ss_family != AF_INET6) return false;
  const auto ipv6 = as<sockaddr_in6>(plain);
  return IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr) != 0;
}

bool lacks_scope(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return false;
  const auto ipv6 = as<sockaddr_in6>(address);
  return IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr) && ipv6.sin6_scope_id == 0;
}

sockaddr_storage wildcard_of(int family) {
  sockaddr_storage address = {};
  address.ss_family = static_cast<sa_family_t>(family);
  return address;
}

sockaddr_storage loopback_of(int family, std::uint16_t port) {
  if (family == AF_INET6) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    address.sin6_port = htons(port);
    return stored(address);
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return stored(address);
}

std::uint16_t port_of(const sockaddr_storage& address) {
  switch (address.ss_family) {
    case AF_INET: return ntohs(as<sockaddr_in>(address).sin_port);
    case AF_INET6: return ntohs(as<sockaddr_in6>(address).sin6_port);
    case AF_IB: {
      const auto ib = as<sockaddr_ib>(address);
      return static_cast<std::uint16_t>(be64toh(ib.sib_sid) & be64toh(ib.sib_sid_mask));
    }
    default: return 0;
  }
}

void set_port(sockaddr_storage& address, std::uint16_t port) {
  if (address.ss_family == AF_INET) {
    auto ipv4 = as<sockaddr_in>(address);
    ipv4.sin_port = htons(port);
    address = stored(ipv4);
  } else if (address.ss_family == AF_INET6) {
    auto ipv6 = as<sockaddr_in6>(address);
    ipv6.sin6_port = htons(port);
    address = stored(ipv6);
  } else if (address.ss_family == AF_IB) {
    auto ib = as<sockaddr_ib>(address);
    ib.sib_sid = htobe64((be64toh(ib.sib_sid) & ~std::uint64_t{0xffff}) | port);
    ib.sib_sid_mask = ~std::uint64_t{0};
    address = stored(ib);
  }
}

sockaddr_storage unmapped(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return address;
  const auto ipv6 = as<sockaddr_in6>(address);
  if (!IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) return address;
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = ipv6.sin6_port;
  std::memcpy(&ipv4.sin_addr, ipv6.sin6_addr.s6_addr + 12, sizeof ipv4.sin_addr);
  return stored(ipv4);
}

bool is_same_host(const sockaddr_storage& one, const sockaddr_storage& other) {
  const sockaddr_storage a = unmapped(one);
  const sockaddr_storage b = unmapped(other);
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) return as<sockaddr_in>(a).sin_addr.s_addr == as<sockaddr_in>(b).sin_addr.s_addr;
  const auto ipv6_a = as<sockaddr_in6>(a);
  const auto ipv6_b = as<sockaddr_in6>(b);
  return std::memcmp(&ipv6_a.sin6_addr, &ipv6_b.sin6_addr, sizeof ipv6_a.sin6_addr) == 0 &&
         ipv6_a.sin6_scope_id == ipv6_b.sin6_scope_id;
}

}  // namespace uiw::kernel_abi
