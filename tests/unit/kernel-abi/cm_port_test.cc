// SPDX-License-Identifier: MIT
// RDMA ports have a number space of their own: what a TCP socket of the same number means for an id.
#include "base/descriptor.h"
#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

namespace {

// A plain TCP socket that is bound to a free port of 127.0.0.1.
class TcpSocket {
 public:
  TcpSocket() {
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // so that an id may be bound before this listens
    address_ = ipv4("127.0.0.1");
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address_), sizeof address_) == 0);
    socklen_t size = sizeof address_;
    REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size) == 0);
  }
  ~TcpSocket() { ::close(fd_); }
  TcpSocket(const TcpSocket&) = delete;
  TcpSocket& operator=(const TcpSocket&) = delete;
  void listen() const { REQUIRE(::listen(fd_, 1) == 0); }
  const sockaddr_in& address() const { return address_; }

 private:
  const int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_{};
};

long listen(Node& node, std::uint32_t id) {
  const rdma_ucm_listen command = {id, 1};
  return run(node, RDMA_USER_CM_CMD_LISTEN, command);
}

in_port_t port_of(Node& node, std::uint32_t id) {
  const rdma_ucm_query_addr_resp bound = query(node, id, RDMA_USER_CM_QUERY_ADDR);
  sockaddr_in address;
  std::memcpy(&address, &bound.src_addr, sizeof address);
  return address.sin_port;
}

}  // namespace

TEST_CASE_METHOD(CmNode, "an RDMA listener gets its number where TCP has it for another socket") {
  const TcpSocket tcp;
  tcp.listen();
  const std::uint32_t id = create_id(node);
  REQUIRE(bind(node, id, tcp.address()) == 0);
  CHECK(port_of(node, id) == tcp.address().sin_port);
  CHECK(listen(node, id) == 0);
  CHECK(port_of(node, id) == tcp.address().sin_port);
  CHECK(destroy_id(node, id) == 0);
  const std::uint32_t next = create_id(node);
  CHECK(bind(node, next, tcp.address()) == 0);
  CHECK(listen(node, next) == 0);
}

TEST_CASE_METHOD(CmNode,
                 "an RDMA listener gets its number where TCP begins to listen between its bind and its listen") {
  const TcpSocket tcp;
  const std::uint32_t id = create_id(node);
  REQUIRE(bind(node, id, tcp.address()) == 0);
  tcp.listen();
  CHECK(listen(node, id) == 0);
  CHECK(port_of(node, id) == tcp.address().sin_port);
}

TEST_CASE_METHOD(CmNode, "the number of an RDMA listener is its own, whichever TCP port it has") {
  const TcpSocket tcp;
  tcp.listen();
  const std::uint32_t id = create_id(node), second = create_id(node);
  REQUIRE(bind(node, id, tcp.address()) == 0);
  CHECK(bind(node, second, tcp.address()) == -EADDRINUSE);
  sockaddr_in any = tcp.address();
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  CHECK(bind(node, second, any) == -EADDRNOTAVAIL);
}

TEST_CASE_METHOD(CmNode,
                 "an RDMA listener, or a bound id, leaves the TCP port of its number to a TCP socket of the program") {
  const bool listens = GENERATE(true, false);
  const std::uint32_t id = create_id(node);
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
  if (listens) REQUIRE(listen(node, id) == 0);
  sockaddr_in address = ipv4("127.0.0.1");
  address.sin_port = port_of(node, id);
  const int tcp = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* wanted = reinterpret_cast<const sockaddr*>(&address);
  CHECK(::bind(tcp, wanted, sizeof address) == -1);
  CHECK(abi().give_way(ntohs(address.sin_port), 0) == 1);
  CHECK(::bind(tcp, wanted, sizeof address) == 0);
  CHECK(::listen(tcp, 1) == 0);
  CHECK(abi().give_way(ntohs(address.sin_port), 0) == 0);
  CHECK(port_of(node, id) == address.sin_port);
  const std::uint32_t second = create_id(node);
  CHECK(bind(node, second, address) == -EADDRINUSE);
  if (!listens) CHECK(listen(node, id) == 0);
  ::close(tcp);
}

TEST_CASE_METHOD(CmNode, "no id leaves a port that it has not") {
  const TcpSocket tcp;
  tcp.listen();
  CHECK(abi().give_way(ntohs(tcp.address().sin_port), 0) == 0);
}
