// SPDX-License-Identifier: MIT
// A listening socket, and the calls on it that were not passed to the observer yet.
//
// The caller of listen() owns the listener; CmLoop keeps a weak reference. The listener keeps a weak reference to its
// observer and calls it on the thread of CmLoop, without a lock held.
#pragma once

#include <memory>

#include "provider/connect/call.h"

namespace uiw::provider {

class ListenObserver {
 public:
  virtual ~ListenObserver() = default;
  // A peer has sent a request. Destroying `call` without an answer closes it.
  virtual void requested(std::shared_ptr<Call> call, const CallParameters& peer) = 0;
  // Whether there is room for another request. While there is no room, requests wait. Requests that have waited too
  // long or are too many are reported all the same, so that the observer refuses them. A listener for look-ups
  // (lookup/lookup.h) does not call this function.
  virtual bool has_room() { return true; }
};

// A listening socket. Destroying the object stops listening, for TCP even if the child of a fork has a copy of the
// descriptor. Calls that were passed to the observer go on.
class Listener {
 public:
  virtual ~Listener() = default;
  // The descriptor of the socket. The child of a fork may make a listener of its own from the descriptor. The child
  // neither uses nor destroys its copy of this object, which a thread of the parent may have been changing during the
  // fork.
  virtual int descriptor() const = 0;
};

// Listens on a socket from bind_socket() or holding_socket() (local_address.h); the listener owns the socket from here
// on. After a failure the socket is closed. Thread-safe. 0 or an errno, EADDRINUSE if another socket listens there.
// Throws std::bad_alloc.
int listen(int socket, int backlog, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener);

}  // namespace uiw::provider
