// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/srq.h"

#include <memory>

#include "provider/verbs/srq.h"

namespace uiw::plugin {

namespace {

using plugin::of;

struct Srq : Handle {
  ibv_srq base;
  std::unique_ptr<rnic::Srq> rnic;
  rnic::Share share;
};
Srq* of(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }

ibv_srq* make_srq(ibv_pd* pd, void* srq_context, ibv_srq_attr& attributes, bool arm) {
  return without_exceptions([&]() -> ibv_srq* {
    auto srq = std::make_unique<Srq>();
    srq->share = {context_of(pd->context)->rnic, rnic::Limited::srq};
    if (!srq->share) return nullptr;
    ibv_srq& base = srq->base;
    srq->rnic = rnic::Srq::create(of(pd)->rnic, attributes, arm, &base);
    if (!srq->rnic) return nullptr;
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

// Refuses other types than IBV_SRQT_BASIC: iWARP has no XRC, and uiw does not support tag matching.
ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attributes) {
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                                   IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  const bool basic = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attributes->srq_type == IBV_SRQT_BASIC;
  if ((attributes->comp_mask & ~kKnown) != 0 || !basic) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  return make_srq(attributes->pd, attributes->srq_context, attributes->attr, true);
}

int destroy_srq(ibv_srq* srq) {
  Srq* self = of(srq);
  if (self->rnic->in_use()) return with_errno(EBUSY);
  if (self->rnic->inherited()) {
    self->rnic.release()->leave_to_parent();
  } else {
    await_acknowledgements(srq, srq->events_completed, self->rnic->withdraw_events());
  }
  delete self;
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
