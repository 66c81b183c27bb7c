// SPDX-License-Identifier: MIT
// How to close a socket whose last octets TCP has not delivered yet. Thread-safe. The functions take the open socket.
#pragma once

#include "base/stream/tcp_stream.h"

namespace uiw::provider {

// Lets TCP send what it still has, then FIN; discards what arrives, and closes the socket when the peer has closed.
// After some seconds it closes anyway, which resets a peer that has not read everything; closing at once could do so
// too early.
void linger_and_close(TcpStream&& socket);

// As linger_and_close(), for a connection that was rejected. Closes at once if many sockets linger already, so that
// unknown peers cannot use up the descriptors.
void linger_and_close_rejected(TcpStream&& socket);

}  // namespace uiw::provider
