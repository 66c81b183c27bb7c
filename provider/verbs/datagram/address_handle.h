// SPDX-License-Identifier: MIT
// An address handle: the destination address of datagrams, and their source address.
#pragma once

#include <infiniband/verbs.h>

#include "provider/datagram/datagram_socket.h"
#include "provider/export.h"

namespace uiw::provider {

struct AddressHandle {
  ibv_ah base;  // the part that the program sees
  DatagramRoute route;
};

// Resolves the next hop to the destination, and waits one second at most, as ibv_create_ah does on RoCE before it makes
// a handle. Returns 0; ETIMEDOUT; the error of the route (ENETUNREACH, EHOSTUNREACH, EACCES, or EINVAL for a black
// hole); EINVAL also if the two addresses are not of one family.
UIW_API int find_way(const DatagramRoute& route);

// `handle` must have been created by uiw.
inline const DatagramRoute& route_of(const ibv_ah* handle) {
  return reinterpret_cast<const AddressHandle*>(handle)->route;
}

}  // namespace uiw::provider
