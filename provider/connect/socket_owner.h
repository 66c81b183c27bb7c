// SPDX-License-Identifier: MIT
// The owner of a TCP socket of this network namespace, as the kernel knows it.
//
// Owners are found by NETLINK_SOCK_DIAG (sock_diag(7)), or in /proc/net/tcp if that is not available. Users that have
// no number in the user namespace of the calling process (user_namespaces(7)) all appear as one number, so they count
// as unknown. All functions are thread-safe; the kernel answers at once. Addresses are IPv4 or IPv6, with ports.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>

namespace uiw::provider {

// Returns `user`, a number from the kernel. Empty if it stands for all users without a number in this user namespace.
std::optional<uid_t> known_user(uid_t user);

// Whether this address belongs to the calling process's network namespace, so that a socket with this address can be
// found here. Nothing if that cannot be determined.
std::optional<bool> is_local_address(const sockaddr_storage& address);

// The user of the socket that is bound to `local` and connected to `remote`. Nothing if there is no such socket, if its
// process has closed it, or if its user has no number in the user namespace of the calling process.
std::optional<uid_t> owner_of_connection(const sockaddr_storage& local, const sockaddr_storage& remote);

// The user of the socket that listens on this address. Nothing if there is no such socket, or if its user has no number
// in the user namespace of the calling process.
std::optional<uid_t> owner_of_listener(const sockaddr_storage& address);

}  // namespace uiw::provider
