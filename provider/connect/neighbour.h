// SPDX-License-Identifier: MIT
// Finds out whether an address can be reached as far as the first hop: there is a route, and the next hop, which is the
// host itself or a gateway, has answered with its link-layer address. Adapters find that out before they connect
// (core/addr.c of the kernel), while TCP would notice a missing neighbour only seconds later.
//
// The kernel resolves the next hop (ARP, neighbour discovery) only when something is sent, so if the neighbour is not
// known yet, an empty datagram is sent to the discard port. If the kernel cannot be asked, the address counts as
// reachable. Thread-safe. No function throws.
#pragma once

#include <sys/socket.h>

#include <chrono>

namespace uiw::provider {

// Whether the way from a local address to `destination` is known: 0 if the next hop is known, or none is needed
// (addresses of this host, multicast, interfaces without such a protocol); EINPROGRESS while the kernel resolves it;
// otherwise the error of the route: ENETUNREACH, EHOSTUNREACH, EACCES or EINVAL. A link-local IPv6 address must have
// its scope.
int look_at_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

// How long a caller that has got EINPROGRESS waits before it asks again; `asked` counts the questions so far.
std::chrono::milliseconds neighbour_pause(unsigned asked);

// Waits until the neighbour is known, for a second at most, as long as adapters wait. 0, ETIMEDOUT, or an error of
// look_at_neighbour(). For callers that hold no lock and are in no ReadSection.
int await_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination);

}  // namespace uiw::provider
