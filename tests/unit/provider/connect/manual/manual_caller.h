// SPDX-License-Identifier: MIT
// A peer that calls a queue pair connected without rdma_cm, and speaks by itself.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include "provider/connect/local_address.h"
#include "provider/connect/manual/greeting_format.h"
#include "provider/connect/qp_port.h"
#include "tests/unit/provider/connect/manual/manual_pair.h"

namespace uiw::test {

inline Bytes octets_of(const provider::PairGreeting& greeting,
                       provider::PairRefusal refusal = provider::PairRefusal::none) {
  const auto octets = provider::encode(greeting, refusal);
  return {octets.begin(), octets.end()};
}

// A peer of a manual connection, on the address of the loopback device that stands for its first GID. It holds a port
// that gives it a smaller number than any queue pair here has, so it is the one to call.
struct Caller {
  explicit Caller(const Side& side) : device(side.context.device()), number(side.qp->number()) {
    for (std::uint16_t port = provider::kFirstPort; own == 0; ++port) {
      const sockaddr_storage address = provider::address_of(device.gids[0], device.ifindex, port);
      TcpStream socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::bind(socket.fd(), provider::generic(address), provider::size_of(address)) != 0) continue;
      REQUIRE(::listen(socket.fd(), 1) == 0);
      held = std::move(socket);
      own = std::uint32_t{port} << 8;
    }
  }
  // 0 or an errno.
  int dial(const Gid& to) {
    const sockaddr_storage address = provider::address_of(to, device.ifindex, provider::port_of(number));
    const bool v4 = address.ss_family == AF_INET;
    stream = TcpStream(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto size = static_cast<socklen_t>(v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    return ::connect(stream.fd(), reinterpret_cast<const sockaddr*>(&address), size) == 0 ? 0 : errno;
  }
  void say(const Bytes& greeting) {
    // Revision 2, peer-to-peer with RTR by Write (RFC 6581 section 9), CRC off.
    give(stream, Wire()
                     .text("MPA ID Req Frame")
                     .u8(0x10)
                     .u8(2)
                     .u16(static_cast<unsigned>(4 + greeting.size()))
                     .u16(0x8001)
                     .u16(0x8001)
                     .add(greeting));
  }
  // Nothing if the other side closes.
  Bytes hear(std::size_t size) {
    Bytes all;
    while (all.size() < size) {
      std::byte buffer[256];
      pollfd ready{stream.fd(), POLLIN, 0};
      REQUIRE(::poll(&ready, 1, 30'000) == 1);
      const ssize_t n = ::recv(stream.fd(), buffer, std::min(sizeof buffer, size - all.size()), 0);
      if (n <= 0) break;
      all.insert(all.end(), buffer, buffer + n);
    }
    return all;
  }
  provider::PairGreeting greeting() const { return {own, number, device.gids[0], device.gids[0], 0}; }

  const provider::DeviceInfo& device;
  const std::uint32_t number;
  std::uint32_t own = 0;  // number
  TcpStream held, stream;
};

// A queue pair in INIT, and such a peer of it.
struct CalledManually : Single {
  CalledManually() { REQUIRE(a.to(IBV_QPS_INIT) == 0); }
  Caller caller{a};
};

}  // namespace uiw::test
