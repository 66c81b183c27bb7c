// SPDX-License-Identifier: MIT
// Checks that an address can be reached as far as the next hop: there is a route, and the next hop (the destination or
// a gateway) has answered with its link-layer address. Adapters check this before they connect (core/addr.c of the
// kernel); TCP would notice a missing neighbour only seconds later.
//
// The kernel resolves the next hop (ARP, neighbour discovery) only when something is sent. So an empty datagram is sent
// to the discard port if the neighbour is not known yet. If netlink does not work, the address counts as reachable.
// Thread-safe. No function throws.
#pragma once

#include <sys/socket.h>

#include <chrono>

namespace uiw::provider {

// Whether the next hop from the local address `source` to `destination` is known: 0 if it is known or needs no
// resolution (addresses of this host, multicast, interfaces without ARP or neighbour discovery), and also if the kernel
// does not say or sends no datagram; EINPROGRESS while the kernel resolves it; otherwise the error of the route:
// ENETUNREACH, EHOSTUNREACH, EACCES or EINVAL. A link-local IPv6 address needs its scope (sin6_scope_id).
int look_at_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

// How long a caller waits after EINPROGRESS before it calls look_at_neighbour() again. `asked`: how often the caller
// has waited before.
std::chrono::milliseconds neighbour_pause(unsigned asked);

// Waits until the neighbour is known, for one second at most, as the drivers of adapters do. Returns 0, ETIMEDOUT, or
// an error of look_at_neighbour(). Since this blocks, the caller must hold no lock and be in no ReadSection
// (base/grace_period.h).
int await_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

}  // namespace uiw::provider
