// SPDX-License-Identifier: MIT
// What is created and destroyed, with good and bad arguments.
#include <sys/mman.h>

#include <array>
#include <vector>

#include "tests/kernel/observe/observe.h"

namespace observe {
namespace {

std::array<char, 64 * 1024> g_memory;

template <typename Object>
void say_made(const std::string& what, Object* object, int (*destroy)(Object*)) {
  const std::string outcome = made(object);
  say("objects: " + what, object == nullptr ? outcome : outcome + ", destroyed " + result(destroy(object)));
}

void completion_queues(const Device& device) {
  const auto make = [&](const char* what, int entries, int vector) {
    say_made(std::string("a CQ of ") + what, ibv_create_cq(device.context, entries, nullptr, nullptr, vector),
             ibv_destroy_cq);
  };
  make("1 place", 1, 0);
  make("0 places", 0, 0);
  make("-1 places", -1, 0);
  make("max_cqe places", device.limits.max_cqe, 0);
  make("max_cqe + 1 places", device.limits.max_cqe + 1, 0);
  make("16 places, vector num_comp_vectors", 16, device.context->num_comp_vectors);
  make("16 places, vector -1", 16, -1);
  ibv_cq* const cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  if (cq == nullptr) return;
  say("objects: a CQ of 16 places is resized to 32", result(ibv_resize_cq(cq, 32)));
  say("objects: a CQ is resized to 0", result(ibv_resize_cq(cq, 0)));
  say("objects: a CQ is resized to max_cqe + 1", result(ibv_resize_cq(cq, device.limits.max_cqe + 1)));
  ibv_destroy_cq(cq);
}

void queue_pairs(const Device& device) {
  const auto make = [&](const std::string& what, ibv_qp_init_attr attributes) {
    ibv_qp* const qp = ibv_create_qp(device.pd, &attributes);
    say_made("a queue pair " + what, qp, ibv_destroy_qp);
  };
  const auto with = [&](const std::string& what, auto change, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attributes = qp_attributes(device, type);
    change(attributes);
    make(what, attributes);
  };
  with("as it should be", [](ibv_qp_init_attr&) {});
  with("of type 0", [](ibv_qp_init_attr& it) { it.qp_type = static_cast<ibv_qp_type>(0); });
  with("of type 77", [](ibv_qp_init_attr& it) { it.qp_type = static_cast<ibv_qp_type>(77); });
  with("of type RAW_PACKET", [](ibv_qp_init_attr& it) { it.qp_type = IBV_QPT_RAW_PACKET; });
  with("without places", [](ibv_qp_init_attr& it) { it.cap = {}; });
  with("without places for sends", [](ibv_qp_init_attr& it) { it.cap.max_send_wr = 0; });
  with("without places for receives", [](ibv_qp_init_attr& it) { it.cap.max_recv_wr = 0; });
  with("without SGEs", [](ibv_qp_init_attr& it) { it.cap.max_send_sge = it.cap.max_recv_sge = 0; });
  const auto most_wr = static_cast<std::uint32_t>(device.limits.max_qp_wr);
  const auto most_sge = static_cast<std::uint32_t>(device.limits.max_sge);
  with("with max_qp_wr + 1 places for sends", [&](ibv_qp_init_attr& it) { it.cap.max_send_wr = most_wr + 1; });
  with("with max_qp_wr + 1 places for receives", [&](ibv_qp_init_attr& it) { it.cap.max_recv_wr = most_wr + 1; });
  with("with max_qp_wr places for receives", [&](ibv_qp_init_attr& it) { it.cap.max_recv_wr = most_wr; });
  with("with max_sge SGEs for sends", [&](ibv_qp_init_attr& it) { it.cap.max_send_sge = most_sge; });
  with("with max_sge + 1 SGEs for sends", [&](ibv_qp_init_attr& it) { it.cap.max_send_sge = most_sge + 1; });
  with("with max_sge + 1 SGEs for receives", [&](ibv_qp_init_attr& it) { it.cap.max_recv_sge = most_sge + 1; });
  with("with 64 octets of inline data", [](ibv_qp_init_attr& it) { it.cap.max_inline_data = 64; });
  with("with 1 MiB of inline data", [](ibv_qp_init_attr& it) { it.cap.max_inline_data = 1 << 20; });
  with("with sq_sig_all", [](ibv_qp_init_attr& it) { it.sq_sig_all = 1; });

  ibv_qp_init_attr attributes = qp_attributes(device);
  ibv_qp* const qp = ibv_create_qp(device.pd, &attributes);
  if (qp == nullptr) return;
  const bool enough = attributes.cap.max_send_wr >= 8 && attributes.cap.max_recv_wr >= 8 &&
                      attributes.cap.max_send_sge >= 1 && attributes.cap.max_recv_sge >= 1;
  say("objects: a queue pair has at least what was asked for", enough ? "yes" : "no");
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  say("objects: ibv_query_qp of a new queue pair", result(ibv_query_qp(qp, &now, IBV_QP_STATE | IBV_QP_CAP, &init)));
  say("objects: its state", name_of(now.qp_state));
  say("objects: its queues and type", init.send_cq == device.cq && init.qp_type == IBV_QPT_RC ? "as given" : "others");
  ibv_destroy_qp(qp);
}

void in_use(const Device& device) {
  ibv_pd* const pd = ibv_alloc_pd(device.context);
  ibv_cq* const cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  ibv_mr* const mr = ibv_reg_mr(pd, g_memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  say("objects: a domain with a region is destroyed", result(ibv_dealloc_pd(pd)));
  if (mr != nullptr) ibv_dereg_mr(mr);
  ibv_qp_init_attr attributes = qp_attributes(device);
  attributes.send_cq = attributes.recv_cq = cq;
  ibv_qp* const qp = ibv_create_qp(pd, &attributes);
  say("objects: a domain with a queue pair is destroyed", result(ibv_dealloc_pd(pd)));
  say("objects: a CQ with a queue pair is destroyed", result(ibv_destroy_cq(cq)));
  if (qp != nullptr) ibv_destroy_qp(qp);
  ibv_srq_init_attr srq_attributes{};
  srq_attributes.attr = {8, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd, &srq_attributes);
  if (srq != nullptr) {
    say("objects: a domain with an SRQ is destroyed", result(ibv_dealloc_pd(pd)));
    ibv_qp_init_attr shared = qp_attributes(device);
    shared.srq = srq;
    ibv_qp* const user = ibv_create_qp(pd, &shared);
    say("objects: a queue pair with an SRQ", made(user));
    say("objects: an SRQ with a queue pair is destroyed", result(ibv_destroy_srq(srq)));
    // The library of siw ends by SIGSEGV then.
    const bool takes = user != nullptr && std::strncmp(ibv_get_device_name(device.context->device), "siw", 3) != 0;
    ibv_recv_wr request{}, *bad = nullptr;
    if (takes) say("objects: a receive to a queue pair with an SRQ", result(ibv_post_recv(user, &request, &bad)));
    if (user != nullptr) ibv_destroy_qp(user);
    ibv_destroy_srq(srq);
  }
  ibv_comp_channel* const channel = ibv_create_comp_channel(device.context);
  ibv_cq* const told = ibv_create_cq(device.context, 16, nullptr, channel, 0);
  say("objects: a completion channel with a CQ is destroyed", result(ibv_destroy_comp_channel(channel)));
  ibv_destroy_cq(told);
  say("objects: the same without it", result(ibv_destroy_comp_channel(channel)));
  ibv_destroy_cq(cq);
  say("objects: the domain is destroyed at last", result(ibv_dealloc_pd(pd)));
}

void shared_receives(const Device& device) {
  const auto make = [&](const char* what, ibv_srq_attr attributes) {
    ibv_srq_init_attr init{};
    init.attr = attributes;
    say_made(std::string("an SRQ ") + what, ibv_create_srq(device.pd, &init), ibv_destroy_srq);
  };
  const auto most_wr = static_cast<std::uint32_t>(device.limits.max_srq_wr);
  const auto most_sge = static_cast<std::uint32_t>(device.limits.max_srq_sge);
  make("of 8 places", {8, 1, 0});
  make("of 0 places", {0, 1, 0});
  make("of max_srq_wr + 1 places", {most_wr + 1, 1, 0});
  make("with max_srq_sge + 1 SGEs", {8, most_sge + 1, 0});
  make("with 0 SGEs", {8, 0, 0});
  make("with a limit of 4", {8, 1, 4});
  make("with a limit beyond its places", {8, 1, 1000});
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  ibv_srq* const srq = ibv_create_srq(device.pd, &init);
  if (srq == nullptr) return;
  const auto modify = [&](const char* what, ibv_srq_attr attributes, int mask) {
    say(std::string("objects: an SRQ of 8 places is given ") + what, result(ibv_modify_srq(srq, &attributes, mask)));
  };
  modify("a limit of 4", {0, 0, 4}, IBV_SRQ_LIMIT);
  ibv_srq_attr now{};
  say("objects: ibv_query_srq", result(ibv_query_srq(srq, &now)) + ", limit " + std::to_string(now.srq_limit));
  modify("a limit of 1000", {0, 0, 1000}, IBV_SRQ_LIMIT);
  modify("16 places", {16, 0, 0}, IBV_SRQ_MAX_WR);
  modify("max_srq_wr + 1 places", {most_wr + 1, 0, 0}, IBV_SRQ_MAX_WR);
  modify("an unknown attribute", {}, 1 << 10);
  ibv_destroy_srq(srq);
}

void regions(const Device& device) {
  const auto make = [&](const std::string& what, void* address, std::size_t length, int access) {
    say_made("a region " + what, ibv_reg_mr(device.pd, address, length, access), ibv_dereg_mr);
  };
  char* const memory = g_memory.data();
  make("for local reading", memory, 4096, 0);
  make("for local writing", memory, 4096, IBV_ACCESS_LOCAL_WRITE);
  make("for remote reading alone", memory, 4096, IBV_ACCESS_REMOTE_READ);
  make("for remote writing without local", memory, 4096, IBV_ACCESS_REMOTE_WRITE);
  make("for remote atomics without local writing", memory, 4096, IBV_ACCESS_REMOTE_ATOMIC);
  make("for all that is remote", memory, 4096,
       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  make("with remote atomics", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  make("for windows", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  make("with relaxed ordering", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  make("with addresses from 0", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);
  make("on demand", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
  make("with huge pages", memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB);
  make("with an unknown right", memory, 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 16);
  make("with an unknown optional right", memory, 4096, IBV_ACCESS_LOCAL_WRITE | 1 << 29);
  make("of 0 octets", memory, 0, IBV_ACCESS_LOCAL_WRITE);
  make("of 1 octet", memory + 3, 1, IBV_ACCESS_LOCAL_WRITE);
  make("at address 0", nullptr, 4096, IBV_ACCESS_LOCAL_WRITE);
  make("of 0 octets at address 0", nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
  make("that wraps around", memory, ~std::size_t{0} - 4095, IBV_ACCESS_LOCAL_WRITE);
  void* const read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  make("of read-only memory for reading", read_only, 4096, 0);
  make("of read-only memory for writing", read_only, 4096, IBV_ACCESS_LOCAL_WRITE);
  munmap(read_only, 4096);
  make("of unmapped memory", read_only, 4096, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const mr = ibv_reg_mr(device.pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
  if (mr == nullptr) return;
  say("objects: lkey and rkey of a region", mr->lkey == mr->rkey ? "equal" : "different");
  const auto again = [&](const char* what, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
    say(std::string("objects: ibv_rereg_mr ") + what, result(ibv_rereg_mr(mr, flags, pd, address, length, access)));
  };
  again("with other rights", IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  again("with other memory", IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory + 4096, 4096, 0);
  again("without flags", 0, nullptr, nullptr, 0, 0);
  again("with an unknown flag", 1 << 10, nullptr, nullptr, 0, 0);
  ibv_dereg_mr(mr);
}

void windows(const Device& device) {
  for (const auto& [type, name] : {std::pair{IBV_MW_TYPE_1, "1"}, std::pair{IBV_MW_TYPE_2, "2"}}) {
    say_made(std::string("a memory window of type ") + name, ibv_alloc_mw(device.pd, type), ibv_dealloc_mw);
  }
  say_made("a memory window of type 9", ibv_alloc_mw(device.pd, static_cast<ibv_mw_type>(9)), ibv_dealloc_mw);
}

void addresses(const Device& device) {
  const auto make = [&](const char* what, auto change) {
    ibv_ah_attr attributes = own_address(device);
    change(attributes);
    say_made(std::string("an address handle ") + what, ibv_create_ah(device.pd, &attributes), ibv_destroy_ah);
  };
  make("as it should be", [](ibv_ah_attr&) {});
  make("at port 0", [](ibv_ah_attr& it) { it.port_num = 0; });
  make("at port 2", [](ibv_ah_attr& it) { it.port_num = 2; });
  make("without GRH", [](ibv_ah_attr& it) { it.is_global = 0; });
  make("with sgid_index 99", [](ibv_ah_attr& it) { it.grh.sgid_index = 99; });
  make("to a GID of zeros", [](ibv_ah_attr& it) { it.grh.dgid = {}; });
  make("with hop limit 0", [](ibv_ah_attr& it) { it.grh.hop_limit = 0; });
  make("with a rate of 99", [](ibv_ah_attr& it) { it.static_rate = 99; });
  make("with service level 15", [](ibv_ah_attr& it) { it.sl = 15; });
}

void queries(const Device& device) {
  ibv_port_attr port{};
  say("objects: ibv_query_port of port 1", result(ibv_query_port(device.context, 1, &port)));
  say("objects: its state", ibv_port_state_str(port.state));
  say("objects: its link layer", port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "another");
  say("objects: its LID", port.lid == 0 ? "0" : "another");
  say("objects: ibv_query_port of port 0", result(ibv_query_port(device.context, 0, &port)));
  say("objects: ibv_query_port of port 2", result(ibv_query_port(device.context, 2, &port)));
  ibv_gid gid{};
  say("objects: ibv_query_gid of index 0", result(ibv_query_gid(device.context, 1, 0, &gid)));
  say("objects: ibv_query_gid of port 2", result(ibv_query_gid(device.context, 2, 0, &gid)));
  say("objects: ibv_query_gid of index 10000", result(ibv_query_gid(device.context, 1, 10000, &gid)));
  __be16 key = 0;
  say("objects: ibv_query_pkey of index 0", result(ibv_query_pkey(device.context, 1, 0, &key)));
  say("objects: the P_Key", key == 0xFFFF ? "0xffff" : "another");
  say("objects: ibv_query_pkey of index 1", result(ibv_query_pkey(device.context, 1, 1, &key)));
  const auto limit = [&](const char* name, bool there) {
    say(std::string("objects: device has ") + name, there ? "yes" : "no");
  };
  const ibv_device_attr& it = device.limits;
  limit("SRQs", it.max_srq > 0);
  limit("windows", it.max_mw > 0);
  limit("atomics", it.atomic_cap != IBV_ATOMIC_NONE);
  limit("memory management extensions", (it.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0);
  limit("windows of type 2B", (it.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
  limit("IBV_DEVICE_RC_RNR_NAK_GEN", (it.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN) != 0);
  limit("IBV_DEVICE_SRQ_RESIZE", (it.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0);
  limit("IBV_DEVICE_BAD_QKEY_CNTR", (it.device_cap_flags & IBV_DEVICE_BAD_QKEY_CNTR) != 0);
  limit("IBV_DEVICE_PORT_ACTIVE_EVENT", (it.device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT) != 0);
  limit("IBV_DEVICE_CURR_QP_STATE_MOD", (it.device_cap_flags & IBV_DEVICE_CURR_QP_STATE_MOD) != 0);
}

}  // namespace

void observe_objects(const Device& device) {
  completion_queues(device);
  queue_pairs(device);
  in_use(device);
  shared_receives(device);
  regions(device);
  windows(device);
  addresses(device);
  queries(device);
}

}  // namespace observe
