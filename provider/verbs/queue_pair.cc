// SPDX-License-Identifier: MIT
#include "provider/verbs/queue_pair.h"

#include <exception>

#include "base/mutex.h"
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

std::unique_ptr<QueuePair> QueuePair::create_target(Context& context, XrcDomain& domain, ibv_qp_init_attr& attributes,
                                                    ibv_qp* handle) {
  publish_inventory();
  return Qp::create_target(context, domain, attributes, handle);
}

QueuePair::QueuePair(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes,
                     ibv_qp* handle, Srq* srq)
    : generation_(fork_generation()),
      init_(attributes),
      qp_(context, pd, send_cq, receive_cq, handle, attributes.qp_type),
      queues_(qp_, attributes, srq) {
  qp_.add_users();
}

QueuePair::~QueuePair() {
  queues_.forget_completions();
  if (number() != 0) free_qp_number(number());
  qp_.remove_users();
}

bool QueuePair::take_number() {
  try {
    qp_.number = take_qp_number(*this);
  } catch (const std::exception&) {
    errno = ENOMEM;
  }
  queues_.number_is_known();
  return qp_.number != 0;
}

bool QueuePair::inherited() const { return generation_ != fork_generation(); }

void QueuePair::leave_to_parent() {
  queues_.leave_to_parent();
  qp_.remove_users();
}

// Left out of the thread safety analysis, since it releases a lock of its caller for a while.
bool QueuePair::Batch::await_slowly(Lock& lock) UIW_NO_THREAD_SAFETY_ANALYSIS {
  while (open_.load(std::memory_order_relaxed)) {
    if (pthread_equal(thread_, pthread_self()) != 0) return false;
    lock.unlock();
    open_.wait(true);
    lock.lock();
  }
  return true;
}

bool QueuePair::Batch::begin(Lock& lock, int refused) {
  if (!await_end(lock)) {
    error = EINVAL;
    return false;
  }
  open_.store(true, std::memory_order_relaxed);
  thread_ = pthread_self();
  error = refused;
  size = 0;
  return true;
}

void QueuePair::Batch::end() {
  open_.store(false, std::memory_order_relaxed);
  open_.notify_all();
}

void for_each_queue_pair(const std::function<void(std::uint32_t, QueuePair&)>& function) {
  for_each_numbered([&function](std::uint32_t number, Numbered& found) {
    if (auto* const qp = dynamic_cast<QueuePair*>(&found)) function(number, *qp);
  });
}

}  // namespace uiw::provider
