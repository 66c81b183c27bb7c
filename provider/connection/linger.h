// SPDX-License-Identifier: MIT
// How to close a socket whose last octets TCP has not delivered yet. Thread-safe. The functions take the open socket.
#pragma once

#include "base/stream/tcp_stream.h"

namespace uiw::provider {

// Sends FIN and the octets that TCP still has, discards what arrives, and closes the socket when the peer has closed,
// or after some seconds; then a peer that has not read everything is reset. Closing at once could reset the connection
// while the peer has not read everything.
void linger_and_close(TcpStream&& socket);

// As linger_and_close(), for a connection that was rejected. Closes at once if many sockets linger already, so that
// unknown peers cannot use up the descriptors.
void linger_and_close_rejected(TcpStream&& socket);

}  // namespace uiw::provider
