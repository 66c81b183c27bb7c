// SPDX-License-Identifier: MIT
#include "provider/verbs/fault_effects.h"

#include <exception>
#include <utility>

#include "base/grace_period.h"
#include "provider/process/cm_loop.h"
#include "provider/verbs/context.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/qp_identity.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

namespace {

// Runs the function on the thread "uiw-cm", which can take locks that the caller holds now. If there is no memory, or
// no such thread, the fault does not happen.
template <typename Function>
void later(Function function) noexcept {
  try {
    CmLoop::instance().post(std::move(function));
  } catch (const std::exception&) {
  }
}

void to_error(QueuePair& qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  qp.modify(attributes, IBV_QP_STATE);
}

template <typename Function>
void for_queue_pair(std::uint32_t number, Function function) {
  for_each_queue_pair([&](std::uint32_t found, QueuePair& qp) {
    if (found == number) function(qp);
  });
}

bool is_of_queue_pair(ibv_event_type type) { return type < IBV_EVENT_DEVICE_FATAL && type != IBV_EVENT_CQ_ERR; }

void report_to(Context& context, ibv_event_type type) {
  if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE) context.set_port_down(type == IBV_EVENT_PORT_ERR);
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  context.report(event);
  if (type != IBV_EVENT_DEVICE_FATAL) return;
  for_each_queue_pair([&](std::uint32_t, QueuePair& qp) {
    if (&qp.context() == &context) to_error(qp);
  });
}

// Carries out a fault that a signal has triggered, on all queue pairs or all devices. Called on the thread "uiw-cm".
void act_everywhere(const FaultRule& rule) {
  const auto type = static_cast<ibv_event_type>(rule.value);
  if (rule.kind == FaultKind::event && !is_of_queue_pair(type)) {
    return for_each_context([&](Context& context) { report_to(context, type); });
  }
  for_each_queue_pair([&](std::uint32_t, QueuePair& qp) {
    if (rule.kind == FaultKind::disconnect)
      qp.lose_connection();
    else
      qp.identity().report(type);
  });
}

}  // namespace

int begin_faults() { return Faults::begin(act_everywhere); }

ibv_wc_status status_with_faults(Faults& faults, FaultKind queue, QpIdentity& qp, ibv_wc_status status, bool& failed) {
  if (status != IBV_WC_SUCCESS) return status;
  if (failed) return IBV_WC_WR_FLUSH_ERR;
  if (faults.due(FaultKind::disconnect) != nullptr) {
    later([number = qp.number] { for_queue_pair(number, [](QueuePair& lost) { lost.lose_connection(); }); });
  }
  if (const FaultRule* const rule = faults.due(FaultKind::event)) {
    const auto type = static_cast<ibv_event_type>(rule->value);
    if (is_of_queue_pair(type))
      qp.report(type);
    else
      later([context = qp.context, type] { report_to(*context, type); });
  }
  const FaultRule* const rule = faults.due(queue);
  if (rule == nullptr) return status;
  failed = true;
  later([number = qp.number] { for_queue_pair(number, to_error); });
  return static_cast<ibv_wc_status>(rule->value);
}

}  // namespace uiw::provider
