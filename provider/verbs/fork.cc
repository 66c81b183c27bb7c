// SPDX-License-Identifier: MIT
#include "provider/verbs/fork.h"

#include <pthread.h>

#include <atomic>
#include <vector>

#include "base/grace_period.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "provider/connect/manual/pairs.h"
#include "provider/connect/qp_port.h"
#include "provider/connect/qp_table.h"
#include "provider/connect/retry_timers.h"
#include "provider/datagram/datagram_port.h"
#include "provider/inventory/processes.h"
#include "provider/memory/memory.h"
#include "provider/process/cm_loop.h"
#include "provider/process/device.h"
#include "provider/process/doorbells.h"
#include "provider/process/inheritance.h"
#include "provider/process/shown/port_counters.h"
#include "provider/verbs/context.h"
#include "provider/verbs/cq/completion_channel.h"
#include "provider/verbs/cq/cq.h"
#include "provider/verbs/event_pipe.h"
#include "provider/verbs/srq.h"
#include "provider/verbs/xrc_domain.h"

namespace uiw::provider {

namespace {

struct Contexts {
  TableMutex mutex;
  std::vector<Context*> all;
};
Contexts& contexts() {
  static Immortal<Contexts> instance;
  return *instance;
}

std::atomic<const ForkHooks*> outer_hooks{nullptr};
// The hooks of the fork in progress. One variable is enough, since a second fork waits for the locks that before_fork()
// takes.
const ForkHooks* hooks = nullptr;
bool leaves = false;  // whether the layers above have something that a child could inherit

// The list of all objects of a class (listed.h) as a type, so that for_listed() can pass it to a function. The thread
// safety analysis is off, since it cannot follow that one function takes the lock and another releases it.
template <typename Object>
struct ListOf {
  static void lock_for_fork() UIW_NO_THREAD_SAFETY_ANALYSIS { Listed<Object>::lock_for_fork(); }
  static void unlock_after_fork() UIW_NO_THREAD_SAFETY_ANALYSIS { Listed<Object>::unlock_after_fork(); }
};
template <typename Function>
void for_listed(Function function) {
  function(ListOf<Context>());
  function(ListOf<Pd>());
  function(ListOf<Mr>());
  function(ListOf<Dm>());
  function(ListOf<Cq>());
  function(ListOf<Srq>());
}

// Takes the locks in the order in which threads nest them. The thread safety analysis cannot follow that the number of
// locks varies, and that another function releases them.
void before_fork() UIW_NO_THREAD_SAFETY_ANALYSIS {
  hooks = outer_hooks.load();
  leaves = hooks != nullptr && hooks->before();
  lock_xrc_domains();  // a domain that is opened makes a completion queue
  contexts().mutex.lock();
  lock_completion_channels();
  EventPipe::lock_for_fork();
  prepare_inheritance(leaves || EventPipe::any());
  lock_datagram_ports();
  lock_qp_numbers();
  lock_ports();
  CmLoop::instance().lock_for_fork();
  for (Context* context : contexts().all) context->lock_view();
  lock_interfaces();
  stag_table().lock_for_fork();
  for_listed([](auto listed) { listed.lock_for_fork(); });
}

void in_parent() UIW_NO_THREAD_SAFETY_ANALYSIS {
  for_listed([](auto listed) { listed.unlock_after_fork(); });
  stag_table().unlock_after_fork();
  unlock_interfaces();
  for (Context* context : contexts().all) context->unlock_view();
  CmLoop::instance().unlock_after_fork();
  unlock_ports();
  unlock_qp_numbers();
  unlock_datagram_ports();
  go_on_after_fork();
  EventPipe::unlock_after_fork();
  unlock_completion_channels();
  contexts().mutex.unlock();
  unlock_xrc_domains();
  if (hooks != nullptr) hooks->in_parent();
}

void in_child() UIW_NO_THREAD_SAFETY_ANALYSIS {
  count_fork();
  for_listed([](auto listed) { listed.unlock_after_fork(); });
  forget_other_readers();
  forget_port_counters();
  stag_table().forget_holders();
  stag_table().unlock_after_fork();
  unlock_interfaces();
  for (Context* context : contexts().all) context->unlock_view();
  Doorbells::of_process().after_fork_in_child();
  for (Context* context : contexts().all) context->engine().after_fork_in_child();
  CmLoop::instance().after_fork_in_child();
  withdraw_inventory_in_child();
  manual::after_fork_in_child();
  forget_retry_timers();
  forget_ports();
  forget_qp_numbers();
  forget_datagram_ports();
  inherit_in_child(leaves);
  EventPipe::inherit_in_child();
  unlock_completion_channels();
  contexts().mutex.unlock();
  forget_xrc_domains();
  if (hooks != nullptr) hooks->in_child();
}

// Runs when the library is loaded, and so creates all static variables that hold these locks. Otherwise another thread
// could be creating such a variable during a fork. The child, which does not have that thread, would wait for ever for
// the variable to be created.
[[maybe_unused]] const bool prepared = [] {
  before_fork();
  in_parent();
  return ::pthread_atfork(before_fork, in_parent, in_child) == 0;
}();

}  // namespace

void set_outer_fork_hooks(const ForkHooks& added) { outer_hooks.store(&added); }

void register_context(Context* context) {
  const LockGuard lock(contexts().mutex);
  contexts().all.push_back(context);
}

void unregister_context(Context* context) {
  const LockGuard lock(contexts().mutex);
  std::erase(contexts().all, context);
}

void for_each_context(const std::function<void(Context&)>& function) {
  const LockGuard lock(contexts().mutex);
  for (Context* context : contexts().all) function(*context);
}

}  // namespace uiw::provider
