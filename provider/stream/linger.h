// SPDX-License-Identifier: MIT
// Closing a socket whose last octets are still to be delivered. Thread-safe; the functions own `fd` from here on.
#pragma once

namespace uiw::provider {

// Sends the octets that TCP still holds and FIN, discards what arrives, and closes the socket when the peer has closed,
// or after some seconds. Closing at once could reset the connection while the peer has not read everything.
void linger_and_close(int fd);

// The same for a peer that was never accepted: closes at once if many such sockets linger already, so that strangers
// cannot use up descriptors.
void linger_and_close_rejected(int fd);

}  // namespace uiw::provider
