// SPDX-License-Identifier: MIT
// The plugin's objects. Each contains the object that libibverbs and the program use (`base`), which is the first
// member except in Context, and most have a member `rnic` for the object of libuiw.so.1 that carries out the
// operations.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "provider/check/checker.h"
#include "provider/plugin/abi/rdmav_abi.h"
#include "provider/plugin/exceptions.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::plugin {

namespace rnic = uiw::provider;

struct Device {
  verbs_device base;
};
// Contains a verbs_context. The verbs_context begins in `front`, at an offset that depends on the release of rdma-core,
// and ends with `base`, the program's ibv_context. The members after `base` are the plugin's own.
struct Context {
  alignas(void*) unsigned char front[kMostGrowth * sizeof(void*) + kVerbsContext39 - sizeof(std::size_t) -
                                     sizeof(ibv_context)];
  std::size_t verbs_size;  // the size of verbs_context, as libibverbs has stored it
  ibv_context base;
  void* spare[32];  // if verbs_context is longer than known here, it ends in `spare`, and open_context() fails
  verbs_context* verbs;
  std::shared_ptr<rnic::Context> rnic;  // constructed and destroyed explicitly, since libibverbs allocates the struct
};
// An object of the program. Where programs are checked, its memory is kept for a while after its destruction.
struct Handle {
  static void operator delete(void* memory) { rnic::check::bury(memory); }
};
struct Td {
  ibv_td base;
  std::atomic<int> users{0};
};
// A protection domain (of this context, or imported from another one) or a parent domain. In a parent domain `rnic` is
// that of its protection domain, so that a parent domain can be used like a protection domain.
struct Pd : Handle {
  ibv_pd base;
  rnic::Pd& rnic;
  std::shared_ptr<rnic::Pd> own;  // null in a parent domain
  rnic::Share share{};            // empty in a parent domain and in an imported domain
  Td* td = nullptr;
  ibv_parent_domain_init_attr functions{};  // the allocators of a parent domain, if comp_mask names them
  // The number of queue pairs and address handles that use this object; in a parent domain also of completion queues.
  std::atomic<int> users{0};
  // True for an imported domain. Then `users` also counts the import itself, until ibv_unimport_pd(). Queue pairs may
  // outlive that call, so the last user deletes the object.
  bool imported = false;

  void use() { users.fetch_add(1); }
  void leave() {
    if (users.fetch_sub(1) == 1 && imported) delete this;
  }
};
struct Cq : Handle {
  union {
    ibv_cq_ex ex;
    ibv_cq base;
  };
  std::unique_ptr<rnic::Cq> rnic;
  rnic::Share share;
  Pd* parent;
  // The current completion of an extended poll.
  ibv_wc current;
  rnic::Cq::Stamp stamp;
};
struct Xrcd;
struct Qp : Handle {
  verbs_qp base;
  std::unique_ptr<rnic::QueuePair> rnic;  // of an XRC_RECV queue pair the last of its handles is the owner
  // A request that an ibv_wr_*() call has begun and whose data has not been set yet.
  ibv_send_wr pending;
  bool has_pending;
  // Of a process that is checked: where the batch that is open was begun, and the numbers of its requests.
  rnic::check::Place batch_caller{};
  std::vector<std::uint64_t> batch{};
  Xrcd* xrcd = nullptr;  // of an XRC_RECV queue pair, which has no protection domain
};

inline Context* context_of(ibv_context* context) {
  return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(Context, base));
}
// Whether the device is shown as RoCE. Only such devices have datagrams and XRC.
inline bool is_roce(ibv_context* context) {
  return context_of(context)->rnic->device().transport == rnic::Transport::roce;
}
inline Pd* of(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
inline Td* of(ibv_td* td) { return reinterpret_cast<Td*>(td); }
inline Cq* of(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Cq* of(ibv_cq_ex* cq) { return reinterpret_cast<Cq*>(cq); }
inline Qp* of(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
inline Qp* of(ibv_qp_ex* qp) { return reinterpret_cast<Qp*>(qp); }

// Waits until the program has acknowledged the events that it has read, as the manual pages say. If the program has
// read none, the mutex of the object is not touched: the mutex belongs to libibverbs, and in the child of a fork a
// thread of the parent may have held it.
template <typename Object>
void await_acknowledgements(Object* object, std::uint32_t& completed, unsigned expected) {
  if (expected == 0) return;
  pthread_mutex_lock(&object->mutex);
  if (auto* const checker = rnic::check::Checker::active(); checker != nullptr && completed < expected) {
    constexpr time_t kPatience = 1;
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kPatience;
    int error = 0;
    while (completed < expected && error == 0) error = pthread_cond_timedwait(&object->cond, &object->mutex, &until);
    if (completed < expected) checker->waits_for_acknowledgements(object, expected - completed);
  }
  while (completed < expected) pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace uiw::plugin
