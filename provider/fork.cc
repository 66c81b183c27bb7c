// SPDX-License-Identifier: MIT
#include "provider/fork.h"

#include <pthread.h>

#include <mutex>
#include <vector>

#include "provider/cm_loop.h"
#include "provider/engine.h"
#include "provider/grace_period.h"

namespace uiw::provider {

namespace {

struct Engines {
  std::mutex mutex;
  std::vector<Engine*> all;
};
Engines& engines() {
  static auto* instance = [] {
    auto* made = new Engines;
    pthread_atfork([] { engines().mutex.lock(); }, [] { engines().mutex.unlock(); },
                   [] {
                     forget_other_readers();
                     for (Engine* engine : engines().all) engine->after_fork_in_child();
                     CmLoop::after_fork_in_child();
                     engines().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

}  // namespace

void register_engine(Engine* engine) {
  const std::lock_guard lock(engines().mutex);
  engines().all.push_back(engine);
}

void unregister_engine(Engine* engine) {
  const std::lock_guard lock(engines().mutex);
  std::erase(engines().all, engine);
}

}  // namespace uiw::provider
