// SPDX-License-Identifier: MIT
// The calling side of a connection start-up: TCP connect, MPA Request, and the evaluation of the reply (RFC 5044
// section 7.1, initiator; RFC 6581).
#pragma once

#include <sys/socket.h>

#include <memory>

#include "provider/connect/call.h"

namespace uiw::provider {

// Calls `remote` from a socket of bind_socket() or calling_socket(); the call owns the socket from here on, also after
// a failure. `tos`, if it is positive, is set as IP_TOS, and for IPv6 as IPV6_TCLASS, too. Thread-safe; does not block:
// the observer is called with the result. 0 or an errno: EINVAL if the queue pair cannot be connected now, or an errno
// of CmLoop::start() or CmLoop::watch(). Throws std::bad_alloc.
int connect(int socket, const sockaddr_storage& remote, const CallParameters& own, int tos,
            std::weak_ptr<CallObserver> observer, std::shared_ptr<Call>& connection);

}  // namespace uiw::provider
