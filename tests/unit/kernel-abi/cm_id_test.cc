// SPDX-License-Identifier: MIT
// An id from its making to a route: what each command does, and in which states.
#include <infiniband/ib.h>

#include <vector>

#include "tests/unit/kernel-abi/kernel_abi_rig.h"

using namespace uiw::test;

TEST_CASE_METHOD(CmNodeWithId, "bind ties an id to its device and to a port of its own") {
  REQUIRE(bind(node, id, free_loopback()) == 0);
  const rdma_ucm_query_addr_resp bound = query(node, id, RDMA_USER_CM_QUERY_ADDR);
  sockaddr_in address;
  std::memcpy(&address, &bound.src_addr, sizeof address);
  CHECK(bound.src_size == sizeof address);
  CHECK(bound.node_guid != 0);
  CHECK(bound.port_num == 1);
  CHECK(bound.ibdev_index == 0xffffffff);
  CHECK(address.sin_port != 0);

  const std::uint32_t second = create_id(node);
  CHECK(bind(node, second, address) == -EADDRINUSE);
  CHECK(bind(node, second, ipv4("0.0.0.0", ntohs(address.sin_port))) == -EADDRNOTAVAIL);
  REQUIRE(bind(node, second, ipv4("0.0.0.0")) == 0);
  CHECK(query(node, second, RDMA_USER_CM_QUERY_ADDR).node_guid == 0);

  const rdma_ucm_query_addr_resp gid = query(node, id, RDMA_USER_CM_QUERY_GID);
  sockaddr_ib ib;
  std::memcpy(&ib, &gid.src_addr, sizeof ib);
  CHECK(ib.sib_family == AF_IB);
  CHECK(std::memcmp(&ib.sib_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16) == 0);

  CHECK(destroy_id(node, id) == 0);
  const std::uint32_t third = create_id(node);
  CHECK(bind(node, third, address) == 0);
}

TEST_CASE("port 0 of a loopback address gives an id no device before it has a destination") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const std::uint32_t id = create_id(node);
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
  const rdma_ucm_query_addr_resp bound = query(node, id, RDMA_USER_CM_QUERY_ADDR);
  CHECK(bound.node_guid == 0);
  sockaddr_in address;
  std::memcpy(&address, &bound.src_addr, sizeof address);
  CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  CHECK(address.sin_port != 0);
  REQUIRE(resolve(node, id, ipv4("127.0.0.1", 4791)) == 0);
  rdma_ucm_event_resp event = {};
  REQUIRE(get_event(node, event) == 0);
  CHECK(event.event == kAddrResolved);
  CHECK(query(node, id, RDMA_USER_CM_QUERY_ADDR).node_guid != 0);
}

TEST_CASE_METHOD(CmNode, "librdmacm's question for AF_IB is answered as by the kernel") {
  const std::uint32_t id = create_id(node, RDMA_PS_IB);
  sockaddr_ib ib = {};
  ib.sib_family = AF_IB;
  ib.sib_sid = htobe64(0x0000000001060000);
  ib.sib_sid_mask = htobe64(0xffffffffffff0000);
  CHECK(bind(node, id, ib) == 0);
  CHECK(query(node, id, RDMA_USER_CM_QUERY_ADDR).src_size == sizeof ib);
  query(node, id, RDMA_USER_CM_QUERY_GID);
  const std::uint32_t second = create_id(node, RDMA_PS_IB);
  ib.sib_addr.sib_addr8[0] = 0xfe;
  CHECK(bind(node, second, ib) == -ENODEV);
  ib.sib_addr.sib_addr8[0] = 0;
  ib.sib_sid = htobe64(0x0000000009990000);
  CHECK(bind(node, second, ib) == -EPROTONOSUPPORT);
}

TEST_CASE("addresses and routes resolve in order, one event each") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const std::uint32_t id = create_id(node, RDMA_PS_TCP, 77);
  const rdma_ucm_resolve_route route = {id, 1000};
  CHECK(run(node, RDMA_USER_CM_CMD_RESOLVE_ROUTE, route) == -EINVAL);
  CHECK_FALSE(node.readable());
  CHECK(resolve(node, id, ipv4("127.0.0.1", 4791)) == 0);
  CHECK(resolve(node, id, ipv4("127.0.0.1", 4791)) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_RESOLVE_ROUTE, route) == 0);
  rdma_ucm_event_resp event = {};
  REQUIRE(get_event(node, event) == 0);
  CHECK(event.event == kAddrResolved);
  CHECK(event.uid == 77);
  CHECK(event.id == id);
  CHECK(event.status == 0);
  CHECK(node.readable());
  REQUIRE(get_event(node, event) == 0);
  CHECK(event.event == kRouteResolved);
  CHECK_FALSE(node.readable());
  CHECK(get_event(node, event) == -EAGAIN);
  const rdma_ucm_query_addr_resp ends = query(node, id, RDMA_USER_CM_QUERY_ADDR);
  sockaddr_in source;
  std::memcpy(&source, &ends.src_addr, sizeof source);
  CHECK(source.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
  CHECK(source.sin_port != 0);
  std::uint32_t reported = 0;
  CHECK(destroy_id(node, id, &reported) == 0);
  CHECK(reported == 2);
}

TEST_CASE_METHOD(CmNodeWithId, "attributes of a queue pair are iWARP's") {
  ib_uverbs_qp_attr attributes = {};
  rdma_ucm_init_qp_attr command = {};
  command.response = address_of(attributes);
  command.id = id;
  command.qp_state = IBV_QPS_INIT;
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == -EINVAL);  // no device yet
  REQUIRE(bind(node, id, free_loopback()) == 0);
  REQUIRE(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == 0);
  CHECK(attributes.qp_attr_mask == (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT));
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.port_num == 1);
  command.qp_state = IBV_QPS_ERR + 1;
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes - 1) == -ENOSPC);
}

TEST_CASE_METHOD(CmNodeWithId, "options are checked by size, name and state", "[native]") {
  int number = 1;
  const auto set = [&](unsigned level, unsigned name, std::uint64_t value, unsigned size) {
    const rdma_ucm_set_option command = {value, id, level, name, size};
    return run(node, RDMA_USER_CM_CMD_SET_OPTION, command);
  };
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, address_of(number), 1) == 0);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, address_of(number), 4) == -EINVAL);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, address_of(number), 0xffffffff) == -EINVAL);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 16, 1) == -EFAULT);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, address_of(number), 4) == 0);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, address_of(number), 4) == 0);
  CHECK(set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, address_of(number), 1) == 0);
  CHECK(set(RDMA_OPTION_ID, 99, address_of(number), 4) == -ENOSYS);
  CHECK(set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, address_of(number), 4) == -EINVAL);
  CHECK(set(9, 0, address_of(number), 4) == -ENOSYS);
}

TEST_CASE_METHOD(CmNode,
                 "a port in use is refused by who has it: EADDRNOTAVAIL where one has all addresses, EADDRINUSE else") {
  const auto make = [&](bool reuse) {
    const std::uint32_t id = create_id(node);
    int on = 1;
    const rdma_ucm_set_option command = {address_of(on), id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, sizeof on};
    if (reuse) REQUIRE(run(node, RDMA_USER_CM_CMD_SET_OPTION, command) == 0);
    return id;
  };
  const auto listen = [&](std::uint32_t id) {
    const rdma_ucm_listen command = {id, 1};
    return run(node, RDMA_USER_CM_CMD_LISTEN, command);
  };
  struct Row {
    const char *first, *second;
    bool first_reuses, second_reuses, first_listens;
    int error;
  };
  const Row row =
      GENERATE(Row{"0.0.0.0", "0.0.0.0", false, false, false, EADDRNOTAVAIL},
               Row{"0.0.0.0", "127.0.0.1", false, false, false, EADDRNOTAVAIL},
               Row{"127.0.0.1", "0.0.0.0", false, false, false, EADDRNOTAVAIL},
               Row{"127.0.0.1", "127.0.0.1", false, false, false, EADDRINUSE},
               Row{"127.0.0.1", "127.0.0.2", false, false, false, 0},
               Row{"0.0.0.0", "0.0.0.0", false, false, true, EADDRNOTAVAIL},
               Row{"127.0.0.1", "127.0.0.1", false, false, true, EADDRINUSE},
               Row{"127.0.0.1", "127.0.0.1", true, true, false, 0}, Row{"0.0.0.0", "127.0.0.1", true, true, false, 0},
               Row{"127.0.0.1", "127.0.0.1", true, false, false, EADDRINUSE},
               Row{"127.0.0.1", "127.0.0.1", false, true, false, EADDRINUSE},
               Row{"127.0.0.1", "127.0.0.1", true, true, true, EADDRINUSE});
  CAPTURE(row.first, row.second, row.first_reuses, row.second_reuses, row.first_listens);
  const std::uint16_t port = ntohs(free_loopback().sin_port);
  const std::uint32_t first = make(row.first_reuses), second = make(row.second_reuses);
  REQUIRE(bind(node, first, ipv4(row.first, port)) == 0);
  if (row.first_listens) REQUIRE(listen(first) == 0);
  CHECK(bind(node, second, ipv4(row.second, port)) == -row.error);
  // Of two ids that share a port none may listen.
  if (row.first_reuses && row.second_reuses && row.error == 0) {
    const int shared = std::strcmp(row.first, row.second) == 0 ? EADDRINUSE : EADDRNOTAVAIL;
    CHECK(listen(second) == -shared);
    REQUIRE(destroy_id(node, first) == 0);
    CHECK(listen(second) == 0);
  }
}

TEST_CASE_METHOD(CmNodeWithId, "commands out of place are refused") {
  rdma_ucm_connect connect = {};
  connect.id = id;
  CHECK(run(node, RDMA_USER_CM_CMD_CONNECT, connect) == -EINVAL);  // no parameters
  connect.conn_param.valid = 1;
  CHECK(run(node, RDMA_USER_CM_CMD_CONNECT, connect) == -EINVAL);
  rdma_ucm_accept accept = {};
  accept.id = id;
  CHECK(run(node, RDMA_USER_CM_CMD_ACCEPT, accept) == -EINVAL);
  accept.conn_param.valid = 1;
  CHECK(run(node, RDMA_USER_CM_CMD_ACCEPT, accept) == -EINVAL);
  rdma_ucm_reject reject = {};
  reject.id = id;
  CHECK(run(node, RDMA_USER_CM_CMD_REJECT, reject) == -EINVAL);
  reject.reason = 3;
  CHECK(run(node, RDMA_USER_CM_CMD_REJECT, reject) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify{id, 0}) == -EINVAL);
  REQUIRE(bind(node, id, free_loopback()) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 0}) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 0}) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == -EINVAL);
}

TEST_CASE_METHOD(CmNode, "multicast is not iWARP's") {
  const std::uint32_t id = create_id(node, RDMA_PS_UDP);
  rdma_ucm_create_id_resp response = {};
  rdma_ucm_join_mcast join = {};
  join.response = address_of(response);
  join.id = id;
  join.addr_size = sizeof(sockaddr_in);
  const sockaddr_in group = ipv4("239.1.2.3");
  std::memcpy(&join.addr, &group, sizeof group);
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -EINVAL);  // not bound
  REQUIRE(bind(node, id, free_loopback()) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -ENOSYS);
  join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -EINVAL);
  rdma_ucm_destroy_id leave = {};
  leave.response = address_of(response);
  CHECK(run(node, RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof response) == -ENOENT);
}
