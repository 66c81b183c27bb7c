// SPDX-License-Identifier: MIT
// What the plugin's operations share: objects of libibverbs with ours behind them, and how calls end.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>

#include "provider/context.h"
#include "provider/plugin/rdmav_abi.h"

namespace uiw::plugin {

namespace rnic = uiw::provider;

// The first member is what the program holds.
struct Context {
  verbs_context base;
  rnic::Context* rnic;
};
struct Pd {
  ibv_pd base;
  rnic::Pd rnic;
};

inline Context* context_of(ibv_context* context) {
  // The program's ibv_context is the last member of verbs_context.
  return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(verbs_context, context));
}
inline Pd* of(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }

// No exception passes into libibverbs.
template <typename Function>
auto without_exceptions(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return {};
  } catch (const std::exception&) {
    errno = EAGAIN;
    return {};
  }
}

// Waits until the program has acknowledged the events it took, as the manual pages say.
template <typename Object>
void await_acknowledgements(Object* object, std::uint32_t& completed, unsigned expected) {
  pthread_mutex_lock(&object->mutex);
  while (completed < expected) pthread_cond_wait(&object->cond, &object->mutex);
  pthread_mutex_unlock(&object->mutex);
}

}  // namespace uiw::plugin
