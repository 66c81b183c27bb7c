// SPDX-License-Identifier: MIT
// What a listener makes of a socket that it has accepted: a connection whose request is still to come.
#pragma once

#include <functional>
#include <memory>

#include "mpa/tcp_stream.h"
#include "provider/connect/connection.h"

namespace uiw::provider {

// To be called on the thread of CmLoop. The socket belongs to the connection from here on, and is closed with it. Null
// where there are no means to watch it. On that thread, later, one of the two is called, once, while the connection is
// there: `requested` when the request is whole, `failed` when none that can be answered has come in time.
std::shared_ptr<Connection> take_call(
    mpa::TcpStream&& socket,
    std::function<void(std::shared_ptr<Connection>, const ConnectionParameters& peer)> requested,
    std::function<void(const Connection*)> failed);

}  // namespace uiw::provider
