// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp_common.h"

#include <exception>
#include <mutex>

#include "provider/verbs/context.h"

namespace uiw::provider {

QpCommon::QpCommon(Qp& of, Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program,
                   ibv_qp_type of_type)
    : whole(of),
      context(opened.shared_from_this()),
      pd(domain),
      send_cq(for_sends),
      receive_cq(for_receives),
      handle(of_program),
      type(of_type) {}

void QpCommon::report(ibv_event_type which) {
  ibv_async_event event{};
  event.event_type = which;
  event.element.qp = handle;
  if (context->report(event)) events_reported.fetch_add(1);
}

void QpCommon::no_memory() noexcept {
  try {
    const std::lock_guard lock(locks.receive);
    if (stream != nullptr) stream->end_without_memory();
  } catch (const std::exception&) {
  }
}

}  // namespace uiw::provider
