// SPDX-License-Identifier: MIT
// Finds out whether the two ends of a TCP connection are in one network namespace, without a forwarder between them,
// and lets processes of one user share memory for their stream (base/stream/shared_stream.h). For both purposes, the
// ends use an abstract Unix socket. Its name contains the addresses and ports of the TCP connection. The caller listens
// on this socket before it sends the MPA request; the called end connects to it, and passes the memory, before it sends
// the MPA reply. So the memory, if any was offered, is there when the reply arrives, and nobody waits.
//
// If a program forwards TCP, both ends may see addresses of their own host, but each has a connection of its own to the
// forwarder. So the names differ, and the ends do not find each other. Such ends must use a CRC, since the forwarder
// may send through a network.
//
// If the ends do not find each other (other namespaces, another implementation, no descriptors, a sandbox), the stream
// stays on TCP, and the called end of an rdma_cm connection asks for a CRC if its setting of CRCs is "auto". The stream
// also stays on TCP if the ends cannot share memory (other users, no memory). Only the log shows this. Each end shares
// memory only if the kernel says that the peer's process has the same user. Nothing blocks. Thread-safe.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "base/stream/shared_stream.h"

namespace uiw::provider {

class Attachable;

class RingRendezvous {
 public:
  // Why the caller listens: to share memory, or only to be known as a caller of this host.
  enum class Purpose : std::uint8_t { sharing, presence };
  struct Wishes {
    bool sharing, presence;
  };

  // For the caller; `local` and `remote` are the ends of its TCP connection. Listens with Purpose::sharing if
  // `wishes.sharing` is true and sharing is possible, otherwise with Purpose::presence if `wishes.presence` is true.
  // Null if it does not listen, for example because the peer's address is not of this host, or there is no descriptor.
  static std::unique_ptr<RingRendezvous> listen(const sockaddr_storage& local, const sockaddr_storage& remote,
                                                Wishes wishes);
  RingRendezvous(const RingRendezvous&) = delete;
  RingRendezvous& operator=(const RingRendezvous&) = delete;

  // To be called when the MPA reply has arrived, inside a ReadSection. Returns the memory that the called end has
  // offered; null if it has offered none, or if the memory cannot be used. `end`: the endpoint of the stream.
  std::shared_ptr<SharedOffer> take(Attachable& end);

 private:
  RingRendezvous(OwnedDescriptor socket, Purpose purpose) : socket_(std::move(socket)), purpose_(purpose) {}
  OwnedDescriptor accept() const;

  const OwnedDescriptor socket_;
  const Purpose purpose_;
};

// The called end's connection to the Unix socket of the caller, made before it replies.
class RingContact {
 public:
  RingContact() = default;  // no connection; found() is false
  // Looks for the caller of the TCP connection with these ends.
  RingContact(const sockaddr_storage& local, const sockaddr_storage& remote);
  // Whether the caller is a process of this network namespace that has the other end of this very connection. False
  // also if this is unknown.
  bool found() const { return static_cast<bool>(socket_); }
  // Offers memory to the caller. Null if that is not possible. To be called once, inside a ReadSection. `end`: the
  // endpoint of the stream.
  std::shared_ptr<SharedOffer> offer(Attachable& end);

 private:
  OwnedDescriptor socket_;
  bool sharing_ = false;
};

}  // namespace uiw::provider
