// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/qp.h"

#include <cerrno>
#include <memory>

#include "provider/plugin/abi/release.h"
#include "provider/plugin/objects.h"
#include "provider/plugin/ops/batch.h"
#include "provider/plugin/ops/srq.h"

namespace uiw::plugin {

namespace {

constexpr std::uint64_t kDatagramOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

// Those of reliable connections, as far as libibverbs has them.
std::uint64_t late_ops() {
  return (late_send_ops() > 0 ? std::uint64_t{UIW_QP_EX_WITH_ATOMIC_WRITE} : 0) |
         (late_send_ops() > 1 ? std::uint64_t{UIW_QP_EX_WITH_FLUSH} : 0);
}

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
    qp->base.behind.words[late_send_ops()].comp_mask = VERBS_QP_EX;
    if (send_ops != 0) offer_send_ops(qp->base, send_ops);
    of(pd)->use();
    return &qp.release()->base.qp;
  });
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) { return make_qp(pd->context, pd, *attributes, 0); }

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  const std::uint64_t offered = attributes->qp_type == IBV_QPT_UD   ? kDatagramOps
                                : attributes->qp_type == IBV_QPT_RC ? kSendOps | late_ops()
                                                                    : kSendOps;
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

}  // namespace uiw::plugin
