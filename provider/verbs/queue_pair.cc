// SPDX-License-Identifier: MIT
#include "provider/verbs/queue_pair.h"

#include "provider/connect/qp_table.h"
#include "provider/inventory/processes.h"
#include "provider/verbs/context.h"
#include "provider/verbs/datagram/datagram_qp.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::provider {

std::unique_ptr<QueuePair> QueuePair::create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                             ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq) {
  publish_inventory();
  if (attributes.qp_type == IBV_QPT_UD && context.device().transport == Transport::roce) {
    return DatagramQp::create(context, pd, send_cq, receive_cq, attributes, handle, srq);
  }
  return Qp::create(context, pd, send_cq, receive_cq, attributes, handle, srq);
}

void for_each_queue_pair(const std::function<void(std::uint32_t, QueuePair&)>& function) {
  for_each_numbered([&function](std::uint32_t number, Numbered& found) {
    if (auto* const qp = dynamic_cast<QueuePair*>(&found)) function(number, *qp);
  });
}

}  // namespace uiw::provider
