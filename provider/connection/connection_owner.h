// SPDX-License-Identifier: MIT
#pragma once

namespace uiw::provider {

// The call that has led to a connection. It is told when the connection is established and when it ends. The functions
// are called on any thread, with locks of the connection held, so they may only record what has happened.
//
// connection_ended() is called before the socket is closed and before the peer can learn of the end. At that time
// posted work is not flushed yet. A thread that then waits for the receiver's lock finds all work flushed, or after
// RESET dropped. A Placeholder (the endpoint of an rdma_cm connection without a connected queue pair) has no posted
// work, and calls connection_ended() after it has closed the socket. The connection shares ownership of its owner until
// connection_ended() returns.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  virtual void connection_established() noexcept = 0;
  virtual void connection_ended() noexcept = 0;
};

}  // namespace uiw::provider
