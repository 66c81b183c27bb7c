// SPDX-License-Identifier: MIT
// Needs libuiw.so.1 (uiw_kernel_abi_v2) and an interface `lo` that is up; no other sources.
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernel-abi/interposer/entry.h"

extern "C" const UiwKernelAbi* uiw_kernel_abi_v2(const UiwHost* host);

namespace {

// What the interposer would keep.
std::mutex g_mutex;
std::map<int, uint64_t> g_objects;

uint64_t lookup(int fd) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_objects.find(fd);
  return found != g_objects.end() ? found->second : 0;
}

int attach(int fd, uint64_t object) {
  const std::lock_guard lock(g_mutex);
  g_objects[fd] = object;
  return 0;
}

const UiwKernelAbi* table() {
  static const UiwHost host = {lookup, attach, [](int) {}, [](int) {}, nullptr, nullptr, nullptr};
  static const UiwKernelAbi* const made = uiw_kernel_abi_v2(&host);
  return made;
}

// On any thread, hence no check by Catch2; the first test case has one.
const UiwKernelAbi& abi() { return *table(); }

class Node {
 public:
  explicit Node(const char* name, int flags = O_RDWR | O_CLOEXEC) {
    REQUIRE(abi().root(0) != nullptr);
    fd_ = abi().open(name, flags, &object_);
    REQUIRE(fd_ >= 0);
    attach(fd_, object_);
  }
  ~Node() {
    if (fd_ < 0) return;
    {
      const std::lock_guard lock(g_mutex);
      g_objects.erase(fd_);
    }
    abi().release(object_, fd_);
    ::close(fd_);
  }
  int fd() const { return fd_; }
  uint64_t object() const { return object_; }
  long write(const void* data, std::size_t size) { return abi().write(object_, fd_, data, size); }
  bool readable() const {
    pollfd ready = {fd_, POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }

 private:
  int fd_ = -1;
  uint64_t object_ = 0;
};

template <typename Command>
std::vector<std::uint8_t> encode(unsigned number, const Command& command, std::size_t out, std::size_t in) {
  const rdma_ucm_cmd_hdr header = {number, static_cast<__u16>(in), static_cast<__u16>(out)};
  std::vector<std::uint8_t> octets(sizeof header + sizeof command);
  std::memcpy(octets.data(), &header, sizeof header);
  std::memcpy(octets.data() + sizeof header, &command, sizeof command);
  return octets;
}

// 0 or a negative errno.
template <typename Command>
long run(Node& node, unsigned number, const Command& command, std::size_t out = 0) {
  const auto octets = encode(number, command, out, sizeof command);
  const long result = node.write(octets.data(), octets.size());
  return result == static_cast<long>(octets.size()) ? 0 : result;
}

template <typename Response>
std::uint64_t address_of(Response& response) {
  return reinterpret_cast<std::uintptr_t>(&response);
}

std::uint32_t create_id(Node& node, std::uint16_t space = RDMA_PS_TCP, std::uint64_t uid = 0x1234) {
  rdma_ucm_create_id_resp response = {};
  rdma_ucm_create_id command = {};
  command.uid = uid;
  command.ps = space;
  command.qp_type = IBV_QPT_RC;
  command.response = address_of(response);
  REQUIRE(run(node, RDMA_USER_CM_CMD_CREATE_ID, command, sizeof response) == 0);
  return response.id;
}

long destroy_id(Node& node, std::uint32_t id, std::uint32_t* reported = nullptr) {
  rdma_ucm_destroy_id_resp response = {};
  rdma_ucm_destroy_id command = {};
  command.id = id;
  command.response = address_of(response);
  const long result = run(node, RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof response);
  if (reported != nullptr) *reported = response.events_reported;
  return result;
}

sockaddr_in ipv4(const char* host, std::uint16_t port = 0) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

template <typename Address>
long bind(Node& node, std::uint32_t id, const Address& address, std::size_t size = sizeof(Address)) {
  rdma_ucm_bind command = {};
  command.id = id;
  command.addr_size = static_cast<__u16>(size);
  std::memcpy(&command.addr, &address, sizeof address);
  return run(node, RDMA_USER_CM_CMD_BIND, command);
}

long resolve(Node& node, std::uint32_t id, const sockaddr_in& destination) {
  rdma_ucm_resolve_addr command = {};
  command.id = id;
  command.timeout_ms = 1000;
  command.dst_size = sizeof destination;
  std::memcpy(&command.dst_addr, &destination, sizeof destination);
  return run(node, RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
}

long get_event(Node& node, rdma_ucm_event_resp& response, std::size_t out = sizeof(rdma_ucm_event_resp)) {
  const rdma_ucm_get_event command = {address_of(response)};
  return run(node, RDMA_USER_CM_CMD_GET_EVENT, command, out);
}

rdma_ucm_query_addr_resp query(Node& node, std::uint32_t id, std::uint32_t option) {
  rdma_ucm_query_addr_resp response = {};
  rdma_ucm_query command = {};
  command.response = address_of(response);
  command.id = id;
  command.option = option;
  REQUIRE(run(node, RDMA_USER_CM_CMD_QUERY, command, sizeof response) == 0);
  return response;
}

constexpr std::uint32_t kAddrResolved = 0;
constexpr std::uint32_t kRouteResolved = 2;
constexpr std::uint32_t kUser = 18;

}  // namespace

TEST_CASE("short and wrong headers are refused") {
  REQUIRE(table() != nullptr);
  Node node("rdma_cm");
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

TEST_CASE("every command survives every length") {
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

TEST_CASE("a command shorter than its structure is invalid") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
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

TEST_CASE("an answer without room or with a bad address is refused") {
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

TEST_CASE("an answer ends where the program's room ends") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
  CHECK(resolve(node, id, ipv4("127.0.0.1", 1)) == 0);
  rdma_ucm_event_resp event;
  std::memset(&event, 0xee, sizeof event);
  CHECK(get_event(node, event, offsetof(rdma_ucm_event_resp, reserved)) == 0);
  CHECK(event.event == kAddrResolved);
  CHECK(event.reserved == 0xeeeeeeee);
  CHECK(event.ece.vendor_id == 0xeeeeeeee);
}

TEST_CASE("ids are known to their channel alone") {
  Node node("rdma_cm");
  Node other("rdma_cm");
  const std::uint32_t id = create_id(node);
  CHECK(destroy_id(other, id) == -EINVAL);
  CHECK(bind(other, id, ipv4("127.0.0.1")) == -EINVAL);
  CHECK(destroy_id(node, id) == 0);
  CHECK(destroy_id(node, id) == -ENOENT);
  CHECK(bind(node, id, ipv4("127.0.0.1")) == -ENOENT);
  CHECK(create_id(node) == id);  // the lowest free number
}

TEST_CASE("addresses must be whole and of a known family") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
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

TEST_CASE("bind ties an id to its device and to a port of its own") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
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
  CHECK(bind(node, second, ipv4("0.0.0.0", ntohs(address.sin_port))) == -EADDRINUSE);
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

TEST_CASE("librdmacm's question for AF_IB is answered as by the kernel") {
  Node node("rdma_cm");
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

TEST_CASE("attributes of a queue pair are iWARP's") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
  ib_uverbs_qp_attr attributes = {};
  rdma_ucm_init_qp_attr command = {};
  command.response = address_of(attributes);
  command.id = id;
  command.qp_state = IBV_QPS_INIT;
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == -EINVAL);  // no device yet
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
  REQUIRE(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == 0);
  CHECK(attributes.qp_attr_mask == (IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT));
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.port_num == 1);
  command.qp_state = IBV_QPS_ERR + 1;
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof attributes - 1) == -ENOSPC);
}

TEST_CASE("options are checked by size, name and state") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
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

TEST_CASE("commands out of place are refused") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
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
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 0}) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 0}) == -EINVAL);
  CHECK(run(node, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id}) == -EINVAL);
}

TEST_CASE("multicast is not iWARP's") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node, RDMA_PS_UDP);
  rdma_ucm_create_id_resp response = {};
  rdma_ucm_join_mcast join = {};
  join.response = address_of(response);
  join.id = id;
  join.addr_size = sizeof(sockaddr_in);
  const sockaddr_in group = ipv4("239.1.2.3");
  std::memcpy(&join.addr, &group, sizeof group);
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -EINVAL);  // not bound
  REQUIRE(bind(node, id, ipv4("127.0.0.1")) == 0);
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -ENOSYS);
  join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  CHECK(run(node, RDMA_USER_CM_CMD_JOIN_MCAST, join, sizeof response) == -EINVAL);
  rdma_ucm_destroy_id leave = {};
  leave.response = address_of(response);
  CHECK(run(node, RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof response) == -ENOENT);
}

TEST_CASE("an id moves to another channel with its events") {
  Node from("rdma_cm");
  Node to("rdma_cm");
  const std::uint32_t id = create_id(from);
  REQUIRE(resolve(from, id, ipv4("127.0.0.1", 1)) == 0);
  rdma_ucm_migrate_resp response = {7};
  rdma_ucm_migrate_id command = {};
  command.response = address_of(response);
  command.id = id;
  command.fd = 0x7fffffff;
  CHECK(run(to, RDMA_USER_CM_CMD_MIGRATE_ID, command, sizeof response) == -ENOENT);
  command.fd = static_cast<__u32>(from.fd());
  REQUIRE(run(to, RDMA_USER_CM_CMD_MIGRATE_ID, command, sizeof response) == 0);
  CHECK(response.events_reported == 0);
  CHECK_FALSE(from.readable());
  CHECK(to.readable());
  CHECK(destroy_id(from, id) == -EINVAL);
  CHECK(destroy_id(to, id) == 0);
  CHECK_FALSE(to.readable());
}

TEST_CASE("a program may write an event of its own") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node, RDMA_PS_TCP, 5);
  struct {
    __u32 id, reserved, event, status;
    __u64 argument;
    std::uint8_t rest[sizeof(rdma_ucm_ud_param) - 8];
  } command = {id, 0, kUser, 3, 0x1122334455667788, {}};
  REQUIRE(run(node, 24, command) == 0);
  rdma_ucm_event_resp event = {};
  REQUIRE(get_event(node, event) == 0);
  CHECK(event.event == kUser);
  CHECK(event.status == 3);
  CHECK(event.uid == 5);
  std::uint64_t argument;
  std::memcpy(&argument, &event.param, sizeof argument);
  CHECK(argument == 0x1122334455667788);
  command.event = kAddrResolved;
  CHECK(run(node, 24, command) == -EINVAL);
}

namespace {
// Once the thread has said its number: it sleeps in the kernel, having nothing to do but to wait.
bool falls_asleep(const std::atomic<pid_t>& thread) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (std::string stat; std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
    if (thread == 0) continue;
    std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat") >> stat >> stat >> stat;
    if (stat == "S") return true;
  }
  return false;
}
}  // namespace

TEST_CASE("a waiting program is woken by an event and by a signal, not by the close") {
  Node node("rdma_cm");
  const std::uint32_t id = create_id(node);
  rdma_ucm_event_resp event = {};
  long woken = -1;
  std::atomic<pid_t> waits{0};
  std::thread waiter([&] {
    waits = ::gettid();
    woken = get_event(node, event);
  });
  REQUIRE(falls_asleep(waits));
  CHECK(resolve(node, id, ipv4("127.0.0.1", 1)) == 0);
  waiter.join();
  CHECK(woken == 0);
  CHECK(event.event == kAddrResolved);

  uint64_t object = 0;
  const int fd = abi().open("rdma_cm", O_RDWR | O_CLOEXEC, &object);
  REQUIRE(fd >= 0);
  std::atomic<bool> ended{false};
  std::atomic<pid_t> waits_too{0};
  std::thread second([&] {
    waits_too = ::gettid();
    rdma_ucm_event_resp nothing = {};
    const rdma_ucm_get_event command = {address_of(nothing)};
    const auto octets = encode(RDMA_USER_CM_CMD_GET_EVENT, command, sizeof nothing, sizeof command);
    woken = abi().write(object, fd, octets.data(), octets.size());
    ended = true;
  });
  REQUIRE(falls_asleep(waits_too));
  // As in the kernel: its call keeps the file open, and the thread goes on waiting.
  abi().release(object, fd);
  ::close(fd);
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  while (!ended) {  // the first signal may come before it waits
    ::pthread_kill(second.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  second.join();
  CHECK(woken < 0);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("a command that was begun before the close of its channel goes on as in the kernel") {
  const bool waits = GENERATE(true, false);
  uint64_t object = 0;
  const int fd = abi().open("rdma_cm", O_RDWR | O_CLOEXEC | (waits ? 0 : O_NONBLOCK), &object);
  REQUIRE(fd >= 0);
  abi().release(object, fd);
  ::close(fd);
  const auto get = [&] {
    rdma_ucm_event_resp nothing = {};
    const rdma_ucm_get_event command = {address_of(nothing)};
    const auto octets = encode(RDMA_USER_CM_CMD_GET_EVENT, command, sizeof nothing, sizeof command);
    return abi().write(object, fd, octets.data(), octets.size());
  };
  if (!waits) {
    CHECK(get() == -EAGAIN);
    return;
  }
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  std::atomic<bool> ended{false};
  long woken = 0;
  std::thread late([&] {
    woken = get();
    ended = true;
  });
  while (!ended) {
    ::pthread_kill(late.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  late.join();
  CHECK(woken == -EINTR);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("a channel lives until its last descriptor") {
  Node node("rdma_cm");
  abi().retain(node.object());
  abi().release(node.object(), node.fd());
  CHECK(destroy_id(node, create_id(node)) == 0);
}

TEST_CASE("many threads share a channel") {
  Node node("rdma_cm", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&node] {
      for (int i = 0; i < 50; ++i) {
        rdma_ucm_create_id_resp created = {};
        rdma_ucm_create_id create = {};
        create.uid = 1;
        create.ps = RDMA_PS_TCP;
        create.response = address_of(created);
        run(node, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof created);
        resolve(node, created.id, ipv4("127.0.0.1", 1));
        run(node, RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{created.id, 1});
        rdma_ucm_event_resp event = {};
        if (i % 2 == 0) get_event(node, event);
        destroy_id(node, created.id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(node.readable());
}

TEST_CASE("uverbs descriptors make completion channels and nothing else") {
  REQUIRE(abi().root(0) != nullptr);
  uint64_t object = 0;
  CHECK(abi().open("uverbs4095", O_RDWR, &object) == -ENXIO);
  CHECK(abi().open("umad0", O_RDWR, &object) == -ENXIO);
  const int fd = abi().open("uverbs0", O_RDWR | O_CLOEXEC, &object);
  REQUIRE(fd >= 0);
  const auto write = [&](const void* data, std::size_t size) { return abi().write(object, fd, data, size); };

  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_create_comp_channel command;
  } request = {{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 4, 1}, {0}};
  ib_uverbs_create_comp_channel_resp response = {};
  request.command.response = address_of(response);
  REQUIRE(sizeof request == 16);
  CHECK(write(&request, 4) == -EINVAL);
  CHECK(write(&request, 8) == -EINVAL);
  request.header.out_words = 0;
  CHECK(write(&request, sizeof request) == -ENOSPC);
  request.header.out_words = 1;
  CHECK(write(reinterpret_cast<void*>(16), sizeof request) == -EFAULT);
  REQUIRE(write(&request, sizeof request) == sizeof request);
  const int channel = static_cast<int>(response.fd);
  CHECK((lookup(channel) & UIW_OBJECT_KIND_MASK) == UIW_OBJECT_COMPLETION_CHANNEL);
  CHECK(::fcntl(channel, F_GETFD) == FD_CLOEXEC);
  abi().release(lookup(channel), channel);
  ::close(channel);

  request.header.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
  CHECK(write(&request, sizeof request) == -EOPNOTSUPP);
  request.header.command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
  CHECK(write(&request, sizeof request) == -EOPNOTSUPP);
  request.header.command = 0x1000;
  CHECK(write(&request, sizeof request) == -EINVAL);
  abi().release(object, fd);
  ::close(fd);
}
