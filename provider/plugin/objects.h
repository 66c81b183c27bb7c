// SPDX-License-Identifier: MIT
// The objects that libibverbs and programs hold, with ours behind them: the first member is what they hold.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "provider/plugin/abi/rdmav_abi.h"
#include "provider/plugin/exceptions.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq.h"
#include "provider/verbs/qp/qp.h"

namespace uiw::plugin {

namespace rnic = uiw::provider;

struct Device {
  verbs_device base;
};
// A verbs_context, which begins somewhere in `front` and ends with the program's ibv_context; then what is ours.
struct Context {
  alignas(void*) unsigned char front[kMostGrowth * sizeof(void*) + kVerbsContext39 - sizeof(std::size_t) -
                                     sizeof(ibv_context)];
  std::size_t verbs_size;  // of the verbs_context, as libibverbs says
  ibv_context base;
  void* spare[32];  // for a verbs_context that is longer than known here, until that has been noticed
  verbs_context* verbs;
  std::shared_ptr<rnic::Context> rnic;  // made and ended by hand: libibverbs allocates the whole
};
struct Td {
  ibv_td base;
  std::atomic<int> users{0};
};
// A protection domain, or a parent domain made from one: then `rnic` is that one's, so that a parent domain may stand
// wherever a protection domain may.
struct Pd {
  ibv_pd base;
  rnic::Pd& rnic;
  std::unique_ptr<rnic::Pd> own;  // null in a parent domain
  Td* td = nullptr;
  std::atomic<int> users{0};  // queue pairs, address handles, completion queues of a parent domain
};
struct Cq {
  union {
    ibv_cq_ex ex;
    ibv_cq base;
  };
  std::unique_ptr<rnic::Cq> rnic;
  Pd* parent;
  // The completion that an extended poll stands at.
  ibv_wc current;
  rnic::Cq::Stamp stamp;
};
struct Qp {
  verbs_qp base;
  std::unique_ptr<rnic::Qp> rnic;
  // ibv_wr_*: a request that waits for its data.
  ibv_send_wr pending;
  bool has_pending;
};

inline Context* context_of(ibv_context* context) {
  return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(Context, base));
}
inline Pd* of(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
inline Td* of(ibv_td* td) { return reinterpret_cast<Td*>(td); }
inline Cq* of(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Cq* of(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }
inline Qp* of(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
inline Qp* of(ibv_qp_ex* qp) { return reinterpret_cast<Qp*>(qp); }

// Waits until the program has acknowledged the events it took, as the manual pages say. Where it took none the object's
// mutex, which is libibverbs', is left alone: in the child of a fork another thread may hold it that is not there.
template <typename Object>
void await_acknowledgements(Object* object, std::uint32_t& completed, unsigned expected) {
  if (expected == 0) return;
  pthread_mutex_lock(&object->mutex);
  while (completed < expected) pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace uiw::plugin
