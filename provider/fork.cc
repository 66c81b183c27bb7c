// SPDX-License-Identifier: MIT
#include "provider/fork.h"

#include <pthread.h>

#include <mutex>
#include <vector>

#include "provider/by_hand.h"
#include "provider/cm_loop.h"
#include "provider/context.h"
#include "provider/grace_period.h"
#include "provider/qp_port.h"
#include "provider/qp_table.h"

namespace uiw::provider {

namespace {

struct Contexts {
  std::mutex mutex;
  std::vector<Context*> all;
};
Contexts& contexts() {
  static auto* instance = [] {
    auto* made = new Contexts;
    pthread_atfork(
        [] {
          contexts().mutex.lock();
          hold_ports();
        },
        [] {
          go_on_with_ports();
          contexts().mutex.unlock();
        },
        [] {
          forget_other_readers();
          stag_table().forget_holders();
          for (Context* context : contexts().all) context->engine().after_fork_in_child();
          CmLoop::after_fork_in_child();
          by_hand::after_fork_in_child();
          forget_ports();
          forget_qp_numbers();
          contexts().mutex.unlock();
        });
    return made;
  }();
  return *instance;
}

}  // namespace

void register_context(Context* context) {
  const std::lock_guard lock(contexts().mutex);
  contexts().all.push_back(context);
}

void unregister_context(Context* context) {
  const std::lock_guard lock(contexts().mutex);
  std::erase(contexts().all, context);
}

void for_each_context(const std::function<void(Context&)>& function) {
  const std::lock_guard lock(contexts().mutex);
  for (Context* context : contexts().all) function(*context);
}

}  // namespace uiw::provider
