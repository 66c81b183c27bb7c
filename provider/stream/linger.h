// SPDX-License-Identifier: MIT
// How to close a socket whose last octets TCP has not delivered yet. Thread-safe. The functions take ownership of `fd`.
#pragma once

namespace uiw::provider {

// Sends the octets that TCP still holds and FIN, discards what arrives, and closes the socket when the peer has closed,
// or after some seconds. Closing at once could reset the connection while the peer has not read everything.
void linger_and_close(int fd);

// As linger_and_close(), for a connection that was rejected. Closes at once if many sockets linger already, so that
// unknown peers cannot use up the descriptors.
void linger_and_close_rejected(int fd);

}  // namespace uiw::provider
