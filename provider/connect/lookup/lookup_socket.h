// SPDX-License-Identifier: MIT
// A UDP socket for look-ups and for the port mapper (mapper/), and the datagrams that pass through it. Thread-safe;
// nothing blocks or is a cancellation point.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "base/bytes.h"

namespace uiw::provider {

class LookupSocket {
 public:
  explicit LookupSocket(int fd) : fd_(fd) {}  // owns the descriptor
  ~LookupSocket();
  LookupSocket(const LookupSocket&) = delete;
  LookupSocket& operator=(const LookupSocket&) = delete;

  int fd() const { return fd_; }
  // Receives a datagram. `from` becomes the sender's address, `to` the local address with the port of the socket.
  // Returns the size of the datagram, which may exceed the room, or a negative errno.
  long receive(MutableOctets room, sockaddr_storage& from, sockaddr_storage& to) const;
  // `from` is the local address to send from. 0 or an errno.
  int send(Octets octets, const sockaddr_storage& from, const sockaddr_storage& to) const;
  // Makes an unconnected socket report ICMP errors about datagrams that it has sent: the next call on the socket fails.
  // 0 or an errno.
  int want_errors() const;
  // Sends on a socket that has been connected. 0 or an errno.
  int send(Octets octets) const;

 private:
  const int fd_;
};

}  // namespace uiw::provider
