// SPDX-License-Identifier: MIT
// Every operation that libibverbs can ask a provider for, with arguments that an adapter would take: each works, or
// returns the errno of its manual page.
//
//   uiw_every_op
//
// Says of each operation, by its name in the provider's table, what it did. An operation on an object that cannot be
// made gets a blank one: the provider knows that it is none of its own, or does not have the operation.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>
#include <vector>

#include "tests/apps/support/endpoint.h"

namespace {

using apps::die;

constexpr std::size_t kSize = 65536;
constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;  // the macro ibv_reg_mr wants an integer

void print(const char* op, int error) {
  std::printf("%s: %s\n", op, error == 0 ? "works" : strerrorname_np(error) ? strerrorname_np(error) : "?");
}

// What returns 0 or an errno. With no errno named, it has to work.
bool works(const char* op, int error, std::initializer_list<int> allowed = {}) {
  bool good = error == 0;
  for (const int each : allowed) good = good || error == each;
  if (!good) die("%s: %d (%s)", op, error, error > 0 && strerrorname_np(error) ? strerrorname_np(error) : "no errno");
  print(op, error);
  return error == 0;
}

// What returns an object, or null and sets errno.
template <typename Object>
Object* made(const char* op, Object* object, std::initializer_list<int> allowed = {}) {
  works(op, object != nullptr ? 0 : errno != 0 ? errno : -1, allowed);
  return object;
}

// What must fail with this errno.
void refused(const char* op, int result, int error) {
  if (result != error) die("%s: %d, not %s", op, result, strerrorname_np(error));
  print(op, result);
}
template <typename Object>
void refused(const char* op, Object* object, int error) {
  refused(op, object != nullptr ? 0 : errno, error);
}

// An object of the program's own making: no operation is known that made it.
template <typename Object>
Object blank(ibv_context* context) {
  Object object{};
  object.context = context;
  return object;
}

// What every operation has at hand.
struct World {
  ibv_device** devices;
  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_qp* qp;
  std::vector<char> memory = std::vector<char>(kSize);
  ibv_mr* mr;

  World() {
    int count = 0;
    devices = ibv_get_device_list(&count);
    if (devices == nullptr || count == 0) die("no device");
    context = made("open_device", ibv_open_device(devices[0]));
    pd = made("alloc_pd", ibv_alloc_pd(context));
    channel = made("create_comp_channel", ibv_create_comp_channel(context));
    cq = made("create_cq", ibv_create_cq(context, 16, nullptr, channel, 0));
    ibv_qp_init_attr attributes = apps::qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    qp = made("create_qp", ibv_create_qp(pd, &attributes));
    mr = made("reg_mr", ibv_reg_mr(pd, memory.data(), kSize,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  }
  ibv_sge sge() const { return {reinterpret_cast<std::uint64_t>(memory.data()), 64, mr->lkey}; }
  void to(ibv_qp_state state) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    works("modify_qp", ibv_modify_qp(qp, &attributes, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)));
  }
  ~World() {
    works("destroy_qp", ibv_destroy_qp(qp));
    works("destroy_cq", ibv_destroy_cq(cq));
    works("destroy_comp_channel", ibv_destroy_comp_channel(channel));
    works("dereg_mr", ibv_dereg_mr(mr));
    works("dealloc_pd", ibv_dealloc_pd(pd));
    works("close_device", ibv_close_device(context));
    ibv_free_device_list(devices);
  }
};

void flush_completion(World& w, ibv_wc& wc) {
  const auto end = apps::Clock::now() + apps::kPatience;
  int count;
  while ((count = ibv_poll_cq(w.cq, 1, &wc)) == 0 && apps::Clock::now() < end) sched_yield();
  if (count != 1) die("poll_cq: %d", count);
  if (wc.status != IBV_WC_WR_FLUSH_ERR) die("poll_cq: status %s", ibv_wc_status_str(wc.status));
}

// ---- Domains and memory ----

void memory(World& w) {
  ibv_sge sge = w.sge();
  works("advise_mr", ibv_advise_mr(w.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1),
        {EINVAL});  // not an on-demand region
  ibv_alloc_dm_attr dm_attributes{};
  dm_attributes.length = 4096;
  ibv_dm* dm = made("alloc_dm", ibv_alloc_dm(w.context, &dm_attributes), {EOPNOTSUPP});
  ibv_dm no_dm = blank<ibv_dm>(w.context);
  ibv_mr* dm_mr =
      made("reg_dm_mr",
           ibv_reg_dm_mr(w.pd, dm != nullptr ? dm : &no_dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED),
           {EOPNOTSUPP});
  if (dm_mr != nullptr) works("dereg_mr", ibv_dereg_mr(dm_mr));
  ibv_dm* same_dm = made("import_dm", ibv_import_dm(w.context, dm != nullptr ? dm->handle : 1), {EOPNOTSUPP});
  ibv_unimport_dm(same_dm != nullptr ? same_dm : &no_dm);
  print("unimport_dm", 0);
  works("free_dm", ibv_free_dm(dm != nullptr ? dm : &no_dm), {EOPNOTSUPP});

  ibv_mw* mw = made("alloc_mw", ibv_alloc_mw(w.pd, IBV_MW_TYPE_1), {EOPNOTSUPP});
  ibv_mw no_mw = blank<ibv_mw>(w.context);
  no_mw.pd = w.pd;
  no_mw.type = IBV_MW_TYPE_1;
  ibv_mw_bind bind{};
  works("bind_mw", ibv_bind_mw(w.qp, mw != nullptr ? mw : &no_mw, &bind), {EOPNOTSUPP, EINVAL});
  works("dealloc_mw", ibv_dealloc_mw(mw != nullptr ? mw : &no_mw), {EOPNOTSUPP});

  ibv_mr* null_mr = made("alloc_null_mr", ibv_alloc_null_mr(w.pd), {EOPNOTSUPP});
  if (null_mr != nullptr) works("dereg_mr", ibv_dereg_mr(null_mr));
  const int fd = memfd_create("buffer", MFD_CLOEXEC);  // mapped by no driver: no buffer of a device
  ibv_mr* buffer = made("reg_dmabuf_mr", ibv_reg_dmabuf_mr(w.pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE),
                        {EOPNOTSUPP, EINVAL, EBADF});
  if (buffer != nullptr) works("dereg_mr", ibv_dereg_mr(buffer));
  close(fd);
  errno = 0;
  const int result = ibv_rereg_mr(w.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
  works("rereg_mr", result == 0 ? 0 : errno, {EOPNOTSUPP});
  ibv_mr* same_mr = made("import_mr", ibv_import_mr(w.pd, w.mr->handle), {EOPNOTSUPP});
  ibv_mr no_mr = blank<ibv_mr>(w.context);
  ibv_unimport_mr(same_mr != nullptr ? same_mr : &no_mr);
  print("unimport_mr", 0);
}

void domains(World& w) {
  ibv_pd* same_pd = made("import_pd", ibv_import_pd(w.context, w.pd->handle), {EOPNOTSUPP});
  ibv_pd no_pd = blank<ibv_pd>(w.context);
  ibv_unimport_pd(same_pd != nullptr ? same_pd : &no_pd);
  print("unimport_pd", 0);
  ibv_td_init_attr td_attributes{};
  td_attributes.comp_mask = 1;
  refused("alloc_td", ibv_alloc_td(w.context, &td_attributes), EINVAL);
  td_attributes.comp_mask = 0;
  ibv_td* td = made("alloc_td", ibv_alloc_td(w.context, &td_attributes));
  ibv_parent_domain_init_attr attributes{};
  refused("alloc_parent_domain", ibv_alloc_parent_domain(w.context, &attributes), EINVAL);
  attributes.pd = w.pd;
  attributes.td = td;
  attributes.comp_mask = 1U << 20;
  refused("alloc_parent_domain", ibv_alloc_parent_domain(w.context, &attributes), EINVAL);
  attributes.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  attributes.alloc = [](ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) { return IBV_ALLOCATOR_USE_DEFAULT; };
  refused("alloc_parent_domain", ibv_alloc_parent_domain(w.context, &attributes), EINVAL);  // without the other
  attributes.free = [](ibv_pd*, void*, void*, std::uint64_t) {};
  ibv_pd* parent = made("alloc_parent_domain", ibv_alloc_parent_domain(w.context, &attributes));
  refused("dealloc_td", ibv_dealloc_td(td), EBUSY);

  // It stands for its protection domain wherever one is wanted.
  ibv_mr* mr = made("reg_mr", ibv_reg_mr(parent, w.memory.data(), kSize, kLocal));
  ibv_cq_init_attr_ex cq_attributes{};
  cq_attributes.cqe = 16;
  cq_attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  cq_attributes.parent_domain = w.pd;
  refused("create_cq_ex", ibv_create_cq_ex(w.context, &cq_attributes), EINVAL);  // no parent domain
  cq_attributes.parent_domain = parent;
  ibv_cq_ex* cq = made("create_cq_ex", ibv_create_cq_ex(w.context, &cq_attributes));
  ibv_qp_init_attr qp_attributes = apps::qp_attributes({});
  qp_attributes.send_cq = qp_attributes.recv_cq = ibv_cq_ex_to_cq(cq);
  ibv_qp* qp = made("create_qp", ibv_create_qp(parent, &qp_attributes));
  refused("dealloc_pd", ibv_dealloc_pd(parent), EBUSY);
  works("destroy_qp", ibv_destroy_qp(qp));
  works("destroy_cq", ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
  works("dereg_mr", ibv_dereg_mr(mr));
  if (ibv_dealloc_pd(w.pd) != EBUSY) die("a protection domain goes before its parent domain");
  works("dealloc_pd", ibv_dealloc_pd(parent));
  works("dealloc_td", ibv_dealloc_td(td));
}

// ---- Queues ----

void completion_queues(World& w) {
  const int vectors = w.context->num_comp_vectors;
  if (vectors < sysconf(_SC_NPROCESSORS_ONLN)) die("num_comp_vectors is %d", vectors);
  for (const int vector : {-1, vectors})
    refused("create_cq", ibv_create_cq(w.context, 16, nullptr, nullptr, vector), EINVAL);
  ibv_cq* const last = ibv_create_cq(w.context, 16, nullptr, nullptr, vectors - 1);
  if (last == nullptr || ibv_destroy_cq(last) != 0) die("the last completion vector");
  for (const int size : {-1, 0}) refused("create_cq", ibv_create_cq(w.context, size, nullptr, nullptr, 0), EINVAL);
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  for (const std::uint64_t field : {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO}) {
    attributes.wc_flags = field;
    refused("create_cq_ex", ibv_create_cq_ex(w.context, &attributes), EOPNOTSUPP);
  }
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  for (const std::uint32_t size : {0U, 0x80000000U, 0xFFFFFFFFU}) {
    attributes.cqe = size;
    refused("create_cq_ex", ibv_create_cq_ex(w.context, &attributes), EINVAL);
  }
  attributes.cqe = 16;
  attributes.comp_vector = static_cast<std::uint32_t>(vectors);
  refused("create_cq_ex", ibv_create_cq_ex(w.context, &attributes), EINVAL);
  attributes.comp_vector = 0;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attributes.flags = 1U << 20;
  refused("create_cq_ex", ibv_create_cq_ex(w.context, &attributes), EOPNOTSUPP);
  attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  attributes.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* extended = made("create_cq_ex", ibv_create_cq_ex(w.context, &attributes));
  if (extended == nullptr) die("no extended completion queue");
  ibv_cq* plain = ibv_cq_ex_to_cq(extended);
  ibv_poll_cq_attr poll{};
  if (ibv_start_poll(extended, &poll) != ENOENT) die("ibv_start_poll finds something");
  poll.comp_mask = 1;
  if (ibv_start_poll(extended, &poll) != EINVAL) die("ibv_start_poll takes a mask that is none");
  works("resize_cq", ibv_resize_cq(plain, 1000));
  if (plain->cqe < 1000) die("resize_cq: cqe is %d", plain->cqe);
  for (const int size : {0, -1, 1 << 30}) refused("resize_cq", ibv_resize_cq(plain, size), EINVAL);
  ibv_modify_cq_attr change{};
  refused("modify_cq", ibv_modify_cq(plain, &change), EINVAL);
  change.attr_mask = 1U << 20;
  refused("modify_cq", ibv_modify_cq(plain, &change), EOPNOTSUPP);
  change.attr_mask = IBV_CQ_ATTR_MODERATE;
  change.moderate = {32, 100};
  works("modify_cq", ibv_modify_cq(plain, &change));
  works("destroy_cq", ibv_destroy_cq(plain));
}

// Work that flushes, and its completions.
void work_in_error(World& w) {
  ibv_sge sge = w.sge();
  ibv_recv_wr receive{};
  receive.wr_id = 1;
  receive.sg_list = &sge;
  receive.num_sge = -1;
  ibv_recv_wr* bad_receive = nullptr;
  refused("post_recv", ibv_post_recv(w.qp, &receive, &bad_receive), EINVAL);
  receive.num_sge = 1;
  w.to(IBV_QPS_INIT);
  works("post_recv", ibv_post_recv(w.qp, &receive, &bad_receive));
  works("req_notify_cq", ibv_req_notify_cq(w.cq, 0));
  w.to(IBV_QPS_ERR);
  ibv_wc wc{};
  flush_completion(w, wc);
  if (wc.wr_id != 1) die("poll_cq: another receive");
  print("poll_cq", 0);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  if (ibv_get_cq_event(w.channel, &cq, &cq_context) != 0 || cq != w.cq) die("cq_event");
  print("cq_event", 0);
  ibv_ack_cq_events(cq, 1);
  works("post_send", apps::SendRequest(IBV_WR_SEND, sge, 2, 0).try_post(w.qp));
  flush_completion(w, wc);
}

// More completions than there is room for.
void overrun(World& w) {
  for (int i = 0; i <= w.cq->cqe; ++i) works("post_send", apps::SendRequest(IBV_WR_SEND, w.sge(), 2, 0).try_post(w.qp));
  ibv_async_event event{};
  if (ibv_get_async_event(w.context, &event) != 0) die("async_event: %s", std::strerror(errno));
  if (event.event_type != IBV_EVENT_CQ_ERR || event.element.cq != w.cq) {
    die("async_event: %s", ibv_event_type_str(event.event_type));
  }
  if (std::strcmp(ibv_event_type_str(event.event_type), "CQ error") != 0) die("ibv_event_type_str");
  ibv_ack_async_event(&event);
  print("async_event", 0);
  ibv_wc wc{};
  for (int i = 0; i < w.cq->cqe; ++i) flush_completion(w, wc);
}

// libibverbs says RESET of it, and the drivers of iWARP adapters INIT.
void new_queue_pair(World& w) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  works("query_qp", ibv_query_qp(w.qp, &attributes, IBV_QP_STATE, &init));
  if (attributes.qp_state != IBV_QPS_INIT) die("query_qp: %d", attributes.qp_state);
}

void queue_pair_attributes(World& w) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  works("query_qp", ibv_query_qp(w.qp, &attributes, IBV_QP_STATE | IBV_QP_CAP, &init));
  if (attributes.qp_state != IBV_QPS_ERR || init.send_cq != w.cq || attributes.cap.max_send_wr < 64) die("query_qp");
  works("query_qp_data_in_order", ibv_query_qp_data_in_order(w.qp, IBV_WR_RDMA_WRITE, 0) == 1 ? 0 : -1);
  if (ibv_query_qp_data_in_order(w.qp, IBV_WR_RDMA_WRITE, 1) != 0) die("query_qp_data_in_order: flags");
  if (ibv_query_qp_data_in_order(w.qp, IBV_WR_RDMA_READ, 0) != 0) die("query_qp_data_in_order: Reads");
  ibv_ece ece{};
  works("query_ece", ibv_query_ece(w.qp, &ece), {EOPNOTSUPP});
  ece.vendor_id = 0x1234;
  works("set_ece", ibv_set_ece(w.qp, &ece), {EOPNOTSUPP});
  ibv_qp_rate_limit_attr rate{};
  rate.rate_limit = 1000;
  works("modify_qp_rate_limit", ibv_modify_qp_rate_limit(w.qp, &rate), {EOPNOTSUPP});
}

void queue_pairs_of_other_kinds(World& w) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_type = IBV_QPT_RC;
  extended.send_cq = extended.recv_cq = w.cq;
  extended.cap.max_send_wr = extended.cap.max_recv_wr = 4;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  extended.pd = w.pd;
  extended.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
  for (const bool names_flags : {false, true}) {
    if (names_flags) extended.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;  // none of them
    if (ibv_qp* qp = made("create_qp_ex", ibv_create_qp_ex(w.context, &extended))) {
      works("destroy_qp", ibv_destroy_qp(qp));
    }
  }
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    ibv_qp_init_attr other = apps::qp_attributes({});
    other.send_cq = other.recv_cq = w.cq;
    other.qp_type = type;
    if (type == IBV_QPT_UC) {
      if (ibv_qp* qp = made("create_qp", ibv_create_qp(w.pd, &other))) works("destroy_qp", ibv_destroy_qp(qp));
      continue;
    }
    refused("create_qp", ibv_create_qp(w.pd, &other), EOPNOTSUPP);
  }
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = w.qp->qp_num;
  open.qp_type = IBV_QPT_XRC_RECV;
  made("open_qp", ibv_open_qp(w.context, &open), {EOPNOTSUPP});
}

void shared_receive_queue(World& w) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = 16;
  init.attr.max_sge = 1;
  ibv_srq* srq = made("create_srq", ibv_create_srq(w.pd, &init), {EOPNOTSUPP});
  ibv_srq no_srq = blank<ibv_srq>(w.context);
  ibv_srq* any = srq != nullptr ? srq : &no_srq;
  ibv_srq_attr attributes{};
  works("query_srq", ibv_query_srq(any, &attributes), {EOPNOTSUPP});
  attributes.srq_limit = 2;
  works("modify_srq", ibv_modify_srq(any, &attributes, IBV_SRQ_LIMIT), {EOPNOTSUPP});
  std::uint32_t number = 0;
  works("get_srq_num", ibv_get_srq_num(any, &number), {EOPNOTSUPP, EINVAL});
  works("post_srq_recv", apps::try_post_receive(any, {w.sge()}), {EOPNOTSUPP});
  ibv_ops_wr tags{};
  ibv_ops_wr* bad_tags = nullptr;
  works("post_srq_ops", ibv_post_srq_ops(any, &tags, &bad_tags), {EOPNOTSUPP});
  works("destroy_srq", ibv_destroy_srq(any), {EOPNOTSUPP});
  ibv_srq_init_attr_ex extended{};
  extended.attr = init.attr;
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = IBV_SRQT_BASIC;
  extended.pd = w.pd;
  srq = made("create_srq_ex", ibv_create_srq_ex(w.context, &extended), {EOPNOTSUPP});
  if (srq != nullptr) works("destroy_srq", ibv_destroy_srq(srq));
}

// ---- What an iWARP device has no use for ----

void addresses_and_groups(World& w) {
  ibv_ah_attr ah_attributes{};
  ah_attributes.port_num = 1;
  made("create_ah", ibv_create_ah(w.pd, &ah_attributes), {EOPNOTSUPP});
  ibv_ah no_ah = blank<ibv_ah>(w.context);
  works("destroy_ah", ibv_destroy_ah(&no_ah), {EOPNOTSUPP});
  ibv_gid group{};
  group.raw[0] = 0xFF;
  works("attach_mcast", ibv_attach_mcast(w.qp, &group, 0), {EOPNOTSUPP});
  works("detach_mcast", ibv_detach_mcast(w.qp, &group, 0), {EOPNOTSUPP});
}

void counters_and_flows(World& w) {
  ibv_counters_init_attr counters_attributes{};
  made("create_counters", ibv_create_counters(w.context, &counters_attributes), {EOPNOTSUPP});
  ibv_counters no_counters = blank<ibv_counters>(w.context);
  ibv_flow no_flow = blank<ibv_flow>(w.context);
  ibv_counter_attach_attr point{};
  works("attach_counters_point_flow", ibv_attach_counters_point_flow(&no_counters, &point, &no_flow), {EOPNOTSUPP});
  std::uint64_t value = 0;
  works("read_counters", ibv_read_counters(&no_counters, &value, 1, 0), {EOPNOTSUPP});
  works("destroy_counters", ibv_destroy_counters(&no_counters), {EOPNOTSUPP});

  ibv_flow_attr flow{};
  flow.size = sizeof flow;
  flow.port = 1;
  refused("create_flow", ibv_create_flow(w.qp, &flow), ENXIO);
  refused("destroy_flow", ibv_destroy_flow(&no_flow), EINVAL);
  ibv_flow_action_esp_attr esp{};
  made("create_flow_action_esp", ibv_create_flow_action_esp(w.context, &esp), {EOPNOTSUPP});
  ibv_flow_action no_action = blank<ibv_flow_action>(w.context);
  works("modify_flow_action_esp", ibv_modify_flow_action_esp(&no_action, &esp), {EOPNOTSUPP});
  works("destroy_flow_action", ibv_destroy_flow_action(&no_action), {EOPNOTSUPP});
}

void work_queues(World& w) {
  ibv_wq_init_attr wq_attributes{};
  wq_attributes.wq_type = IBV_WQT_RQ;
  wq_attributes.max_wr = 16;
  wq_attributes.max_sge = 1;
  wq_attributes.pd = w.pd;
  wq_attributes.cq = w.cq;
  made("create_wq", ibv_create_wq(w.context, &wq_attributes), {EOPNOTSUPP});
  ibv_wq no_wq = blank<ibv_wq>(w.context);
  ibv_wq_attr wq_change{};
  works("modify_wq", ibv_modify_wq(&no_wq, &wq_change), {EOPNOTSUPP});
  ibv_wq* table[] = {&no_wq};
  ibv_rwq_ind_table_init_attr table_attributes{};
  table_attributes.ind_tbl = table;
  made("create_rwq_ind_table", ibv_create_rwq_ind_table(w.context, &table_attributes), {EOPNOTSUPP});
  ibv_rwq_ind_table no_table = blank<ibv_rwq_ind_table>(w.context);
  works("destroy_rwq_ind_table", ibv_destroy_rwq_ind_table(&no_table), {EOPNOTSUPP});
  works("destroy_wq", ibv_destroy_wq(&no_wq), {EOPNOTSUPP});
}

void domains_and_devices_of_others(World& w) {
  ibv_xrcd_init_attr xrcd{};
  xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd.fd = -1;
  xrcd.oflags = O_CREAT;
  made("open_xrcd", ibv_open_xrcd(w.context, &xrcd), {EOPNOTSUPP});
  ibv_xrcd no_xrcd = blank<ibv_xrcd>(w.context);
  works("close_xrcd", ibv_close_xrcd(&no_xrcd), {EOPNOTSUPP});

  const int fd = fcntl(w.context->cmd_fd, F_DUPFD_CLOEXEC, 0);
  ibv_context* same = made("import_device", ibv_import_device(fd), {EOPNOTSUPP});
  if (same != nullptr) ibv_close_device(same);
}

void device(World& w) {
  ibv_device_attr_ex attributes{};
  works("query_device_ex", ibv_query_device_ex(w.context, nullptr, &attributes));
  if (attributes.completion_timestamp_mask == 0 || attributes.hca_core_clock == 0 ||
      attributes.cq_mod_caps.max_cq_count == 0) {
    die("query_device_ex: no clock, or no moderation");
  }
  ibv_port_attr port{};
  works("query_port", ibv_query_port(w.context, 1, &port));
  refused("query_port", ibv_query_port(w.context, 2, &port), EINVAL);
  ibv_values_ex values{};
  works("query_rt_values", ibv_query_rt_values_ex(w.context, &values));
  if (values.comp_mask != 0) die("query_rt_values: more than was asked for");
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 1U << 20;
  works("query_rt_values", ibv_query_rt_values_ex(w.context, &values));
  if (values.comp_mask != IBV_VALUES_MASK_RAW_CLOCK || values.raw_clock.tv_nsec == 0) die("query_rt_values");
}

}  // namespace

int main() {
  {
    World world;
    device(world);
    new_queue_pair(world);
    domains(world);
    completion_queues(world);
    memory(world);
    shared_receive_queue(world);
    addresses_and_groups(world);
    counters_and_flows(world);
    work_queues(world);
    domains_and_devices_of_others(world);
    work_in_error(world);
    overrun(world);
    queue_pair_attributes(world);
    queue_pairs_of_other_kinds(world);
  }
  print("free_context", 0);
}
