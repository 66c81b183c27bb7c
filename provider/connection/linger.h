// SPDX-License-Identifier: MIT
// How to close a socket whose last octets TCP has not delivered yet. The functions take ownership of the socket, which
// must be open. Thread-safe.
#pragma once

#include "base/stream/tcp_stream.h"

namespace uiw::provider {

// Lets TCP send what it still has, then FIN; discards what arrives, and closes the socket when the peer has closed. If
// the peer does not close, the socket is closed after 5 s without progress, or after a minute; a peer that has not
// acknowledged everything is reset. Closing at once could reset a peer before it has read everything; that risk is
// taken only if there is no memory, or no thread "uiw-cm", to wait for the peer.
void linger_and_close(TcpStream&& socket);

// As linger_and_close(), for a connection that was rejected. Closes at once if many sockets linger already, so that
// unknown peers cannot use up the descriptors.
void linger_and_close_rejected(TcpStream&& socket);

}  // namespace uiw::provider
