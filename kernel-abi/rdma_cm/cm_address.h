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

// The size of the family's structure; 0 for any other family.
std::size_t address_size(int family);

// The address in these `size` octets, with zeros behind it; all zero if the family is unknown or there are too few
// octets.
sockaddr_storage address_from(const void* octets, std::size_t size);

// True for 0.0.0.0, ::, or a zero GID.
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

// Whether these are the same IP address, on whatever ports.
bool is_same_host(const sockaddr_storage& one, const sockaddr_storage& other);

using provider::generic;

}  // namespace uiw::kernel_abi
