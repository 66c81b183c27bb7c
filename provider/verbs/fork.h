// SPDX-License-Identifier: MIT
// What a fork does to the adapter, and the open devices of this process.
//
// The child of a fork has the memory of the parent as it was at that moment, its descriptors, and one thread. It may
// use memory regions and windows, open devices and work with what it makes there. Queue pairs, connections, channels
// and shared receive queues of the parent stay the parent's: the child can destroy its copy of them, which nobody else
// notices.
//
// What a thread of the parent may have been at:
//   * tables of the process that the child goes on using (contexts, channels, queue pair numbers, ports, the loop,
//     STags, the calls of libnl, and what stands above this layer) are locked around the fork, in one order;
//   * objects have a Mutex (process/mutex.h), which the child can take whoever held it;
//   * what is made once is made when the library is loaded, or by an atomic exchange, never under the guard of a static
//     object of a function.
#pragma once

#include <functional>

namespace uiw::provider {

class Context;

// What stands above this layer has locks too. They are taken before those of this layer; so they must not be needed by
// a thread that holds one of these.
struct ForkHooks {
  void (*before)();
  void (*in_parent)();
  void (*in_child)();
};
void set_outer_fork_hooks(const ForkHooks& hooks);  // for the life of the process

void register_context(Context* context);
void unregister_context(Context* context);

// Under a lock: the function opens and closes none.
void for_each_context(const std::function<void(Context&)>& function);

}  // namespace uiw::provider
