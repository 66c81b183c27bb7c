// SPDX-License-Identifier: MIT
// The called side of a connection start-up (RFC 5044 section 7.1, responder): a TCP connection on which the MPA request
// has not arrived yet.
#pragma once

#include <functional>
#include <memory>

#include "base/stream/tcp_stream.h"
#include "provider/connect/call.h"

namespace uiw::provider {

class IncomingCall {
 public:
  virtual ~IncomingCall() = default;
  virtual const Call& connection() const = 0;
  // Reads what has arrived of the request. True once all of it is there, or the call has failed.
  virtual bool read() = 0;
  // Whether any octet of the caller has been read.
  virtual bool is_begun() const = 0;
};

// Takes ownership of an accepted socket. Null if the socket cannot be watched; throws std::bad_alloc. Later one of the
// two functions is called once, if the call still exists: `requested` when the request is complete, `failed` if the
// caller closes, sends an invalid request, or sends no complete request before the start-up deadline, or if there is no
// memory. Everything here is called on the thread "uiw-cm" (CmLoop).
std::shared_ptr<IncomingCall> take_call(
    TcpStream&& socket, std::function<void(std::shared_ptr<Call>, const CallParameters& peer)> requested,
    std::function<void(const Call*)> failed);

}  // namespace uiw::provider
