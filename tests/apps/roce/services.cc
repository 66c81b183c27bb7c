// SPDX-License-Identifier: MIT
// rdma_cm's port space UDP, as a program sees it: what a service says when it accepts and when it rejects, and what a
// join says.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "tests/apps/support/calls.h"

namespace {

using apps::die;
using apps::expect;

constexpr int kRejected = 2;

rdma_cm_event* next(rdma_event_channel* channel, rdma_cm_event_type type, int status = 0) {
  rdma_cm_event* event = nullptr;
  expect(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  if (event->event != type || event->status != status)
    die("%s, status %d, in place of %s", rdma_event_str(event->event), event->status, rdma_event_str(type));
  return event;
}

void acknowledge(rdma_cm_event* event) { expect(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event"); }

bool says(const rdma_ud_param& event, const char* words, unsigned room) {
  return event.private_data_len == room && std::memcmp(event.private_data, words, std::strlen(words) + 1) == 0;
}

struct Id {
  Id() : channel(rdma_create_event_channel()) {
    expect(channel != nullptr && rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  }
  ~Id() {
    expect(rdma_destroy_id(id) == 0, "rdma_destroy_id");
    rdma_destroy_event_channel(channel);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  void resolve(sockaddr* to) {
    expect(rdma_resolve_addr(id, nullptr, to, 1000) == 0, "rdma_resolve_addr");
    acknowledge(next(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    expect(rdma_resolve_route(id, 1000) == 0, "rdma_resolve_route");
    acknowledge(next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
  }

  rdma_event_channel* channel;
  rdma_cm_id* id = nullptr;
};

rdma_conn_param saying(const char* words) {
  rdma_conn_param parameters{};
  parameters.private_data = words;
  parameters.private_data_len = static_cast<uint8_t>(std::strlen(words) + 1);
  parameters.qp_num = 0x123456;
  return parameters;
}

void call(Id& service, sockaddr* address, bool accepts) {
  Id caller;
  caller.resolve(address);
  char long_words[182] = {};
  std::memset(long_words, 'x', sizeof long_words - 1);
  rdma_conn_param parameters = saying(long_words);
  expect(rdma_connect(caller.id, &parameters) != 0, "more private data than a request holds");
  parameters = saying("request");
  expect(rdma_connect(caller.id, &parameters) == 0, "rdma_connect");
  rdma_cm_event* event = next(service.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  expect(says(event->param.ud, "request", 180), "the request's private data");
  rdma_cm_id* asked = event->id;
  expect(rdma_get_dst_port(asked) == rdma_get_src_port(caller.id), "the caller's port");
  acknowledge(event);
  if (accepts) {
    parameters = saying("welcome");
    expect(rdma_accept(asked, &parameters) == 0, "rdma_accept");
    event = next(caller.channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(says(event->param.ud, "welcome", 136), "the reply's private data");
    expect(event->param.ud.qp_num == 0x123456 && event->param.ud.qkey == RDMA_UDP_QKEY, "number and Q_Key");
    const ibv_ah_attr& to = event->param.ud.ah_attr;
    const in_addr loopback{htonl(INADDR_LOOPBACK)};
    expect(to.is_global == 1 && to.port_num == 1 && std::memcmp(to.grh.dgid.raw + 12, &loopback, 4) == 0, "address");
  } else {
    expect(rdma_reject(asked, "no", 3) == 0, "rdma_reject");
    event = next(caller.channel, RDMA_CM_EVENT_UNREACHABLE, kRejected);
    expect(says(event->param.ud, "no", 136), "the rejection's private data");
  }
  acknowledge(event);
  expect(rdma_destroy_id(asked) == 0, "rdma_destroy_id of a call");
}

void join(sockaddr_in address, int flags) {
  Id member;
  address.sin_port = 0;
  expect(rdma_bind_addr(member.id, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
  sockaddr_in group = address;
  group.sin_addr.s_addr = htonl(0xEF010203);
  // Port 0 of a loopback address gives no device, the way to the group does.
  expect(rdma_resolve_addr(member.id, nullptr, reinterpret_cast<sockaddr*>(&group), 1000) == 0, "rdma_resolve_addr");
  acknowledge(next(member.channel, RDMA_CM_EVENT_ADDR_RESOLVED));
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.join_flags = static_cast<uint32_t>(flags);
  attributes.addr = reinterpret_cast<sockaddr*>(&group);
  expect(rdma_join_multicast_ex(member.id, &attributes, &member) == 0, "rdma_join_multicast_ex");
  rdma_cm_event* event = next(member.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
  const rdma_ud_param& said = event->param.ud;
  expect(said.qp_num == 0xFFFFFF && said.qkey == RDMA_UDP_QKEY && said.private_data == &member, "number and Q_Key");
  expect(std::memcmp(said.ah_attr.grh.dgid.raw + 12, &group.sin_addr, 4) == 0, "the group's GID");
  acknowledge(event);
  expect(rdma_leave_multicast(member.id, attributes.addr) == 0, "rdma_leave_multicast");
  // A join whose event is not fetched.
  expect(rdma_join_multicast_ex(member.id, &attributes, &member) == 0, "rdma_join_multicast_ex again");
  expect(rdma_leave_multicast(member.id, attributes.addr) == 0, "rdma_leave_multicast again");
}

// A UDP socket of the program that is bound to this port.
class UdpSocket {
 public:
  explicit UdpSocket(sockaddr_in address) : address_(address) {
    socklen_t size = sizeof address_;
    expect(bind(fd_, generic(), sizeof address_) == 0, "bind of a UDP socket");
    expect(getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size) == 0, "getsockname");
  }
  ~UdpSocket() { close(fd_); }
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  const sockaddr_in& address() const { return address_; }
  // It hears datagrams of others, and nothing else has come so far.
  void expect_undisturbed() const {
    char octets[2048];
    expect(recv(fd_, octets, sizeof octets, MSG_DONTWAIT) == -1 && errno == EAGAIN, "a look-up comes to a UDP socket");
    const int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    expect(sendto(other, "plain", 5, 0, generic(), sizeof address_) == 5, "sendto");
    expect(recv(fd_, octets, sizeof octets, 0) == 5 && std::memcmp(octets, "plain", 5) == 0, "a plain datagram");
    close(other);
  }

 private:
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address_); }

  const int fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_;
};

// A service and a UDP socket of one number, whichever comes first.
void beside_udp(sockaddr_in address) {
  const UdpSocket plain(address);
  address = plain.address();
  auto* const called = reinterpret_cast<sockaddr*>(&address);
  {
    Id service, second;
    expect(rdma_bind_addr(service.id, called) == 0, "rdma_bind_addr to the number of a UDP socket");
    expect(rdma_get_src_port(service.id) == address.sin_port, "the service's number");
    expect(rdma_bind_addr(second.id, called) == -1 && errno == EADDRINUSE, "two services of one number");
    expect(rdma_listen(service.id, 4) == 0, "rdma_listen");
    for (const bool accepts : {true, false}) call(service, called, accepts);
    plain.expect_undisturbed();
  }
  Id service;
  address.sin_port = 0;
  expect(rdma_bind_addr(service.id, called) == 0 && rdma_listen(service.id, 4) == 0, "a service");
  address.sin_port = rdma_get_src_port(service.id);
  call(service, called, true);
  const UdpSocket later(address);
  for (const bool accepts : {true, false}) call(service, called, accepts);
  later.expect_undisturbed();
}

}  // namespace

int main() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  {
    Id service;
    expect(rdma_bind_addr(service.id, reinterpret_cast<sockaddr*>(&address)) == 0, "rdma_bind_addr");
    expect(rdma_listen(service.id, 4) == 0, "rdma_listen");
    sockaddr_in called = address;
    called.sin_port = rdma_get_src_port(service.id);
    for (const bool accepts : {true, false, true}) call(service, reinterpret_cast<sockaddr*>(&called), accepts);
  }
  beside_udp(address);
  for (const int flags : {RDMA_MC_JOIN_FLAG_FULLMEMBER, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER}) join(address, flags);
  std::puts("as it should be");
}
