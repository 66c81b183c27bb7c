// SPDX-License-Identifier: MIT
#include "provider/verbs/datagram/address_handle.h"

#include <cerrno>

#include "provider/connect/neighbour.h"

namespace uiw::provider {

int find_way(const DatagramRoute& route) {
  if (is_ipv4(route.from) != is_ipv4(route.to)) return EINVAL;
  if (is_multicast(route.to)) return 0;
  return await_neighbour(address_of(route.from, route.scope, 0), address_of(route.to, route.scope, 0));
}

}  // namespace uiw::provider
