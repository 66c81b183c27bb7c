// SPDX-License-Identifier: MIT
// A UDP socket for look-ups, and the datagrams that pass through it. Thread-safe; nothing blocks or is a cancellation
// point.
#pragma once

#include <sys/socket.h>

#include <cstddef>

#include "base/bytes.h"

namespace uiw::provider {

class LookupSocket {
 public:
  explicit LookupSocket(int fd) : fd_(fd) {}  // owns it
  ~LookupSocket();
  LookupSocket(const LookupSocket&) = delete;
  LookupSocket& operator=(const LookupSocket&) = delete;

  int fd() const { return fd_; }
  // Fills in the sender's address, and the local one with the port of the socket. Returns the size of the datagram,
  // which may exceed the room, or a negative errno.
  long receive(MutableOctets room, sockaddr_storage& from, sockaddr_storage& to) const;
  // `from` is the local address to send from. 0 or an errno.
  int send(Octets octets, const sockaddr_storage& from, const sockaddr_storage& to) const;
  // For a socket that is not connected: its next call reports an ICMP error about what it has sent.
  int want_errors() const;
  // For a socket that has been connected.
  int send(Octets octets) const;

 private:
  const int fd_;
};

}  // namespace uiw::provider
