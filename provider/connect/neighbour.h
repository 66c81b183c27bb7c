// SPDX-License-Identifier: MIT
// Whether an address can be reached as far as the first hop: there is a route, and the host or gateway next on it has
// answered with its link-layer address. Adapters find that out before they connect (core/addr.c of the kernel), while
// TCP would notice a missing neighbour only seconds later.
//
// The kernel resolves the next hop (ARP, neighbour discovery) for what is sent, so an empty datagram to the discard
// port goes to a neighbour that is not known yet. If the kernel cannot be asked, the address counts as reachable.
// Thread-safe. No function throws.
#pragma once

#include <sys/socket.h>

#include <chrono>

namespace uiw::provider {

// Whether the way from a local address to `destination` is known: 0 if the next hop is known, or none is needed
// (addresses of this host, multicast, interfaces without such a protocol); EINPROGRESS while the kernel asks for it;
// else the reason why there is no way: ENETUNREACH, EHOSTUNREACH, EACCES or EINVAL, by the route. A link-local IPv6
// address has its scope.
int look_at_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

// How long a caller that has got EINPROGRESS waits before it asks again; `asked` counts the questions so far.
std::chrono::milliseconds neighbour_pause(unsigned asked);

// Waits until the neighbour is known, for a second at most, as long as adapters wait. 0, ETIMEDOUT, or an error of
// look_at_neighbour(). For callers that hold no lock and are in no ReadSection.
int await_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

}  // namespace uiw::provider
