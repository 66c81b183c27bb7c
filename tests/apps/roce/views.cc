// SPDX-License-Identifier: MIT
// How a device presents itself: its GID table by every way to it, and, where it is an adapter for RoCE, what stock
// librdmacm and programs that step through the states by themselves go through. A case for each.
#include "tests/apps/roce/views.h"

#include <net/if.h>

#include <fstream>

namespace apps::views {

namespace {

std::string text_of(const ibv_gid& gid) {
  std::string text;
  for (int i = 0; i < 16; i += 2) {
    char part[8];
    std::snprintf(part, sizeof part, "%s%02x%02x", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    text += part;
  }
  return text;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void walk_gids(ibv_context* context) {
  const std::string name = ibv_get_device_name(context->device);
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
  std::vector<ibv_gid_entry> table(256);
  const ssize_t entries = ibv_query_gid_table(context, table.data(), table.size(), 0);
  expect(entries == port.gid_tbl_len, "ibv_query_gid_table has another length than the port says");
  const bool roce = context->device->transport_type == IBV_TRANSPORT_IB;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    const std::string folder = "/sys/class/infiniband/" + name + "/ports/1/";
    const std::string number = std::to_string(index);
    ibv_gid gid{};
    ibv_gid_entry entry{};
    expect(ibv_query_gid(context, 1, index, &gid) == 0, "ibv_query_gid");
    expect_error("ibv_query_gid_ex", ibv_query_gid_ex(context, 1, static_cast<unsigned>(index), &entry, 0), 0);
    const ibv_gid_entry& listed = table[static_cast<std::size_t>(index)];
    expect(std::memcmp(&gid, &entry.gid, sizeof gid) == 0, "ibv_query_gid_ex gives another GID");
    expect(std::memcmp(&listed, &entry, sizeof entry) == 0, "ibv_query_gid_table gives another entry");
    expect(read_line(folder + "gids/" + number) == text_of(gid), "sysfs has another GID");
    expect(entry.gid_type == (roce ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1), "GID type");
    expect(read_line(folder + "gid_attrs/types/" + number) == (roce ? "RoCE v2" : "IB/RoCE v1"), "GID type in sysfs");
    const std::string interface = read_line(folder + "gid_attrs/ndevs/" + number);
    expect("uiw_" + interface == name, "network device in sysfs");
    expect(entry.ndev_ifindex == if_nametoindex(interface.c_str()), "network device");
    std::printf("%s %d %s\n", name.c_str(), index, text_of(gid).c_str());
  }
  ibv_gid_entry beyond{};
  expect(ibv_query_gid(context, 1, port.gid_tbl_len, &beyond.gid) != 0, "a GID beyond the table");
  expect(ibv_query_gid_ex(context, 1, static_cast<unsigned>(port.gid_tbl_len), &beyond, 0) != 0, "an entry beyond");
}

void gids() {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  expect(count > 0, "no device");
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(devices[i]);
    expect(context != nullptr, "ibv_open_device");
    walk_gids(context);
    ibv_close_device(context);
  }
  ibv_free_device_list(devices);
}

// The RoCE view.
void device() {
  Channel client;
  resolve(client);
  ibv_context* context = client.id->verbs;
  expect(context->device->node_type == IBV_NODE_CA, "node type");
  expect(context->device->transport_type == IBV_TRANSPORT_IB, "transport");
  ibv_device_attr attributes{};
  expect_error("ibv_query_device", ibv_query_device(context, &attributes), 0);
  expect(attributes.max_ah > 0 && attributes.max_pkeys == 1, "max_ah, max_pkeys");
  ibv_port_attr port{};
  expect_error("ibv_query_port", ibv_query_port(context, 1, &port), 0);
  expect(port.state == IBV_PORT_ACTIVE && port.phys_state == 5 && port.link_layer == IBV_LINK_LAYER_ETHERNET, "link");
  expect(port.lid == 0 && port.sm_lid == 0 && port.pkey_tbl_len == 1, "numbers of InfiniBand");
  expect((port.flags & IBV_QPF_GRH_REQUIRED) != 0 && (port.port_cap_flags & IBV_PORT_IP_BASED_GIDS) != 0, "flags");
  __be16 pkey = 0;
  expect(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff, "ibv_query_pkey");
  expect(ibv_get_pkey_index(context, 1, pkey) == 0, "ibv_get_pkey_index");

  Queues queues(client.id);
  ibv_ah_attr address{};
  address.port_num = 1;
  address.is_global = 1;
  address.grh.dgid = client.id->route.addr.addr.ibaddr.dgid;
  ibv_gid source{};
  while (ibv_query_gid(context, 1, address.grh.sgid_index, &source) == 0 &&
         std::memcmp(&source, &client.id->route.addr.addr.ibaddr.sgid, sizeof source) != 0)
    ++address.grh.sgid_index;
  expect(address.grh.sgid_index < port.gid_tbl_len, "the connection's GID is not in the table");
  std::uint8_t mac[6];
  std::uint16_t vlan = 0;
  expect_error("ibv_resolve_eth_l2_from_gid", ibv_resolve_eth_l2_from_gid(context, &address, mac, &vlan), 0);
  ibv_ah* handle = ibv_create_ah(queues.pd, &address);
  expect(handle != nullptr && handle->pd == queues.pd, "ibv_create_ah");
  expect_error("ibv_dealloc_pd with an address handle", ibv_dealloc_pd(queues.pd), EBUSY);
  expect_error("ibv_destroy_ah", ibv_destroy_ah(handle), 0);
  const auto refused = [&](const char* what, const ibv_ah_attr& bad) {
    ibv_ah_attr copy = bad;
    expect(ibv_create_ah(queues.pd, &copy) == nullptr, what);
    expect_error(what, errno, EINVAL);
  };
  ibv_ah_attr bad = address;
  bad.port_num = 2;
  refused("port 2", bad);
  bad = address;
  bad.is_global = 0;
  refused("no GRH", bad);
  bad = address;
  bad.grh.sgid_index = static_cast<std::uint8_t>(port.gid_tbl_len);
  refused("a GID beyond the table", bad);

  ibv_qp_init_attr datagrams = queues.initial();
  datagrams.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(queues.pd, &datagrams);
  expect(qp != nullptr && qp->qp_num != 0xFFFFFF, "a queue pair for datagrams");
  expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
}

// Each step demands the attributes that the manual page of ibv_modify_qp marks as required for it, and works with them.
void required() {
  Channel client;
  resolve(client);
  Queues queues(client.id);
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = 0x123456;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = client.id->route.addr.addr.ibaddr.dgid;
  attributes.ah_attr.grh.hop_limit = 64;
  ibv_gid source{};
  while (ibv_query_gid(client.id->verbs, 1, attributes.ah_attr.grh.sgid_index, &source) == 0 &&
         std::memcmp(&source, &client.id->route.addr.addr.ibaddr.sgid, sizeof source) != 0)
    ++attributes.ah_attr.grh.sgid_index;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    const bool reliable = type == IBV_QPT_RC;
    ibv_qp_init_attr initial = queues.initial();
    initial.qp_type = type;
    ibv_qp* qp = ibv_create_qp(queues.pd, &initial);
    expect(qp != nullptr, "ibv_create_qp");
    ibv_qp_attr now{};
    expect_error("ibv_query_qp", ibv_query_qp(qp, &now, IBV_QP_STATE, &initial), 0);
    expect(now.qp_state == IBV_QPS_RESET, "a new queue pair is not in RESET");
    const int rtr = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN;
    const int rts = IBV_QP_SQ_PSN;
    const std::pair<ibv_qp_state, int> steps[] = {
        {IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_RTR, reliable ? rtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : rtr},
        {IBV_QPS_RTS,
         reliable ? rts | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : rts},
    };
    for (const auto& [state, needed] : steps) {
      attributes.qp_state = state;
      expect_error("a step with the state alone", ibv_modify_qp(qp, &attributes, IBV_QP_STATE), EINVAL);
      for (int bit = 1; bit <= needed; bit <<= 1) {
        if ((needed & bit) == 0) continue;
        const int error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | (needed & ~bit));
        if (error != EINVAL) die("to state %d without %#x: %d", state, bit, error);
      }
      expect_error("a step with all that is required", ibv_modify_qp(qp, &attributes, IBV_QP_STATE | needed), 0);
      attributes.qp_state = qp->state;
      // There is no step from RTR to RTR, with the state or without it.
      const int again = ibv_modify_qp(qp, &attributes, state == IBV_QPS_INIT ? IBV_QP_STATE : 0);
      expect_error("staying there", again, state == IBV_QPS_RTR ? EINVAL : 0);
    }
    attributes.qp_state = IBV_QPS_RESET;
    expect_error("RESET", ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
  }
}

}  // namespace

}  // namespace apps::views

int main(int argc, char** argv) {
  apps::Cases cases{{"gids", apps::views::gids},
                    {"device", apps::views::device},
                    {"required", apps::views::required},
                    {"datagrams", apps::views::datagrams},
                    {"label_taken", apps::views::label_taken},
                    {"world", apps::views::world}};
  apps::views::connecting_cases(cases);
  return apps::run_case(argc, argv, cases);
}
