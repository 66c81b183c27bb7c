// SPDX-License-Identifier: MIT
// Socket addresses as the rdma_cm commands carry them: IPv4, IPv6 and AF_IB.
#pragma once

#include <infiniband/ib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "provider/connect/local_address.h"

namespace uiw::kernel_abi {

// Of the address's own structure; 0 for a family that is not one of the three.
std::size_t address_size(int family);

// Of at most `size` octets, the rest zero; all zero for an unknown family or where too few octets are there.
sockaddr_storage address_from(const void* octets, std::size_t size);

// No particular host: 0.0.0.0, ::, or a zero GID.
bool is_wildcard(const sockaddr_storage& address);
// IPv6 link-local without the interface that makes it an address.
bool lacks_scope(const sockaddr_storage& address);

sockaddr_storage wildcard_of(int family);
// The family's loopback address with this port.
sockaddr_storage loopback_of(int family, std::uint16_t port);

// Host byte order.
std::uint16_t port_of(const sockaddr_storage& address);
void set_port(sockaddr_storage& address, std::uint16_t port);

// IPv4 in place of an IPv4-mapped IPv6 address; anything else as it is.
sockaddr_storage unmapped(const sockaddr_storage& address);

// Could two sockets bound to these hosts receive the same connection?
bool hosts_overlap(const sockaddr_storage& one, const sockaddr_storage& other);

using provider::generic;

}  // namespace uiw::kernel_abi
