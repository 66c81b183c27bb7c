// SPDX-License-Identifier: MIT
// The provider plugin that stock libibverbs loads. It maps the operations of libibverbs to the objects of libuiw. The
// table at the end lists all operations.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "provider/plugin/abi/ops_table.h"
#include "provider/plugin/abi/release.h"
#include "provider/plugin/checked.h"
#include "provider/plugin/objects.h"
#include "provider/plugin/ops/ah.h"
#include "provider/plugin/ops/cq.h"
#include "provider/plugin/ops/memory.h"
#include "provider/plugin/ops/pd.h"
#include "provider/plugin/ops/qp.h"
#include "provider/plugin/ops/query.h"
#include "provider/plugin/ops/refused.h"
#include "provider/plugin/ops/srq.h"
#include "provider/plugin/ops/xrc.h"
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
  if (rnic::check::Checker::begin(kQuestions) != nullptr) {
    static const OpsTable checked = make_ops_table(kCheckedOps, kCheckedOpCount);
    verbs_set_ops(context->verbs, checked.operations);
    note_opened(context->base);
  } else if (rnic::calls_may_fail()) {
    static const OpsTable faulty = make_ops_table(kFaultyOps, kFaultyOpCount);
    verbs_set_ops(context->verbs, faulty.operations);
  }
  context->base.async_fd = context->rnic->async_fd();
  // As of adapters, one for each processor; nothing depends on which of them a completion queue has.
  context->base.num_comp_vectors = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF)));
  return context;
}

verbs_context* alloc_context(ibv_device* device, int cmd_fd, void*) {
  Context* const context = open_context(device, cmd_fd);
  return context == nullptr ? nullptr : context->verbs;
}

void close_context(Context* context, int error) {
  note_closes(context->base);
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

// Those of operations that this libibverbs has no functions for.
constexpr std::uint64_t absent_capabilities(unsigned late_operations) {
  return (late_operations < 1 ? std::uint64_t{UIW_DEVICE_ATOMIC_WRITE} : 0) |
         (late_operations < 2 ? std::uint64_t{UIW_DEVICE_FLUSH} : 0);
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return with_errno(EINVAL);
  if (size < sizeof attributes->orig_attr) return with_errno(EINVAL);
  ibv_device_attr_ex all;
  std::memset(&all, 0, sizeof all);
  context_of(context)->rnic->query_device(all);
  all.device_cap_flags_ex &= ~absent_capabilities(late_send_ops());
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
    {"close_xrcd", logged<"close_xrcd", close_xrcd>()},
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
    {"open_qp", logged<"open_qp", open_qp>()},
    {"open_xrcd", logged<"open_xrcd", open_xrcd>()},
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
