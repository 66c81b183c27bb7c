// SPDX-License-Identifier: MIT
// The called side of a start-up: a connection whose request has not arrived yet (RFC 5044 section 7.1, responder).
#pragma once

#include <functional>
#include <memory>

#include "mpa/stream/tcp_stream.h"
#include "provider/connect/connection.h"

namespace uiw::provider {

// To be called on the thread of CmLoop. The connection owns the socket from here on. Null if the socket cannot be
// watched. Later one of the two functions is called once on that thread, if the connection still exists: `requested`
// when the request is complete, `failed` if no valid request has arrived in time.
std::shared_ptr<Connection> take_call(
    mpa::TcpStream&& socket,
    std::function<void(std::shared_ptr<Connection>, const ConnectionParameters& peer)> requested,
    std::function<void(const Connection*)> failed);

}  // namespace uiw::provider
