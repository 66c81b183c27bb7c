// SPDX-License-Identifier: MIT
// What an open device sees of its interface: addresses that come and go, and the link. It runs as root, in a network
// namespace of its own that has the interface v0.
#include <arpa/inet.h>

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/roce/views.h"

namespace apps::views {

namespace {

using Table = std::vector<ibv_gid>;

void ip(const std::string& words) {
  if (std::system(("ip " + words).c_str()) != 0) die("ip %s", words.c_str());
}

ibv_gid gid_of(const char* address) {
  ibv_gid gid{};
  if (inet_pton(AF_INET6, address, gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xff;
  expect(inet_pton(AF_INET, address, gid.raw + 12) == 1, "inet_pton");
  return gid;
}

bool same(const ibv_gid& one, const ibv_gid& other) { return std::memcmp(&one, &other, sizeof one) == 0; }
bool is_empty(const ibv_gid& gid) { return same(gid, ibv_gid{}); }
bool is_ipv6(const ibv_gid& gid) { return !is_empty(gid) && gid.raw[0] != 0; }

ibv_port_attr port_of(ibv_context* context) {
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
  return port;
}

Table table_of(ibv_context* context) {
  Table table(static_cast<std::size_t>(port_of(context).gid_tbl_len));
  for (std::size_t i = 0; i < table.size(); ++i)
    expect_error("ibv_query_gid", ibv_query_gid(context, 1, static_cast<int>(i), &table[i]), 0);
  return table;
}

void expect_table(const Table& got, const Table& wanted, const char* when) {
  expect(got.size() == wanted.size(), when);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same(got[i], wanted[i])) die("%s: another GID at index %zu", when, i);
}

// These events and no others, in any order.
void expect_events(ibv_context* context, std::vector<ibv_event_type> wanted, const char* when) {
  while (!wanted.empty()) {
    pollfd ready{context->async_fd, POLLIN, 0};
    if (poll(&ready, 1, 20'000) != 1) die("%s: no event, where %s is due", when, ibv_event_type_str(wanted.front()));
    ibv_async_event event{};
    expect_error("ibv_get_async_event", ibv_get_async_event(context, &event), 0);
    const auto found = std::find(wanted.begin(), wanted.end(), event.event_type);
    if (found == wanted.end()) die("%s: event %s", when, ibv_event_type_str(event.event_type));
    expect(event.element.port_num == 1, "the port of an event");
    wanted.erase(found);
    ibv_ack_async_event(&event);
  }
  pollfd more{context->async_fd, POLLIN, 0};
  expect(poll(&more, 1, 0) == 0, when);
}

std::string line_of(const char* file) {
  std::ifstream in(std::string("/sys/class/infiniband/uiw_v0/ports/1/") + file);
  std::string line;
  std::getline(in, line);
  return line;
}

void expect_shown(const std::string& words) {
  FILE* const said = popen("rdma link show uiw_v0/1", "r");
  expect(said != nullptr, "popen");
  std::array<char, 512> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size() - 1, said);
  pclose(said);
  if (std::string(text.data(), size).find(words) == std::string::npos) die("rdma link: %s", text.data());
}

void expect_empty(ibv_context* context, std::uint8_t index, bool roce) {
  ibv_gid_entry entry{};
  expect_error("ibv_query_gid_ex of an empty index", ibv_query_gid_ex(context, 1, index, &entry, 0), ENODATA);
  if (!roce) return;
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_ah_attr attributes{};
  attributes.port_num = attributes.is_global = 1;
  attributes.grh.sgid_index = index;
  attributes.grh.dgid = gid_of("10.77.0.1");
  errno = 0;
  expect(ibv_create_ah(pd, &attributes) == nullptr && errno == EINVAL, "ibv_create_ah by an empty index");
  ibv_dealloc_pd(pd);
}

}  // namespace

void world() {
  ibv_context* const context = open_device("uiw_v0");
  const bool roce = context->device->transport_type == IBV_TRANSPORT_IB;
  const auto changes = [roce](std::ptrdiff_t count) {
    return std::vector<ibv_event_type>(roce ? static_cast<std::size_t>(count) : 0, IBV_EVENT_GID_CHANGE);
  };
  Table table = table_of(context);
  const Table first = table;
  const auto index = static_cast<std::uint8_t>(table.size());

  ip("address add 10.77.0.101/24 dev v0");
  table.push_back(gid_of("10.77.0.101"));
  expect_table(table_of(context), table, "a new address");
  expect_events(context, changes(1), "a new address");

  ip("address del 10.77.0.101/24 dev v0");
  table.back() = {};
  expect_table(table_of(context), table, "a removed address");
  expect_events(context, changes(1), "a removed address");
  expect_empty(context, index, roce);

  ip("address add 10.78.0.1/16 dev v0");
  table.back() = gid_of("10.78.0.1");
  expect_table(table_of(context), table, "an address in an empty index");
  expect_events(context, changes(1), "an address in an empty index");
  if (roce) datagram_to_itself(context, index, kFlowLabel);

  expect(port_of(context).state == IBV_PORT_ACTIVE && line_of("state") == "4: ACTIVE", "the state of the port");
  ip("link set v0 down");  // Linux takes the addresses of IPv6 away
  const auto lost = std::count_if(table.begin(), table.end(), is_ipv6);
  expect(lost > 0, "no address of IPv6");
  for (ibv_gid& gid : table)
    if (is_ipv6(gid)) gid = {};
  expect(port_of(context).state == IBV_PORT_DOWN && port_of(context).phys_state == 3,
         "the port of an interface that is down");
  expect(line_of("state") == "1: DOWN" && line_of("phys_state") == "3: Disabled", "sysfs of an interface that is down");
  expect_shown("state DOWN physical_state DISABLED");
  expect_table(table_of(context), table, "an interface that is down");
  std::vector<ibv_event_type> events = changes(lost);
  events.push_back(IBV_EVENT_PORT_ERR);
  expect_events(context, events, "an interface that goes down");

  ip("link set v0 up");
  expect_events(context, {IBV_EVENT_PORT_ACTIVE}, "an interface that comes up");
  expect(port_of(context).state == IBV_PORT_ACTIVE && port_of(context).phys_state == 5,
         "the port of an interface that is up");
  expect_shown("state ACTIVE physical_state LINK_UP");
  ip("-6 address add fd77::1/64 dev v0 nodad");
  table_of(context);
  ip("address add 10.79.0.1/16 dev v0");  // it leaves the index of the link-local address alone
  table_of(context);
  ip("-6 address add fe80::1/64 dev v0 nodad");
  const Table back = table_of(context);
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const char* address : {"fd77::1", "fe80::1", "10.77.0.1"})
      expect(!same(first[i], gid_of(address)) || same(back[i], first[i]),
             "an address that has come back has another index");
  }
  expect_events(context, changes(3), "addresses that come back");
  expect_error("ibv_close_device", ibv_close_device(context), 0);
}

}  // namespace apps::views
