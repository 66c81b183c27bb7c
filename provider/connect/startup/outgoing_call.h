// SPDX-License-Identifier: MIT
// The start-up of the side that calls: TCP connect, MPA Request, and what the reply says (RFC 5044 section 7.1.3, RFC
// 6581).
#pragma once

#include <sys/socket.h>

#include <memory>

#include "provider/connect/connection.h"
#include "provider/export.h"

namespace uiw::provider {

// Calls `remote` from a socket of bind_socket(), which from here on belongs to the connection, also on failure.
// `tos` goes to IP_TOS / IPV6_TCLASS where it is not negative. Thread-safe; does not block: how the call ends is told
// to the observer. 0 or an errno: EINVAL where the queue pair cannot be connected now, or that of CmLoop::start().
UIW_API int connect(int socket, const sockaddr_storage& remote, const ConnectionParameters& own, int tos,
                    std::weak_ptr<ConnectionObserver> observer, std::shared_ptr<Connection>& connection);

}  // namespace uiw::provider
