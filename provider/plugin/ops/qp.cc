// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/qp.h"

#include <cerrno>
#include <memory>

#include "provider/plugin/abi/release.h"
#include "provider/plugin/objects.h"
#include "provider/plugin/ops/batch.h"
#include "provider/plugin/ops/srq.h"
#include "provider/plugin/ops/xrc.h"
#include "provider/verbs/srq.h"

namespace uiw::plugin {

namespace {

constexpr std::uint64_t kDatagramOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kSendOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;

// Those of ibv_create_qp_ex(): a queue pair of datagrams gets no copies of the multicast datagrams that it sends
// itself.
constexpr std::uint32_t kCreateFlags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;

// Those of reliable connections, as far as libibverbs has them.
std::uint64_t late_ops() {
  return (late_send_ops() > 0 ? std::uint64_t{UIW_QP_EX_WITH_ATOMIC_WRITE} : 0) |
         (late_send_ops() > 1 ? std::uint64_t{UIW_QP_EX_WITH_FLUSH} : 0);
}

std::uint64_t send_ops_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UD: return kDatagramOps;
    case IBV_QPT_XRC_RECV: return 0;
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND: return kSendOps | late_ops();
    default: return kSendOps;
  }
}

// As in the kernel, a queue pair uses the queues of its own context, or of another one of the same file.
bool are_of(const rnic::Context& context, const ibv_qp_init_attr& attributes) {
  const auto of_context = [&](const ibv_context* other) {
    if (other == context.handle()) return true;
    const rnic::DeviceFile file = context_of(const_cast<ibv_context*>(other))->rnic->file();
    return file != rnic::kNoDeviceFile && file == context.file();
  };
  return (attributes.send_cq == nullptr || of_context(attributes.send_cq->context)) &&
         (attributes.recv_cq == nullptr || of_context(attributes.recv_cq->context)) &&
         (attributes.srq == nullptr || of_context(attributes.srq->context));
}

// XRC_RECV queue pairs need `xrcd`. They use neither domain nor queues, but have them in their ibv_qp, where librdmacm
// looks for a domain.
ibv_qp* make_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr& attributes, std::uint64_t send_ops,
                Xrcd* xrcd = nullptr) {
  return without_exceptions([&]() -> ibv_qp* {
    auto qp = std::make_unique<Qp>();
    ibv_qp& base = qp->base.qp;
    rnic::Context& opened = *context_of(context)->rnic;
    if (!are_of(opened, attributes)) {
      errno = EINVAL;
      return nullptr;
    }
    if (xrcd != nullptr) {
      qp->rnic = rnic::QueuePair::create_target(opened, *xrcd->rnic, attributes, &base);
    } else {
      rnic::Cq* const send_cq = attributes.send_cq != nullptr ? of(attributes.send_cq)->rnic.get() : nullptr;
      rnic::Cq* const receive_cq = attributes.recv_cq != nullptr ? of(attributes.recv_cq)->rnic.get() : nullptr;
      qp->rnic = rnic::QueuePair::create(opened, of(pd)->rnic, send_cq, receive_cq, attributes, &base,
                                         rnic_of(attributes.srq));
    }
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
    if (xrcd != nullptr) {
      qp->xrcd = xrcd;
      xrcd->rnic->add_qp(*qp->rnic, context_of(context)->rnic, &base);
      xrcd->users.fetch_add(1);
    } else {
      of(pd)->use();
    }
    return &qp.release()->base.qp;
  });
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->qp_type != IBV_QPT_XRC_RECV || !is_roce(pd->context)) return make_qp(pd->context, pd, *attributes, 0);
  errno = EINVAL;  // it needs an XRC domain
  return nullptr;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  const std::uint64_t offered = send_ops_of(attributes->qp_type);
  const bool ops = (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const bool roce = is_roce(context);
  const bool has_flags = (attributes->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0;
  const std::uint32_t flags = has_flags ? attributes->create_flags : 0;
  const bool receives_xrc = attributes->qp_type == IBV_QPT_XRC_RECV && roce;
  if ((attributes->comp_mask & ~kKnown) != 0 || (flags & ~(roce ? kCreateFlags : 0)) != 0 ||
      (ops && (attributes->send_ops_flags & ~offered) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const bool has_pd = (attributes->comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && attributes->pd != nullptr;
  const bool has_xrcd = (attributes->comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && attributes->xrcd != nullptr;
  const bool other_queue = receives_xrc && attributes->srq != nullptr && !rnic_of(attributes->srq)->is_xrc();
  if (!(receives_xrc ? has_xrcd : has_pd) || other_queue || (flags != 0 && attributes->qp_type != IBV_QPT_UD)) {
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
  ibv_qp* qp = make_qp(context, has_pd ? attributes->pd : nullptr, plain, ops ? attributes->send_ops_flags : 0,
                       receives_xrc ? of(attributes->xrcd) : nullptr);
  if (qp == nullptr) return nullptr;
  attributes->cap = plain.cap;
  if (flags != 0) of(qp)->rnic->block_own_multicast();
  return qp;
}

int destroy_qp(ibv_qp* qp) {
  Qp* self = of(qp);
  if (!self->rnic->inherited() && self->rnic->is_attached()) return with_errno(EBUSY);
  if (self->rnic->inherited()) {
    self->rnic.release()->leave_to_parent();
  } else {
    unsigned reported = 0;
    const bool last = self->xrcd == nullptr || self->xrcd->rnic->close_qp(qp->qp_num, qp, reported);
    if (last) self->rnic->stop();
    if (self->xrcd == nullptr) reported = self->rnic->events_reported();
    if (!last) static_cast<void>(self->rnic.release());
    await_acknowledgements(qp, qp->events_completed, context_of(qp->context)->rnic->withdraw_events(qp, reported));
  }
  Pd* const pd = self->xrcd == nullptr ? of(qp->pd) : nullptr;
  Xrcd* const xrcd = self->xrcd;
  delete self;
  if (pd != nullptr) pd->leave();
  if (xrcd != nullptr) xrcd->users.fetch_sub(1);
  return 0;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return errno_of([&] { return of(qp)->rnic->modify(*attributes, mask); });
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* init) {
  of(qp)->rnic->query(*attributes, *init);
  if (of(qp)->xrcd != nullptr) {  // of this handle, and not of that with which the queue pair was created
    init->qp_context = qp->qp_context;
    init->send_cq = qp->send_cq;
    init->recv_cq = qp->recv_cq;
    init->srq = qp->srq;
  }
  return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  return with_errno(of(qp)->rnic->post_send(requests, bad));
}
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  return with_errno(of(qp)->rnic->post_receive(requests, bad));
}

}  // namespace uiw::plugin
