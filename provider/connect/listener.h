// SPDX-License-Identifier: MIT
// Who calls: a listening socket, and the calls on it whose requests are not whole yet.
//
// A listener is owned by who asked for it, and is held weakly by CmLoop. It holds its observer weakly, and calls it on
// the thread of CmLoop without a lock.
#pragma once

#include <memory>

#include "provider/connect/connection.h"
#include "provider/export.h"

namespace uiw::provider {

class ListenObserver {
 public:
  virtual ~ListenObserver() = default;
  // A peer calls. Dropping `call` without an answer closes it.
  virtual void requested(std::shared_ptr<Connection> call, const ConnectionParameters& peer) = 0;
};

// A listening socket. Destroying it stops listening; calls already handed out live on.
class UIW_API Listener {
 public:
  virtual ~Listener() = default;
};

// Listens on a socket from bind_socket() (local_address.h), which from here on belongs to the listener, also on
// failure. Thread-safe. 0 or an errno, EADDRINUSE where another process listens there.
UIW_API int listen(int socket, int backlog, std::weak_ptr<ListenObserver> observer,
                   std::shared_ptr<Listener>& listener);

}  // namespace uiw::provider
