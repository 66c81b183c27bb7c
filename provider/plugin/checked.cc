// SPDX-License-Identifier: MIT
#include "provider/plugin/checked.h"

#include <cerrno>
#include <type_traits>
#include <utility>
#include <vector>

#include "provider/check/checker.h"
#include "provider/plugin/ops/ah.h"
#include "provider/plugin/ops/batch.h"
#include "provider/plugin/ops/cq.h"
#include "provider/plugin/ops/memory.h"
#include "provider/plugin/ops/pd.h"
#include "provider/plugin/ops/qp.h"
#include "provider/plugin/ops/srq.h"
#include "provider/plugin/ops/xrc.h"
#include "provider/plugin/refusals.h"
#include "provider/process/faults/faults.h"
#include "provider/verbs/inventory_source.h"

// Where the program calls the function that this stands in, which it does directly.
#define UIW_CALLER __builtin_return_address(0)
#define UIW_FRAME __builtin_frame_address(0)

namespace uiw::plugin {

namespace {

using rnic::check::Checker;
using rnic::check::Kind;
using rnic::check::Place;

Checker& checker() { return *Checker::active(); }

// Calls a function that may throw for lack of memory; then the call of the program goes on unchecked.
template <typename Function>
bool note(Function function) {
  const int saved = errno;
  bool done = true;
  try {
    function();
  } catch (const std::exception&) {
    done = false;
  }
  errno = saved;
  return done;
}

// A call of the program that uses an object, from here to the end of the block.
class Use {
 public:
  Use(const void* handle, const char* function, const void* caller = nullptr, bool polls = false) : handle_(handle) {
    note([&] { allowed_ = checker().enter(handle, function, caller, polls); });
  }
  ~Use() {
    if (allowed_) note([&] { checker().leave(handle_); });
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return allowed_; }

 private:
  const void* const handle_;
  bool allowed_ = true;
};

// ---- Batches (ibv_wr_*) and extended polling --------------------------------------------------------------------

// The batch is over: none of its requests, or all of them, were posted.
void end_of_batch(const Qp& qp, const std::vector<std::uint64_t>& numbers, int error) {
  for (auto number = numbers.rbegin(); number != numbers.rend(); ++number)
    note([&] { checker().posted(&qp.base.qp, true, *number, 1, error == 0 ? 1 : 0, error); });
}

void start_checked(ibv_qp_ex* handle) {
  Qp& qp = *of(handle);
  const Use use(&qp.base.qp, "ibv_wr_start", UIW_CALLER);
  if (!use) return;
  const Place caller = Place::of_call(UIW_CALLER);
  qp.rnic->begin_batch();
  qp.has_pending = false;
  end_of_batch(qp, std::exchange(qp.batch, {}), EINVAL);  // not empty if this thread begins a batch within a batch
  qp.batch_caller = caller;
}

int complete_checked(ibv_qp_ex* handle) {
  Qp& qp = *of(handle);
  const Use use(&qp.base.qp, "ibv_wr_complete", UIW_CALLER);
  if (!use) return with_errno(EINVAL);
  const int fault = rnic::fault_of_call("post_send");
  if (fault == 0 && qp.has_pending) add_checked(qp, qp.pending);
  qp.has_pending = false;
  // The end of the batch lets another thread begin one, so the numbers are taken before.
  const auto numbers = std::exchange(qp.batch, {});
  if (fault == 0 && checker().delays_next()) qp.rnic->delay_posts();
  if (fault != 0) qp.rnic->abort_batch();
  const int error = fault != 0 ? fault : qp.rnic->end_batch();
  end_of_batch(qp, numbers, error);
  return with_errno(error);
}

void abort_checked(ibv_qp_ex* handle) {
  Qp& qp = *of(handle);
  const Use use(&qp.base.qp, "ibv_wr_abort", UIW_CALLER);
  if (!use) return;
  qp.has_pending = false;
  const auto numbers = std::exchange(qp.batch, {});
  qp.rnic->abort_batch();
  end_of_batch(qp, numbers, ECANCELED);
}

int start_poll_checked(ibv_cq_ex* handle, ibv_poll_cq_attr* attributes) {
  const void* const caller = UIW_CALLER;
  const Use use(handle, "ibv_start_poll", caller, true);
  if (!use) return EINVAL;
  const int error = start_poll(handle, attributes);
  const void* const frame = UIW_FRAME;
  note([&] { checker().polled(of(handle)->base, &of(handle)->current, error == 0 ? 1 : 0, caller, frame); });
  if (error == 0) handle->wr_id = of(handle)->current.wr_id;
  return error;
}

int next_poll_checked(ibv_cq_ex* handle) {
  const void* const caller = UIW_CALLER;
  const int error = next_poll(handle);
  const void* const frame = UIW_FRAME;
  if (error == 0) {
    note([&] { checker().polled(of(handle)->base, &of(handle)->current, 1, caller, frame); });
    handle->wr_id = of(handle)->current.wr_id;
  }
  return error;
}

void offer_checked(verbs_qp& base, std::uint64_t operations) {
  offer_checked_send_ops(base, operations);
  ibv_qp_ex& qp = base.qp_ex;
  qp.wr_start = start_checked;
  qp.wr_complete = complete_checked;
  qp.wr_abort = abort_checked;
}

void offer_checked(ibv_cq_ex& cq) {
  cq.start_poll = start_poll_checked;
  cq.next_poll = next_poll_checked;
}

// ---- Objects ---------------------------------------------------------------------------------------------------

// Whether an object that the new one is to use is there. Null counts as there.
template <typename... Handles>
bool there(const char* function, const Handles*... handles) {
  bool all = true;
  const auto look = [&](const void* handle) {
    if (handle != nullptr && !Use(handle, function)) all = false;
  };
  (look(handles), ...);
  if (!all) errno = EINVAL;
  return all;
}

// A call that destroys an object, from here to the end of the block, also if the thread is cancelled in it.
class Destruction {
 public:
  Destruction(const void* handle, const char* function) : handle_(handle) {
    note([&] { allowed_ = checker().begin_destroy(handle, function); });
    if (allowed_) note([&] { checker().await_calls(handle); });
  }
  ~Destruction() {
    if (allowed_) note([&] { checker().end_destroy(handle_, destroyed_); });
  }
  Destruction(const Destruction&) = delete;
  Destruction& operator=(const Destruction&) = delete;
  explicit operator bool() const { return allowed_; }
  int ends_with(int error) {
    destroyed_ = error == 0;
    return error;
  }

 private:
  const void* const handle_;
  bool allowed_ = true, destroyed_ = false;
};

template <auto operation, typename Handle>
int destroy(Handle* handle, const char* function) {
  Destruction destruction(handle, function);
  return destruction ? destruction.ends_with(operation(handle)) : with_errno(EINVAL);
}

ibv_pd* checked_alloc_pd(ibv_context* context) {
  ibv_pd* const pd = LoggedOperation<"alloc_pd", alloc_pd>::call(context);
  if (pd != nullptr) note([&] { checker().created(Kind::domain, pd, context); });
  return pd;
}

int checked_dealloc_pd(ibv_pd* pd) {
  return destroy<LoggedOperation<"dealloc_pd", dealloc_pd>::call>(pd, "ibv_dealloc_pd");
}

ibv_mr* checked_reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  if (!there("ibv_reg_mr", pd)) return nullptr;
  ibv_mr* const mr = LoggedOperation<"reg_mr", reg_mr>::call(pd, address, length, iova, access);
  if (mr != nullptr) note([&] { checker().created(*mr, address, length, iova, static_cast<unsigned>(access)); });
  if (mr != nullptr && (access & IBV_ACCESS_ON_DEMAND) != 0)
    note([&] { checker().asks_for(Checker::Feature::on_demand); });
  return mr;
}

ibv_mr* checked_reg_mr_ex(ibv_pd* pd, uiw_mr_init_attr* attributes) {
  if (!there("ibv_reg_mr_ex", pd)) return nullptr;
  ibv_mr* const mr = LoggedOperation<"reg_mr_ex", reg_mr_ex>::call(pd, attributes);
  if (mr == nullptr) return nullptr;
  void* const address = (attributes->comp_mask & UIW_REG_MR_ADDR) != 0 ? attributes->addr : nullptr;
  const bool moved = (attributes->comp_mask & UIW_REG_MR_IOVA) != 0;
  const std::uint64_t iova = moved ? attributes->iova : reinterpret_cast<std::uintptr_t>(attributes->addr);
  note([&] { checker().created(*mr, address, attributes->length, iova, static_cast<unsigned>(attributes->access)); });
  return mr;
}

int checked_rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const Use use(&mr->mr, "ibv_rereg_mr");
  if (!use) return with_errno(EINVAL);
  const int error = LoggedOperation<"rereg_mr", rereg_mr>::call(mr, flags, pd, address, length, access);
  if (error != 0) return error;
  const auto rights = static_cast<unsigned>(access);
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) note([&] { checker().moved(mr->mr, address, length); });
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) note([&] { checker().has_rights(mr->mr, rights); });
  return error;
}

ibv_qp_state state_of(const ibv_qp& qp) { return of(const_cast<ibv_qp*>(&qp))->rnic->shown_state(); }

rnic::check::Questions::Completions look_at(const ibv_cq& cq) {
  const rnic::Cq::View view = of(const_cast<ibv_cq*>(&cq))->rnic->view();
  return {view.pushed, view.taken, view.requested, view.solicited_only, view.gave_events};
}

int checked_dereg_mr(verbs_mr* mr) {
  Destruction destruction(&mr->mr, "ibv_dereg_mr");
  if (!destruction) return with_errno(EINVAL);
  note([&] { checker().deregisters(mr->mr); });
  return destruction.ends_with(LoggedOperation<"dereg_mr", dereg_mr>::call(mr));
}

// Regions that are not memory of the program, or of which its address is not known.
ibv_mr* note_other(ibv_mr* mr) {
  if (mr != nullptr) note([&] { checker().created(*mr, nullptr, 0, 0, 0); });
  return mr;
}

ibv_mr* checked_alloc_null_mr(ibv_pd* pd) {
  return there("ibv_alloc_null_mr", pd) ? note_other(LoggedOperation<"alloc_null_mr", alloc_null_mr>::call(pd))
                                        : nullptr;
}

ibv_mr* checked_reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) {
  if (!there("ibv_reg_dm_mr", pd)) return nullptr;
  return note_other(LoggedOperation<"reg_dm_mr", reg_dm_mr>::call(pd, dm, offset, length, access));
}

ibv_mr* checked_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                              int access) {
  if (!there("ibv_reg_dmabuf_mr", pd)) return nullptr;
  return note_other(LoggedOperation<"reg_dmabuf_mr", reg_dmabuf_mr>::call(pd, offset, length, iova, fd, access));
}

// What is imported is not checked, since it ends with what it was imported from.
ibv_mr* checked_import_mr(ibv_pd* pd, std::uint32_t handle) {
  ibv_mr* const mr = LoggedOperation<"import_mr", import_mr>::call(pd, handle);
  if (mr != nullptr) note([&] { checker().forget(mr); });
  return mr;
}

ibv_pd* checked_import_pd(ibv_context* context, std::uint32_t handle) {
  ibv_pd* const pd = LoggedOperation<"import_pd", import_pd>::call(context, handle);
  if (pd != nullptr) note([&] { checker().forget(pd); });
  return pd;
}

// Likewise: it ends with the queue pair's last handle.
ibv_qp* checked_open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  ibv_qp* const qp = LoggedOperation<"open_qp", open_qp>::call(context, attributes);
  if (qp != nullptr) note([&] { checker().forget(qp); });
  return qp;
}

ibv_pd* checked_alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  ibv_pd* const pd = LoggedOperation<"alloc_parent_domain", alloc_parent_domain>::call(context, attributes);
  if (pd != nullptr) note([&] { checker().created(Kind::domain, pd, context); });
  return pd;
}

ibv_mw* checked_alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (!there("ibv_alloc_mw", pd)) return nullptr;
  ibv_mw* const mw = LoggedOperation<"alloc_mw", alloc_mw>::call(pd, type);
  if (mw == nullptr) return nullptr;
  note([&] { checker().created(Kind::window, mw, mw->context), checker().asks_for(Checker::Feature::windows); });
  return mw;
}

int checked_dealloc_mw(ibv_mw* mw) {
  return destroy<LoggedOperation<"dealloc_mw", dealloc_mw>::call>(mw, "ibv_dealloc_mw");
}

ibv_ah* checked_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (!there("ibv_create_ah", pd)) return nullptr;
  ibv_ah* const ah = LoggedOperation<"create_ah", create_ah>::call(pd, attributes);
  if (ah != nullptr) note([&] { checker().created(Kind::address, ah, ah->context); });
  return ah;
}

int checked_destroy_ah(ibv_ah* ah) {
  return destroy<LoggedOperation<"destroy_ah", destroy_ah>::call>(ah, "ibv_destroy_ah");
}

ibv_cq* checked_create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector) {
  ibv_cq* const cq = LoggedOperation<"create_cq", create_cq>::call(context, entries, channel, vector);
  if (cq == nullptr) return nullptr;
  cq->context = context;  // which libibverbs sets later
  note([&] { checker().created(*cq, channel != nullptr ? channel->fd : -1, false); });
  note([&] { checker().asks_for_cq(entries); });
  return cq;
}

ibv_cq_ex* checked_create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  ibv_cq_ex* const cq = LoggedOperation<"create_cq_ex", create_cq_ex>::call(context, attributes);
  if (cq == nullptr) return nullptr;
  cq->context = context;
  const std::uint32_t flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes->flags : 0;
  const int channel = attributes->channel != nullptr ? attributes->channel->fd : -1;
  note([&] { checker().created(*ibv_cq_ex_to_cq(cq), channel, (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0); });
  note([&] { checker().asks_for_cq(static_cast<int>(attributes->cqe)); });
  offer_checked(*cq);
  return cq;
}

int checked_resize_cq(ibv_cq* cq, int entries) {
  const Use use(cq, "ibv_resize_cq");
  if (!use) return with_errno(EINVAL);
  const int error = LoggedOperation<"resize_cq", resize_cq>::call(cq, entries);
  if (error == 0) note([&] { checker().resized(*cq), checker().asks_for(Checker::Feature::resize); });
  return error;
}

int checked_destroy_cq(ibv_cq* cq) {
  return destroy<LoggedOperation<"destroy_cq", destroy_cq>::call>(cq, "ibv_destroy_cq");
}

int checked_req_notify_cq(ibv_cq* cq, int solicited_only) {
  const void* const caller = UIW_CALLER;
  const Use use(cq, "ibv_req_notify_cq", caller);
  if (!use) return with_errno(EINVAL);
  note([&] { checker().requests_event(*cq, caller); });
  return LoggedOperation<"req_notify_cq", req_notify_cq>::call(cq, solicited_only);
}

ibv_srq* note_srq(ibv_srq* srq) {
  if (srq == nullptr) return nullptr;
  note([&] { checker().created(Kind::shared_receives, srq, srq->context, srq->handle); });
  note([&] { checker().asks_for(Checker::Feature::shared_receives); });
  return srq;
}

ibv_srq* checked_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  if (!there("ibv_create_srq", pd)) return nullptr;
  return note_srq(LoggedOperation<"create_srq", create_srq>::call(pd, attributes));
}

ibv_srq* checked_create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  return note_srq(LoggedOperation<"create_srq_ex", create_srq_ex>::call(context, attributes));
}

int checked_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  const Use use(srq, "ibv_modify_srq");
  return use ? LoggedOperation<"modify_srq", modify_srq>::call(srq, attributes, mask) : with_errno(EINVAL);
}

int checked_destroy_srq(ibv_srq* srq) {
  return destroy<LoggedOperation<"destroy_srq", destroy_srq>::call>(srq, "ibv_destroy_srq");
}

ibv_qp* note_qp(ibv_qp* qp, const ibv_qp_init_attr& attributes) {
  if (qp != nullptr) note([&] { checker().created(*qp, attributes); });
  return qp;
}

ibv_qp* checked_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (!there("ibv_create_qp", pd, attributes->send_cq, attributes->recv_cq, attributes->srq)) return nullptr;
  const ibv_qp_cap wanted = attributes->cap;
  ibv_qp* const qp = note_qp(LoggedOperation<"create_qp", create_qp>::call(pd, attributes), *attributes);
  if (qp != nullptr)
    note([&] { checker().asks_for_qp(wanted, attributes->qp_type, attributes->srq != nullptr, false); });
  return qp;
}

ibv_qp* checked_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  const bool has_pd = (attributes->comp_mask & IBV_QP_INIT_ATTR_PD) != 0;
  const ibv_pd* const pd = has_pd ? attributes->pd : nullptr;
  if (!there("ibv_create_qp_ex", pd, attributes->send_cq, attributes->recv_cq, attributes->srq)) return nullptr;
  const ibv_qp_cap wanted = attributes->cap;
  ibv_qp* const qp = LoggedOperation<"create_qp_ex", create_qp_ex>::call(context, attributes);
  if (qp == nullptr) return nullptr;
  ibv_qp_init_attr plain{};
  plain.cap = attributes->cap;
  plain.sq_sig_all = attributes->sq_sig_all;
  const bool ops = (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && attributes->send_ops_flags != 0;
  if (ops) offer_checked(of(qp)->base, attributes->send_ops_flags);
  note_qp(qp, plain);
  note([&] { checker().asks_for_qp(wanted, attributes->qp_type, attributes->srq != nullptr, ops); });
  return qp;
}

int checked_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const Use use(qp, "ibv_modify_qp");
  if (!use) return with_errno(EINVAL);
  const bool resets = (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_RESET;
  if (resets) note([&] { checker().begin_reset(*qp); });
  const int error = LoggedOperation<"modify_qp", modify_qp>::call(qp, attributes, mask);
  if (error == 0) note([&] { checker().asks_for_step(*attributes, mask); });
  if (error == 0 && resets) note([&] { checker().reset(*qp); });
  return error;
}

int checked_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  const Use use(qp, "ibv_query_qp");
  return use ? LoggedOperation<"query_qp", query_qp>::call(qp, attributes, mask, init) : with_errno(EINVAL);
}

int checked_destroy_qp(ibv_qp* qp) {
  return destroy<LoggedOperation<"destroy_qp", destroy_qp>::call>(qp, "ibv_destroy_qp");
}

// ---- Work ------------------------------------------------------------------------------------------------------

template <typename Request>
Request* nth(Request* first, std::size_t n) {
  for (; n > 0; --n) first = first->next;
  return first;
}

// Posts copies of the requests, which have numbers of the Checker's.
template <typename Queue, typename Request, typename Post>
int post_copies(Queue* queue, Request* requests, Request** bad, std::vector<Request>& copies, Post post) {
  if (copies.empty()) return post(queue, requests, bad);
  Request* refused = nullptr;
  const int error = post(queue, copies.data(), &refused);
  const std::size_t accepted = error == 0 ? copies.size() : static_cast<std::size_t>(refused - copies.data());
  note([&] {
    checker().posted(queue, std::is_same_v<Request, ibv_send_wr>, copies.front().wr_id, copies.size(), accepted, error);
  });
  if (error != 0 && bad != nullptr) *bad = nth(requests, accepted);
  return error;
}

template <typename Request>
int refuse_post(Request* requests, Request** bad) {
  if (bad != nullptr) *bad = requests;
  return with_errno(EINVAL);
}

int checked_post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  const void* const caller = UIW_CALLER;
  const Use use(qp, "ibv_post_send", caller);
  if (!use) return refuse_post(requests, bad);
  std::vector<ibv_send_wr> copies;
  if (!note([&] { checker().begin_post(*qp, requests, Place::of_call(caller), copies); })) copies.clear();
  if (checker().delays_next()) of(qp)->rnic->delay_posts();
  return post_copies(qp, requests, bad, copies, FaultyPosting<"post_send", post_send>::call);
}

int checked_post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const void* const caller = UIW_CALLER;
  const Use use(qp, "ibv_post_recv", caller);
  if (!use) return refuse_post(requests, bad);
  std::vector<ibv_recv_wr> copies;
  if (!note([&] { checker().begin_post(qp, requests, Place::of_call(caller), copies); })) copies.clear();
  return post_copies(qp, requests, bad, copies, FaultyPosting<"post_recv", post_recv>::call);
}

int checked_post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  const void* const caller = UIW_CALLER;
  const Use use(srq, "ibv_post_srq_recv", caller);
  if (!use) return refuse_post(requests, bad);
  std::vector<ibv_recv_wr> copies;
  if (!note([&] { checker().begin_post(srq, requests, Place::of_call(caller), copies); })) copies.clear();
  return post_copies(srq, requests, bad, copies, FaultyPosting<"post_srq_recv", post_srq_recv>::call);
}

int checked_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const void* const caller = UIW_CALLER;
  const Use use(qp, "ibv_bind_mw", caller), window(mw, "ibv_bind_mw", caller);
  if (!use || !window) return with_errno(EINVAL);
  ibv_send_wr request{};
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  const bool numbered = note([&] { checker().add(*qp, request, Place::of_call(caller)); });
  ibv_mw_bind copy = *bind;
  copy.wr_id = request.wr_id;
  const int error = bind_mw(qp, mw, &copy);
  if (numbered) note([&] { checker().posted(qp, true, request.wr_id, 1, error == 0 ? 1 : 0, error); });
  return error;
}

int checked_poll_cq(ibv_cq* cq, int count, ibv_wc* completions) {
  const void* const caller = UIW_CALLER;
  const Use use(cq, "ibv_poll_cq", caller, true);
  if (!use) return -with_errno(EINVAL);
  const int fault = rnic::fault_of_call("poll_cq");
  if (fault != 0) return -with_errno(fault);
  const int found = poll_cq(cq, count, completions);
  const void* const frame = UIW_FRAME;
  note([&] { checker().polled(*cq, completions, found, caller, frame); });
  return found;
}

template <typename Function>
uiw_op op(Function* function) {
  return reinterpret_cast<uiw_op>(function);
}

}  // namespace

void add_checked(Qp& qp, ibv_send_wr& request) {
  bool goes_on = true;
  note([&] {
    const ibv_qp& handle = qp.base.qp;
    goes_on = checker().enter(&handle, "ibv_wr_*", nullptr);
    if (!goes_on) return;
    checker().leave(&handle);
    checker().add(handle, request, qp.batch_caller);
    qp.batch.push_back(request.wr_id);
  });
  if (goes_on) qp.rnic->add(request);
}

const rnic::check::Questions kQuestions{state_of, look_at, rnic::reason_of_refusal};

void note_opened(ibv_context& context) {
  note([&] { checker().created(Kind::context, &context, &context); });
}

void note_closes(ibv_context& context) {
  if (Checker::active() == nullptr) return;
  note([&] { checker().closes(&context); });
  note([&] { checker().end_destroy(&context, true); });
}

const NamedOp kCheckedOps[] = {
    {"alloc_mw", op(checked_alloc_mw)},
    {"alloc_null_mr", op(checked_alloc_null_mr)},
    {"alloc_parent_domain", op(checked_alloc_parent_domain)},
    {"alloc_pd", op(checked_alloc_pd)},
    {"bind_mw", op(checked_bind_mw)},
    {"create_ah", op(checked_create_ah)},
    {"create_cq", op(checked_create_cq)},
    {"create_cq_ex", op(checked_create_cq_ex)},
    {"create_qp", op(checked_create_qp)},
    {"create_qp_ex", op(checked_create_qp_ex)},
    {"create_srq", op(checked_create_srq)},
    {"create_srq_ex", op(checked_create_srq_ex)},
    {"dealloc_mw", op(checked_dealloc_mw)},
    {"dealloc_pd", op(checked_dealloc_pd)},
    {"dereg_mr", op(checked_dereg_mr)},
    {"destroy_ah", op(checked_destroy_ah)},
    {"destroy_cq", op(checked_destroy_cq)},
    {"destroy_qp", op(checked_destroy_qp)},
    {"destroy_srq", op(checked_destroy_srq)},
    {"import_mr", op(checked_import_mr)},
    {"import_pd", op(checked_import_pd)},
    {"modify_qp", op(checked_modify_qp)},
    {"modify_srq", op(checked_modify_srq)},
    {"open_qp", op(checked_open_qp)},
    {"poll_cq", op(checked_poll_cq)},
    {"post_recv", op(checked_post_recv)},
    {"post_send", op(checked_post_send)},
    {"post_srq_recv", op(checked_post_srq_recv)},
    {"query_qp", op(checked_query_qp)},
    {"reg_dm_mr", op(checked_reg_dm_mr)},
    {"reg_dmabuf_mr", op(checked_reg_dmabuf_mr)},
    {"reg_mr", op(checked_reg_mr)},
    {"reg_mr_ex", op(checked_reg_mr_ex)},
    {"req_notify_cq", op(checked_req_notify_cq)},
    {"rereg_mr", op(checked_rereg_mr)},
    {"resize_cq", op(checked_resize_cq)},
};
const std::size_t kCheckedOpCount = sizeof kCheckedOps / sizeof kCheckedOps[0];

}  // namespace uiw::plugin
