// SPDX-License-Identifier: MIT
// The end of a socket nobody waits for.
#pragma once

namespace uiw::provider {

// Sends what TCP still holds and the end of the stream, drops what comes, and closes once the peer has closed too, or
// after some seconds. Closing at once could reset the connection under data the peer has not read.
void linger_and_close(int fd);

}  // namespace uiw::provider
