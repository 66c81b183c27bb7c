// SPDX-License-Identifier: MIT
// Writes what one connection carries into the file of UIW_CAPTURE, as segments of TCP: what the stream sends or
// receives at a time is a segment, or several if it is long.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "base/stream/stream_tap.h"

namespace uiw::provider {

// The tap of a new connection, from or to this process. Null if nothing is captured, or if the other end is captured
// into the same file and has come first. A full disk or a lack of memory ends the capture and not the connection.
std::unique_ptr<StreamTap> capture_connection(const sockaddr_storage& local, const sockaddr_storage& remote,
                                              bool calls) noexcept;

}  // namespace uiw::provider
