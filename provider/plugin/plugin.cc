// SPDX-License-Identifier: MIT
// The provider plugin that stock libibverbs loads. It maps the operations of libibverbs to the objects of libuiw. The
// table at the end lists all operations.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "provider/plugin/abi/ops_table.h"
#include "provider/plugin/abi/release.h"
#include "provider/plugin/objects.h"
#include "provider/plugin/ops/ah.h"
#include "provider/plugin/ops/cq.h"
#include "provider/plugin/ops/memory.h"
#include "provider/plugin/ops/pd.h"
#include "provider/plugin/ops/query.h"
#include "provider/plugin/ops/refused.h"
#include "provider/plugin/ops/srq.h"
#include "provider/plugin/refusals.h"
#include "provider/verbs/fault_effects.h"

namespace uiw::plugin {

namespace {

// ---- Device and context ----------------------------------------------------------------------------------------

verbs_device* alloc_device(verbs_sysfs_dev*) { return static_cast<verbs_device*>(std::calloc(1, sizeof(Device))); }

void uninit_device(verbs_device* device) { std::free(device); }

extern const NamedOp kOps[], kFaultyOps[];
extern const std::size_t kOpCount, kFaultyOpCount;

// Frees a context that has no rnic::Context, and sets errno to `error`.
void discard(Context* context, int error) {
  verbs_uninit_context(context->verbs);
  std::free(context);
  errno = error;
}

Context* open_context(ibv_device* device, int cmd_fd) {
  int fault = rnic::begin_faults();
  if (fault == 0) fault = rnic::fault_of_call("open_device");
  if (fault != 0) {
    errno = fault;
    return nullptr;
  }
  const std::size_t size = kVerbsContext39 + verbs_context_growth(release()) * sizeof(void*);
  const std::size_t start = offsetof(Context, base) + sizeof(ibv_context) - size;
  auto* context = static_cast<Context*>(
      _verbs_init_and_alloc_context(device, cmd_fd, sizeof(Context), reinterpret_cast<verbs_context*>(start), 0));
  if (context == nullptr) return nullptr;
  context->verbs = reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) + start);
  if (context->verbs_size != size) {
    // This libibverbs has a longer verbs_context than the plugin knows for its private ABI. Its table of operations may
    // be longer, too, so the plugin could not fill it in.
    discard(context, ENOTSUP);
    return nullptr;
  }
  new (&context->rnic) std::shared_ptr<rnic::Context>(
      without_exceptions([&] { return rnic::Context::open(device->name, &context->base); }));
  if (context->rnic == nullptr) {
    discard(context, errno);
    return nullptr;
  }
  static const OpsTable table = make_ops_table(kOps, kOpCount);
  verbs_set_ops(context->verbs, table.operations);
  if (rnic::calls_may_fail()) {
    static const OpsTable faulty = make_ops_table(kFaultyOps, kFaultyOpCount);
    verbs_set_ops(context->verbs, faulty.operations);
  }
  context->base.async_fd = context->rnic->async_fd();
  context->base.num_comp_vectors = 1;
  return context;
}

verbs_context* alloc_context(ibv_device* device, int cmd_fd, void*) {
  Context* const context = open_context(device, cmd_fd);
  return context == nullptr ? nullptr : context->verbs;
}

void close_context(Context* context, int error) {
  context->rnic->close();
  std::destroy_at(&context->rnic);  // objects that the program has not destroyed still own the rnic::Context
  discard(context, error);
}

void free_context(ibv_context* context) { close_context(context_of(context), errno); }

// Opens another context on the file to which `cmd_fd` refers. Contexts on one file can import each other's protection
// domains and memory. Queue pairs and async events belong to one context and end with it. Fails with EINVAL if no other
// context has this file.
verbs_context* import_context(ibv_device* device, int cmd_fd) {
  Context* const context = open_context(device, cmd_fd);
  if (context == nullptr || context->rnic->shares_file()) return context == nullptr ? nullptr : context->verbs;
  close_context(context, EINVAL);
  return nullptr;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return with_errno(EINVAL);
  if (size < sizeof attributes->orig_attr) return with_errno(EINVAL);
  ibv_device_attr_ex all;
  std::memset(&all, 0, sizeof all);
  context_of(context)->rnic->query_device(all);
  std::memset(static_cast<void*>(attributes), 0, size);
  std::memcpy(static_cast<void*>(attributes), &all, size < sizeof all ? size : sizeof all);
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  // Copies the members up to port_cap_flags2, which are all that the program's ibv_port_attr has if its libibverbs is
  // older than release 49. Later releases of libibverbs clear the remaining members themselves.
  constexpr std::size_t kSize39 = offsetof(ibv_port_attr, port_cap_flags2) + sizeof attributes->port_cap_flags2;
  ibv_port_attr all = {};
  const int error = errno_of([&] { return context_of(context)->rnic->query_port(port, all); });
  if (error == 0) std::memcpy(static_cast<void*>(attributes), &all, kSize39);
  return error;
}

// ---- ibv_wr_* --------------------------------------------------------------------------------------------------

void flush_pending(Qp* qp) {
  if (!qp->has_pending) return;
  qp->has_pending = false;
  qp->rnic->add(qp->pending);
}

ibv_send_wr& begin_request(ibv_qp_ex* handle, ibv_wr_opcode opcode) {
  Qp* qp = of(handle);
  flush_pending(qp);  // a request that is still pending at this point has no data
  qp->pending = {};
  qp->pending.wr_id = handle->wr_id;
  qp->pending.send_flags = handle->wr_flags;
  qp->pending.opcode = opcode;
  qp->has_pending = true;
  return qp->pending;
}

void give_data(ibv_qp_ex* handle, const ibv_sge* list, std::size_t count, unsigned flags) {
  Qp* qp = of(handle);
  if (!qp->has_pending) return;
  qp->has_pending = false;
  qp->pending.sg_list = const_cast<ibv_sge*>(list);
  qp->pending.num_sge = static_cast<int>(count);
  qp->pending.send_flags |= flags;
  qp->rnic->add(qp->pending);
}

void wr_start(ibv_qp_ex* qp) {
  of(qp)->rnic->begin_batch();
  of(qp)->has_pending = false;
}
int wr_complete(ibv_qp_ex* qp) {
  flush_pending(of(qp));
  return with_errno(of(qp)->rnic->end_batch());
}
void wr_abort(ibv_qp_ex* qp) {
  of(qp)->has_pending = false;
  of(qp)->rnic->abort_batch();
}

// A call of ibv_wr_complete() posts, so it counts as a call of ibv_post_send() for UIW_FAULT, and fails if that call is
// to fail.
int faulty_wr_complete(ibv_qp_ex* qp) {
  const int error = rnic::fault_of_call("post_send");
  if (error == 0) return wr_complete(qp);
  wr_abort(qp);
  return with_errno(error);
}

void wr_send(ibv_qp_ex* qp) { begin_request(qp, IBV_WR_SEND); }
void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) { begin_request(qp, IBV_WR_SEND_WITH_IMM).imm_data = immediate; }
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) { begin_request(qp, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey; }
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_WRITE);
  request.wr.rdma.rkey = rkey;
  request.wr.rdma.remote_addr = address;
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  request.wr.rdma.rkey = rkey;
  request.wr.rdma.remote_addr = address;
  request.imm_data = immediate;
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  request.wr.atomic.rkey = rkey;
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.compare_add = add;
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  request.wr.atomic.rkey = rkey;
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.compare_add = compare;
  request.wr.atomic.swap = swap;
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_BIND_MW);
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = *info;
}
void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) { begin_request(qp, IBV_WR_LOCAL_INV).invalidate_rkey = rkey; }
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  ibv_send_wr& request = begin_request(qp, IBV_WR_RDMA_READ);
  request.wr.rdma.rkey = rkey;
  request.wr.rdma.remote_addr = address;
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  give_data(qp, &sge, 1, 0);
}
void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) { give_data(qp, list, count, 0); }
void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  // A length beyond 32 bits exceeds every limit, and must not be truncated to a valid one.
  const ibv_sge sge{reinterpret_cast<std::uintptr_t>(address),
                    length > 0xFFFFFFFF ? 0xFFFFFFFF : static_cast<std::uint32_t>(length), 0};
  give_data(qp, &sge, 1, IBV_SEND_INLINE);
}
void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  constexpr std::size_t kMost = 64;
  ibv_sge sges[kMost];
  if (count > kMost) {
    // Too many buffers for inline data: an impossible length makes the request fail.
    sges[0] = {0, 0xFFFFFFFF, 0};
    return give_data(qp, sges, 1, IBV_SEND_INLINE);
  }
  for (std::size_t i = 0; i < count; ++i) {
    sges[i] = {reinterpret_cast<std::uintptr_t>(list[i].addr),
               list[i].length > 0xFFFFFFFF ? 0xFFFFFFFF : static_cast<std::uint32_t>(list[i].length), 0};
  }
  give_data(qp, sges, count, IBV_SEND_INLINE);
}

// The program may set the address before the data or after the data. After the data the request is no longer pending:
// it is the last one of the batch, in which address_last() sets the address.
void wr_set_ud_addr(ibv_qp_ex* handle, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
  Qp* qp = of(handle);
  if (!qp->has_pending) return qp->rnic->address_last(ah, number, qkey);
  qp->pending.wr.ud = {ah, number, qkey};
}

constexpr std::uint64_t kDatagramOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

void offer_send_ops(ibv_qp_ex& qp) {
  qp.wr_start = wr_start;
  qp.wr_complete = rnic::calls_may_fail() ? faulty_wr_complete : wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_send = wr_send;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
}

// ---- Queue pairs -----------------------------------------------------------------------------------------------

ibv_qp* make_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr& attributes, std::uint64_t send_ops) {
  return without_exceptions([&]() -> ibv_qp* {
    auto qp = std::make_unique<Qp>();
    ibv_qp& base = qp->base.qp;
    Cq* send_cq = attributes.send_cq != nullptr ? of(attributes.send_cq) : nullptr;
    Cq* receive_cq = attributes.recv_cq != nullptr ? of(attributes.recv_cq) : nullptr;
    qp->rnic = rnic::QueuePair::create(
        *context_of(context)->rnic, of(pd)->rnic, send_cq ? send_cq->rnic.get() : nullptr,
        receive_cq ? receive_cq->rnic.get() : nullptr, attributes, &base, rnic_of(attributes.srq));
    if (!qp->rnic) return nullptr;
    base.context = context;
    base.qp_context = attributes.qp_context;
    base.pd = pd;
    base.send_cq = attributes.send_cq;
    base.recv_cq = attributes.recv_cq;
    base.srq = attributes.srq;
    base.qp_num = qp->rnic->number();
    base.state = IBV_QPS_RESET;
    base.qp_type = attributes.qp_type;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    // Without VERBS_QP_EX ibv_qp_to_qp_ex() returns null, but some programs use the ibv_qp_ex although they have not
    // requested its operations.
    set_comp_mask(qp->base, VERBS_QP_EX);
    if (send_ops != 0) offer_send_ops(qp->base.qp_ex);
    of(pd)->use();
    return &qp.release()->base.qp;
  });
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) { return make_qp(pd->context, pd, *attributes, 0); }

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  const std::uint64_t offered = attributes->qp_type == IBV_QPT_UD ? kDatagramOps : kSendOps;
  const bool ops = (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const bool flags = (attributes->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0;
  if ((attributes->comp_mask & ~kKnown) != 0 || flags || (ops && (attributes->send_ops_flags & ~offered) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attributes->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_qp_init_attr plain;
  plain.qp_context = attributes->qp_context;
  plain.send_cq = attributes->send_cq;
  plain.recv_cq = attributes->recv_cq;
  plain.srq = attributes->srq;
  plain.cap = attributes->cap;
  plain.qp_type = attributes->qp_type;
  plain.sq_sig_all = attributes->sq_sig_all;
  ibv_qp* qp = make_qp(context, attributes->pd, plain, ops ? attributes->send_ops_flags : 0);
  if (qp != nullptr) attributes->cap = plain.cap;
  return qp;
}

int destroy_qp(ibv_qp* qp) {
  Qp* self = of(qp);
  if (!self->rnic->inherited() && self->rnic->is_attached()) return with_errno(EBUSY);
  if (self->rnic->inherited()) {
    self->rnic.release()->leave_to_parent();
  } else {
    self->rnic->stop();
    const unsigned reported = self->rnic->events_reported();
    await_acknowledgements(qp, qp->events_completed, context_of(qp->context)->rnic->withdraw_events(qp, reported));
  }
  Pd* pd = of(qp->pd);
  delete self;
  pd->leave();
  return 0;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return errno_of([&] { return of(qp)->rnic->modify(*attributes, mask); });
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  of(qp)->rnic->query(*attributes, *init);
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  return with_errno(of(qp)->rnic->post_send(requests, bad));
}
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  return with_errno(of(qp)->rnic->post_receive(requests, bad));
}

// ---- The table -------------------------------------------------------------------------------------------------

template <typename Function>
constexpr uiw_op op(Function* function) {
  return reinterpret_cast<uiw_op>(function);
}

template <OperationName name, auto function>
uiw_op logged() {
  return op(&LoggedOperation<name, function>::call);
}

const NamedOp kOps[] = {
    {"advise_mr", logged<"advise_mr", advise_mr>()},
    {"alloc_dm", logged<"alloc_dm", alloc_dm>()},
    {"alloc_dmah", logged<"alloc_dmah", alloc_dmah>()},
    {"alloc_mw", logged<"alloc_mw", alloc_mw>()},
    {"alloc_null_mr", logged<"alloc_null_mr", alloc_null_mr>()},
    {"alloc_parent_domain", logged<"alloc_parent_domain", alloc_parent_domain>()},
    {"alloc_pd", logged<"alloc_pd", alloc_pd>()},
    {"alloc_td", logged<"alloc_td", alloc_td>()},
    {"attach_mcast", logged<"attach_mcast", attach_mcast>()},
    {"bind_mw", op(bind_mw)},
    {"create_ah", logged<"create_ah", create_ah>()},
    {"create_cq", logged<"create_cq", create_cq>()},
    {"create_cq_ex", logged<"create_cq_ex", create_cq_ex>()},
    {"create_flow", logged<"create_flow", create_flow>()},
    {"create_qp", logged<"create_qp", create_qp>()},
    {"create_qp_ex", logged<"create_qp_ex", create_qp_ex>()},
    {"create_srq", logged<"create_srq", create_srq>()},
    {"create_srq_ex", logged<"create_srq_ex", create_srq_ex>()},
    {"dealloc_dmah", logged<"dealloc_dmah", dealloc_dmah>()},
    {"dealloc_mw", logged<"dealloc_mw", dealloc_mw>()},
    {"dealloc_pd", logged<"dealloc_pd", dealloc_pd>()},
    {"dealloc_td", logged<"dealloc_td", dealloc_td>()},
    {"dereg_mr", logged<"dereg_mr", dereg_mr>()},
    {"destroy_ah", logged<"destroy_ah", destroy_ah>()},
    {"destroy_cq", logged<"destroy_cq", destroy_cq>()},
    {"destroy_flow", logged<"destroy_flow", destroy_flow>()},
    {"destroy_qp", logged<"destroy_qp", destroy_qp>()},
    {"destroy_srq", logged<"destroy_srq", destroy_srq>()},
    {"detach_mcast", logged<"detach_mcast", detach_mcast>()},
    {"free_context", op(free_context)},
    {"free_dm", logged<"free_dm", free_dm>()},
    {"get_srq_num", op(get_srq_num)},
    {"import_dm", logged<"import_dm", import_dm>()},
    {"import_mr", logged<"import_mr", import_mr>()},
    {"import_pd", logged<"import_pd", import_pd>()},
    {"modify_cq", logged<"modify_cq", modify_cq>()},
    {"modify_qp", logged<"modify_qp", modify_qp>()},
    {"modify_srq", logged<"modify_srq", modify_srq>()},
    {"poll_cq", op(poll_cq)},
    {"post_recv", op(post_recv)},
    {"post_send", op(post_send)},
    {"post_srq_recv", op(post_srq_recv)},
    {"query_device_ex", logged<"query_device_ex", query_device_ex>()},
    {"query_port", logged<"query_port", query_port>()},
    {"query_port_speed", logged<"query_port_speed", query_port_speed>()},
    {"query_qp", logged<"query_qp", query_qp>()},
    {"query_qp_data_in_order", op(query_qp_data_in_order)},
    {"query_rt_values", logged<"query_rt_values", query_rt_values>()},
    {"query_srq", logged<"query_srq", query_srq>()},
    {"reg_dm_mr", logged<"reg_dm_mr", reg_dm_mr>()},
    {"reg_dmabuf_mr", logged<"reg_dmabuf_mr", reg_dmabuf_mr>()},
    {"reg_mr", logged<"reg_mr", reg_mr>()},
    {"reg_mr_ex", logged<"reg_mr_ex", reg_mr_ex>()},
    {"req_notify_cq", op(req_notify_cq)},
    {"rereg_mr", logged<"rereg_mr", rereg_mr>()},
    {"resize_cq", logged<"resize_cq", resize_cq>()},
    {"unimport_dm", op(unimport_dm)},
    {"unimport_mr", op(unimport_mr)},
    {"unimport_pd", op(unimport_pd)},
};
const std::size_t kOpCount = sizeof kOps / sizeof kOps[0];

int faulty_poll_cq(ibv_cq* cq, int count, ibv_wc* completions) {
  const int error = rnic::fault_of_call("poll_cq");
  return error == 0 ? poll_cq(cq, count, completions) : -with_errno(error);
}

// Operations of the data path that check for injected faults. They replace those of kOps in a process with injected
// faults of calls (calls_may_fail()).
const NamedOp kFaultyOps[] = {
    {"poll_cq", op(faulty_poll_cq)},
    {"post_recv", op(&FaultyPosting<"post_recv", post_recv>::call)},
    {"post_send", op(&FaultyPosting<"post_send", post_send>::call)},
    {"post_srq_recv", op(&FaultyPosting<"post_srq_recv", post_srq_recv>::call)},
    {"req_notify_cq", logged<"req_notify_cq", req_notify_cq>()},
};
const std::size_t kFaultyOpCount = sizeof kFaultyOps / sizeof kFaultyOps[0];

// The first row matches the modalias of all devices of uiw, which no other device has. The second row matches the usual
// names of uiw's devices, in case another release of uiw has written the sysfs files, with another modalias.
const verbs_match_ent kMatches[] = {
    {nullptr, {.modalias = "uiw:*"}, 0, 0, VERBS_MATCH_MODALIAS},
    {nullptr, {.modalias = "rdma_device:*Nuiw_*"}, 0, 0, VERBS_MATCH_MODALIAS},
    {nullptr, {.modalias = nullptr}, 0, 0, 0},
};

constexpr verbs_device_ops kDevice = {
    .name = "uiw",
    .match_min_abi_version = 1,
    .match_max_abi_version = 1,
    .match_table = kMatches,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = alloc_context,
    .import_context = import_context,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

// Registers the plugin with libibverbs. Runs when libibverbs or the interposer loads the plugin.
__attribute__((constructor)) void register_with_libibverbs() { UIW_JOIN(verbs_register_driver_, UIW_PABI)(&kDevice); }

}  // namespace

}  // namespace uiw::plugin
