// SPDX-License-Identifier: MIT
// Socket addresses in rdma_cm commands: IPv4, IPv6 and AF_IB. Functions without state; none throws.
#pragma once

#include <infiniband/ib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "provider/connect/local_address.h"

namespace uiw::kernel_abi {

// The size of the socket address structure of AF_INET, AF_INET6 or AF_IB; 0 for any other family.
std::size_t address_size(int family);

// Returns the address at the start of these `size` octets; the rest of the result is zero. All of the result is zero if
// address_size() does not know the family, or if there are too few octets for an address of this family.
sockaddr_storage address_from(const void* octets, std::size_t size);

// True for 0.0.0.0, :: and a zero GID, and for an address of any other family.
bool is_wildcard(const sockaddr_storage& address);
// True for 127.0.0.0/8, also as an IPv4-mapped address, and ::1.
bool is_loopback(const sockaddr_storage& address);
// True for an IPv6 link-local address without a scope (interface).
bool lacks_scope(const sockaddr_storage& address);

sockaddr_storage wildcard_of(int family);
// The family's loopback address with this port.
sockaddr_storage loopback_of(int family, std::uint16_t port);

// The port, in host byte order.
std::uint16_t port_of(const sockaddr_storage& address);
void set_port(sockaddr_storage& address, std::uint16_t port);

// The IPv4 address of an IPv4-mapped IPv6 address; other addresses unchanged.
sockaddr_storage unmapped(const sockaddr_storage& address);

// Whether these are the same IP address (IPv6: in the same scope), on whatever ports. An IPv4-mapped address counts as
// the IPv4 one.
bool is_same_host(const sockaddr_storage& one, const sockaddr_storage& other);

using provider::generic;

}  // namespace uiw::kernel_abi
