// SPDX-License-Identifier: MIT
#include "provider/verbs/qp_identity.h"

#include "provider/verbs/context.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::provider {

QpIdentity::QpIdentity(Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program,
                       ibv_qp_type of_type)
    : context(opened.shared_from_this()),
      pd(domain),
      send_cq(for_sends),
      receive_cq(for_receives),
      handle(of_program),
      type(of_type) {}

void QpIdentity::report(ibv_event_type which) {
  if (type == IBV_QPT_XRC_RECV) return static_cast<XrcDomain&>(pd).report(number, which);
  ibv_async_event event{};
  event.event_type = which;
  event.element.qp = handle;
  if (context->report(event)) events_reported.fetch_add(1);
}

void QpIdentity::add_users() {
  pd.add_user();
  send_cq.add_user();
  receive_cq.add_user();
}

void QpIdentity::remove_users() {
  send_cq.remove_user();
  receive_cq.remove_user();
  pd.remove_user();
}

}  // namespace uiw::provider
