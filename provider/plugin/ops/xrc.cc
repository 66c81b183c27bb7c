// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/xrc.h"

#include <cerrno>

namespace uiw::plugin {

namespace {

template <typename Result>
Result* refused(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t kAll = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (!is_roce(context) || (attributes->comp_mask & ~kAll) != 0) return refused<ibv_xrcd>(EOPNOTSUPP);
  if (attributes->comp_mask != kAll) return refused<ibv_xrcd>(EINVAL);
  return without_exceptions([&]() -> ibv_xrcd* {
    auto domain = rnic::XrcDomain::open(context_of(context)->rnic, attributes->fd, attributes->oflags);
    if (!domain) return nullptr;
    return &(new Xrcd{{}, {context}, std::move(domain)})->base;
  });
}

int close_xrcd(ibv_xrcd* xrcd) {
  if (!is_roce(xrcd->context)) return with_errno(EOPNOTSUPP);
  Xrcd* const self = of(xrcd);
  if (self->users.load() != 0) return with_errno(EBUSY);
  // A domain of the parent of a fork stays as it is.
  if (self->rnic->inherited()) new std::shared_ptr<rnic::XrcDomain>(self->rnic);
  delete self;
  return 0;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr std::uint32_t kKnown = kNeeded | IBV_QP_OPEN_ATTR_CONTEXT;
  if (!is_roce(context) || (attributes->comp_mask & ~kKnown) != 0) return refused<ibv_qp>(EOPNOTSUPP);
  const bool complete = (attributes->comp_mask & kNeeded) == kNeeded && attributes->xrcd != nullptr;
  if (!complete || attributes->qp_type != IBV_QPT_XRC_RECV) return refused<ibv_qp>(EINVAL);
  return without_exceptions([&]() -> ibv_qp* {
    auto qp = std::make_unique<Qp>();
    qp->xrcd = of(attributes->xrcd);
    ibv_qp& base = qp->base.qp;
    qp->rnic.reset(qp->xrcd->rnic->open_qp(attributes->qp_num, context_of(context)->rnic, &base));
    if (!qp->rnic) return refused<ibv_qp>(EINVAL);
    base.context = context;
    base.qp_context = attributes->qp_context;
    base.qp_num = attributes->qp_num;
    base.state = IBV_QPS_UNKNOWN;
    base.qp_type = IBV_QPT_XRC_RECV;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    qp->xrcd->users.fetch_add(1);
    return &qp.release()->base.qp;
  });
}

}  // namespace uiw::plugin
