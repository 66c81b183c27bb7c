// SPDX-License-Identifier: MIT
// IPv4's loopback address, sockets that are bound to it, and how many descriptors there are.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>

#include "provider/connect/local_address.h"

namespace uiw::test {

// `port` in host byte order; 0 has bound_socket() take a free one.
inline sockaddr_storage loopback(std::uint16_t port = 0) {
  sockaddr_storage storage{};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return storage;
}

// The caller owns the descriptor; the address that it is bound to goes to `address`.
inline int bound_socket(sockaddr_storage& address) {
  address = loopback();
  const int fd = provider::bind_socket(address, false);
  REQUIRE(fd >= 0);
  return fd;
}
inline int bound_socket() {
  sockaddr_storage address{};
  return bound_socket(address);
}

// Those of this process. Needs none itself.
inline std::size_t open_descriptors() {
  std::size_t count = 0;
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int fd = 0; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096)); ++fd)
    count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

}  // namespace uiw::test
