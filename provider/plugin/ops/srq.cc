// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/srq.h"

#include <memory>

#include "provider/plugin/ops/xrc.h"
#include "provider/verbs/srq.h"

namespace uiw::plugin {

namespace {

using plugin::of;

struct Srq : Handle {
  ibv_srq base;
  std::unique_ptr<rnic::Srq> rnic;
  rnic::Share share;
  Xrcd* xrcd;  // null of one that is not for XRC
};
Srq* of(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }

ibv_srq* make_srq(ibv_pd* pd, void* srq_context, ibv_srq_attr& attributes, bool arm, Xrcd* xrcd = nullptr,
                  ibv_cq* cq = nullptr) {
  return without_exceptions([&]() -> ibv_srq* {
    auto srq = std::make_unique<Srq>();
    srq->share = {context_of(pd->context)->rnic, rnic::Limited::srq};
    if (!srq->share) return nullptr;
    ibv_srq& base = srq->base;
    srq->rnic = rnic::Srq::create(of(pd)->rnic, attributes, arm, &base, xrcd != nullptr ? xrcd->rnic : nullptr,
                                  cq != nullptr ? of(cq)->rnic.get() : nullptr);
    if (!srq->rnic) return nullptr;
    srq->xrcd = xrcd;
    if (xrcd != nullptr) xrcd->users.fetch_add(1);
    base.context = pd->context;
    base.srq_context = srq_context;
    base.pd = pd;
    base.handle = srq->rnic->number();
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    return &srq.release()->base;
  });
}

}  // namespace

rnic::Srq* rnic_of(ibv_srq* srq) { return srq == nullptr ? nullptr : of(srq)->rnic.get(); }

// Does not arm the limit event: the manual page of ibv_create_srq() says that srq_limit is ignored.
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  return make_srq(pd, attributes->srq_context, attributes->attr, false);
}

// iWARP has no XRC, and uiw does not support tag matching.
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                                   IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  const bool basic = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attributes->srq_type == IBV_SRQT_BASIC;
  const bool xrc = !basic && attributes->srq_type == IBV_SRQT_XRC && is_roce(context);
  if ((attributes->comp_mask & ~kKnown) != 0 || !(basic || xrc)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  if (basic) return make_srq(attributes->pd, attributes->srq_context, attributes->attr, true);
  constexpr std::uint32_t kNeeded = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attributes->comp_mask & kNeeded) != kNeeded || attributes->xrcd == nullptr || attributes->cq == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  return make_srq(attributes->pd, attributes->srq_context, attributes->attr, true, of(attributes->xrcd),
                  attributes->cq);
}

int destroy_srq(ibv_srq* srq) {
  Srq* self = of(srq);
  if (self->rnic->in_use()) return with_errno(EBUSY);
  if (self->rnic->inherited()) {
    self->rnic.release()->leave_to_parent();
  } else {
    self->rnic->stop();
    await_acknowledgements(srq, srq->events_completed, self->rnic->withdraw_events());
  }
  Xrcd* const xrcd = self->xrcd;
  delete self;
  if (xrcd != nullptr) xrcd->users.fetch_sub(1);
  return 0;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  return errno_of([&] { return of(srq)->rnic->modify(*attributes, mask); });
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  of(srq)->rnic->query(*attributes);
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  return with_errno(of(srq)->rnic->post(requests, bad));
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = of(srq)->rnic->number();
  return 0;
}

}  // namespace uiw::plugin
