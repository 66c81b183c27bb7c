// SPDX-License-Identifier: MIT
// An address handle: the address that a datagram is sent to, and the one that it comes from.
#pragma once

#include <infiniband/verbs.h>

#include "provider/datagram/datagram_socket.h"
#include "provider/export.h"

namespace uiw::provider {

struct AddressHandle {
  ibv_ah base;  // the program's
  DatagramRoute route;
};

// Resolves the next hop to the destination, within a second, as ibv_create_ah does on RoCE before it makes a handle.
// Returns 0; ETIMEDOUT, ENETUNREACH or EHOSTUNREACH; EINVAL if the two addresses are not of one family.
UIW_API int find_way(const DatagramRoute& route);

// The address handle must be one of uiw's.
inline const DatagramRoute& route_of(const ibv_ah* handle) {
  return reinterpret_cast<const AddressHandle*>(handle)->route;
}

}  // namespace uiw::provider
