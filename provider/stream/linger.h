// SPDX-License-Identifier: MIT
// The end of a socket nobody waits for.
#pragma once

namespace uiw::provider {

// Sends what TCP still holds and the end of the stream, drops what comes, and closes once the peer has closed too, or
// after some seconds. Closing at once could reset the connection under data the peer has not read.
void linger_and_close(int fd);

// The same for a peer that nobody has let in: at once where many linger already, so that strangers cannot have them
// all.
void linger_and_close_rejected(int fd);

}  // namespace uiw::provider
