// SPDX-License-Identifier: MIT
#include "provider/plugin/abi/ops_table.h"

#include <cstring>

#include "provider/plugin/abi/release.h"

namespace uiw::plugin {

namespace {

struct KnownOp {
  const char* name;
  int since;  // the rdma-core release that added it to the table; 0: before 39
};

constexpr KnownOp kKnown[] = {
    {"advise_mr", 0},
    {"alloc_buf", 64},
    {"alloc_dm", 0},
    {"alloc_dmah", 59},
    {"alloc_mw", 0},
    {"alloc_null_mr", 0},
    {"alloc_parent_domain", 0},
    {"alloc_pd", 0},
    {"alloc_td", 0},
    {"async_event", 0},
    {"attach_counters_point_flow", 0},
    {"attach_mcast", 0},
    {"bind_mw", 0},
    {"close_xrcd", 0},
    {"cq_event", 0},
    {"create_ah", 0},
    {"create_comp_cntr", 65},
    {"create_counters", 0},
    {"create_cq", 0},
    {"create_cq_ex", 0},
    {"create_flow", 0},
    {"create_flow_action_esp", 0},
    {"create_qp", 0},
    {"create_qp_ex", 0},
    {"create_rwq_ind_table", 0},
    {"create_srq", 0},
    {"create_srq_ex", 0},
    {"create_wq", 0},
    {"dealloc_dmah", 59},
    {"dealloc_mw", 0},
    {"dealloc_pd", 0},
    {"dealloc_td", 0},
    {"dereg_mr", 0},
    {"destroy_ah", 0},
    {"destroy_comp_cntr", 65},
    {"destroy_counters", 0},
    {"destroy_cq", 0},
    {"destroy_flow", 0},
    {"destroy_flow_action", 0},
    {"destroy_qp", 0},
    {"destroy_rwq_ind_table", 0},
    {"destroy_srq", 0},
    {"destroy_wq", 0},
    {"detach_mcast", 0},
    {"dm_export_dmabuf_fd", 62},
    {"free_buf", 64},
    {"free_context", 0},
    {"free_dm", 0},
    {"get_srq_num", 0},
    {"import_dm", 0},
    {"import_mr", 0},
    {"import_pd", 0},
    {"inc_comp_cntr", 65},
    {"inc_err_comp_cntr", 65},
    {"modify_cq", 0},
    {"modify_flow_action_esp", 0},
    {"modify_qp", 0},
    {"modify_qp_rate_limit", 0},
    {"modify_srq", 0},
    {"modify_wq", 0},
    {"open_qp", 0},
    {"open_xrcd", 0},
    {"poll_cq", 0},
    {"post_recv", 0},
    {"post_send", 0},
    {"post_srq_ops", 0},
    {"post_srq_recv", 0},
    {"qp_attach_comp_cntr", 65},
    {"query_comp_cntr_caps", 65},
    {"query_device_ex", 0},
    {"query_ece", 0},
    {"query_port", 0},
    {"query_port_speed", 62},
    {"query_qp", 0},
    {"query_qp_data_in_order", 0},
    {"query_rt_values", 0},
    {"query_srq", 0},
    {"read_comp_cntr", 65},
    {"read_counters", 0},
    {"read_err_comp_cntr", 65},
    {"reg_dm_mr", 0},
    {"reg_dmabuf_mr", 0},
    {"reg_mr", 0},
    {"reg_mr_ex", 59},
    {"req_notify_cq", 0},
    {"rereg_mr", 0},
    {"resize_cq", 0},
    {"set_comp_cntr", 65},
    {"set_ece", 0},
    {"set_err_comp_cntr", 65},
    {"unimport_dm", 0},
    {"unimport_mr", 0},
    {"unimport_pd", 0},
};

}  // namespace

const uiw_op* make_ops_table(const NamedOp* ours, std::size_t ours_count, std::size_t* count) {
  static uiw_op table[sizeof kKnown / sizeof kKnown[0]];
  const int now = release();
  std::size_t size = 0;
  for (const KnownOp& known : kKnown) {
    if (known.since > now) continue;
    uiw_op op = nullptr;
    for (std::size_t i = 0; i < ours_count; ++i) {
      if (std::strcmp(ours[i].name, known.name) == 0) op = ours[i].op;
    }
    table[size++] = op;
  }
  if (count != nullptr) *count = size;
  return table;
}

}  // namespace uiw::plugin
