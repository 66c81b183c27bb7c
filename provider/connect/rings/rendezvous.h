// SPDX-License-Identifier: MIT
// How the two ends of a TCP connection find out that they are processes of one user in one network namespace, and share
// memory for their stream (mpa/stream/shared_stream.h): by an abstract Unix socket, whose name has the addresses and
// ports of the connection. The caller listens there before it sends the request of MPA; the called end connects before
// it sends the reply, and passes on the memory. So when the reply arrives, the caller has all that there will be, and
// nobody waits.
//
// Whatever of it cannot be had (other namespaces or users, an end that does not know this, no descriptors or memory, a
// sandbox), the stream stays on TCP, and only the log tells. Each end believes only a peer whose user the kernel says
// to be its own. Nothing blocks. Thread-safe.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "mpa/stream/shared_stream.h"

namespace uiw::provider {

class RingRendezvous {
 public:
  // For the caller, of whose TCP connection these are the ends. Null where there can be no shared memory.
  static std::unique_ptr<RingRendezvous> listen(const sockaddr_storage& local, const sockaddr_storage& remote);
  ~RingRendezvous();
  RingRendezvous(const RingRendezvous&) = delete;
  RingRendezvous& operator=(const RingRendezvous&) = delete;

  // The reply of MPA has arrived: what the called end has offered; null if there is nothing, or it cannot be used.
  std::shared_ptr<mpa::SharedOffer> take();

 private:
  explicit RingRendezvous(int fd) : fd_(fd) {}
  int accept() const;

  const int fd_;
};

// For the called end, before it replies: offers memory to the caller. Null where there can be none.
std::shared_ptr<mpa::SharedOffer> offer_rings(const sockaddr_storage& local, const sockaddr_storage& remote);

}  // namespace uiw::provider
