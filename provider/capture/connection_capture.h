// SPDX-License-Identifier: MIT
// Writes the octets of one connection into the capture file, as TCP segments: what the stream sends or receives by one
// call becomes one segment, or several if these octets are many or lie in many places.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "base/stream/stream_tap.h"

namespace uiw::provider {

// Makes the object that captures a new connection; `calls`: this end is the caller. Null if nothing is captured, if the
// other end already captures the connection into the same file, or if there is no memory. An error of the capture, such
// as a full disk, never ends the connection.
std::unique_ptr<StreamTap> capture_connection(const sockaddr_storage& local, const sockaddr_storage& remote,
                                              bool calls) noexcept;

}  // namespace uiw::provider
