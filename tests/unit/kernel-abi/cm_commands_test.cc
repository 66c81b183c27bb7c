// SPDX-License-Identifier: MIT
// Commands of rdma_cm as octets: lengths, pointers, and room for answers.
#include <sys/mman.h>

#include <random>
#include <vector>

#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

TEST_CASE_METHOD(CmNode, "short and wrong headers are refused", "[native]") {
  REQUIRE(table() != nullptr);
  const rdma_ucm_cmd_hdr header = {RDMA_USER_CM_CMD_CREATE_ID, 24, 4};
  CHECK(node.write(&header, 0) == -EINVAL);
  CHECK(node.write(&header, sizeof header - 1) == -EINVAL);
  CHECK(node.write(&header, sizeof header) == -EINVAL);  // says 24 octets follow
  CHECK(node.write(reinterpret_cast<const void*>(8), 64) == -EFAULT);
  CHECK(node.write(nullptr, 64) == -EFAULT);
  const rdma_ucm_cmd_hdr unknown = {25, 0, 0};
  CHECK(node.write(&unknown, sizeof unknown) == -EINVAL);
  const rdma_ucm_cmd_hdr get_option = {RDMA_USER_CM_CMD_GET_OPTION, 0, 0};
  CHECK(node.write(&get_option, sizeof get_option) == -ENOSYS);
}

TEST_CASE("every command survives every length", "[native]") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  std::mt19937 random(1);
  std::vector<std::uint8_t> octets(512);
  for (std::uint32_t number = 0; number < 26; ++number) {
    for (std::size_t in = 0; in <= 400; ++in) {
      for (auto& octet : octets) octet = static_cast<std::uint8_t>(in % 3 == 0 ? 0 : random());
      const rdma_ucm_cmd_hdr header = {number, static_cast<__u16>(in), static_cast<__u16>(random() % 600)};
      std::memcpy(octets.data(), &header, sizeof header);
      // No pointer in these octets is good: zero, or odd and huge.
      const long result = node.write(octets.data(), sizeof header + in);
      if (result >= 0) CHECK(result == static_cast<long>(sizeof header + in));
    }
  }
}

TEST_CASE_METHOD(CmNodeWithId, "a command shorter than its structure is invalid") {
  rdma_ucm_event_resp sink[2] = {};
  struct {
    std::uint64_t response;
    std::uint8_t rest[600];
  } octets = {address_of(sink), {}};
  const std::pair<unsigned, std::size_t> least[] = {
      {RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id)},
      {RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id)},
      {RDMA_USER_CM_CMD_BIND_IP, sizeof(rdma_ucm_bind_ip)},
      {RDMA_USER_CM_CMD_RESOLVE_IP, sizeof(rdma_ucm_resolve_ip)},
      {RDMA_USER_CM_CMD_RESOLVE_ROUTE, sizeof(rdma_ucm_resolve_route)},
      {RDMA_USER_CM_CMD_QUERY_ROUTE, sizeof(rdma_ucm_query)},
      {RDMA_USER_CM_CMD_CONNECT, offsetof(rdma_ucm_connect, ece)},
      {RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen)},
      {RDMA_USER_CM_CMD_ACCEPT, offsetof(rdma_ucm_accept, ece)},
      {RDMA_USER_CM_CMD_REJECT, sizeof(rdma_ucm_reject)},
      {RDMA_USER_CM_CMD_DISCONNECT, sizeof(rdma_ucm_disconnect)},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(rdma_ucm_init_qp_attr)},
      {RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event)},
      {RDMA_USER_CM_CMD_SET_OPTION, sizeof(rdma_ucm_set_option)},
      {RDMA_USER_CM_CMD_NOTIFY, sizeof(rdma_ucm_notify)},
      {RDMA_USER_CM_CMD_JOIN_IP_MCAST, sizeof(rdma_ucm_join_ip_mcast)},
      {RDMA_USER_CM_CMD_LEAVE_MCAST, sizeof(rdma_ucm_destroy_id)},
      {RDMA_USER_CM_CMD_MIGRATE_ID, sizeof(rdma_ucm_migrate_id)},
      {RDMA_USER_CM_CMD_QUERY, sizeof(rdma_ucm_query)},
      {RDMA_USER_CM_CMD_BIND, sizeof(rdma_ucm_bind)},
      {RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(rdma_ucm_resolve_addr)},
      {RDMA_USER_CM_CMD_JOIN_MCAST, sizeof(rdma_ucm_join_mcast)},
      {23, 88},                              // RESOLVE_IB_SERVICE
      {24, 16 + sizeof(rdma_ucm_ud_param)},  // WRITE_CM_EVENT
  };
  for (const auto& [number, size] : least) {
    INFO("command " << number);
    const auto octets_of = encode(number, octets, 512, size - 1);
    CHECK(node.write(octets_of.data(), octets_of.size()) == -EINVAL);
  }
  CHECK(destroy_id(node, id) == 0);
}

TEST_CASE("an answer without room or with a bad address is refused", "[native]") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  rdma_ucm_create_id create = {};
  create.ps = RDMA_PS_TCP;
  CHECK(run(node, RDMA_USER_CM_CMD_CREATE_ID, create, 3) == -ENOSPC);
  create.response = 8;
  CHECK(run(node, RDMA_USER_CM_CMD_CREATE_ID, create, 4) == -EFAULT);
  create.ps = 1;
  CHECK(run(node, RDMA_USER_CM_CMD_CREATE_ID, create, 4) == -EINVAL);

  const std::uint32_t id = create_id(node);
  rdma_ucm_query ask = {};
  ask.id = id;
  CHECK(run(node, RDMA_USER_CM_CMD_QUERY, ask, 100) == -ENOSPC);
  CHECK(run(node, RDMA_USER_CM_CMD_QUERY_ROUTE, ask, 100) == -ENOSPC);
  CHECK(run(node, RDMA_USER_CM_CMD_QUERY, ask, 1000) == -EFAULT);
  ask.option = 9;
  CHECK(run(node, RDMA_USER_CM_CMD_QUERY, ask, 1000) == -ENOSYS);
  const rdma_ucm_get_event get = {8};
  CHECK(run(node, RDMA_USER_CM_CMD_GET_EVENT, get, 10) == -ENOSPC);
  CHECK(run(node, RDMA_USER_CM_CMD_GET_EVENT, get, 400) == -EAGAIN);
  // An event whose answer cannot be written stays where it is.
  CHECK(resolve(node, id, ipv4("127.0.0.1", 1)) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_GET_EVENT, get, 400) == -EFAULT);
  CHECK(node.readable());
  CHECK(destroy_id(node, id) == 0);
  CHECK_FALSE(node.readable());
}

TEST_CASE_METHOD(CmNodeWithId, "an answer ends where the program's room ends") {
  CHECK(resolve(node, id, ipv4("127.0.0.1", 1)) == 0);
  rdma_ucm_event_resp event;
  std::memset(&event, 0xee, sizeof event);
  CHECK(get_event(node, event, offsetof(rdma_ucm_event_resp, reserved)) == 0);
  CHECK(event.event == kAddrResolved);
  CHECK(event.reserved == 0xeeeeeeee);
  CHECK(event.ece.vendor_id == 0xeeeeeeee);
}

TEST_CASE_METHOD(CmNode, "ids are known to their channel alone") {
  Node other("rdma_cm");
  const std::uint32_t id = create_id(node);
  CHECK(destroy_id(other, id) == -EINVAL);
  CHECK(bind(other, id, ipv4("127.0.0.1")) == -EINVAL);
  CHECK(destroy_id(node, id) == 0);
  CHECK(destroy_id(node, id) == -ENOENT);
  CHECK(bind(node, id, ipv4("127.0.0.1")) == -ENOENT);
  CHECK(create_id(node) == id);  // the lowest free number
}

TEST_CASE_METHOD(CmNodeWithId, "addresses must be whole and of a known family") {
  const sockaddr_in good = ipv4("127.0.0.1");
  CHECK(bind(node, id, good, 0) == -EINVAL);
  CHECK(bind(node, id, good, sizeof good - 1) == -EINVAL);
  CHECK(bind(node, id, good, sizeof(sockaddr_in6)) == -EINVAL);
  sockaddr_in strange = good;
  strange.sin_family = AF_UNIX;
  CHECK(bind(node, id, strange) == -EINVAL);
  sockaddr_in6 linklocal = {};
  linklocal.sin6_family = AF_INET6;
  linklocal.sin6_addr.s6_addr[0] = 0xfe;
  linklocal.sin6_addr.s6_addr[1] = 0x80;
  CHECK(bind(node, id, linklocal) == -EINVAL);
  CHECK(bind(node, id, ipv4("198.51.100.77")) == -EADDRNOTAVAIL);
  CHECK(bind(node, id, good) == 0);
  CHECK(bind(node, id, good) == -EINVAL);
}
