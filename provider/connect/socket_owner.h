// SPDX-License-Identifier: MIT
// Whose is a TCP socket of this network namespace? The kernel knows, whatever its owner says of himself.
//
// It is asked by NETLINK_SOCK_DIAG (sock_diag(7)), or /proc/net/tcp where that is not there. Users that the calling
// process has no number for (user_namespaces(7)) cannot be told apart, and are nobody here. All functions are
// thread-safe; the kernel answers at once. Addresses are IPv4 or IPv6, with ports.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>

namespace uiw::provider {

// Is this address one of the calling process's network namespace? A socket that has it is then found here, if it is
// there. Empty where that could not be found out.
std::optional<bool> is_local_address(const sockaddr_storage& address);

// The user of the open socket that is bound to `local` and connected to `remote`; empty where there is none, where it
// is closed by its process, or its user has no number here.
std::optional<uid_t> owner_of_connection(const sockaddr_storage& local, const sockaddr_storage& remote);

// The user of the socket that listens on this address.
std::optional<uid_t> owner_of_listener(const sockaddr_storage& address);

}  // namespace uiw::provider
