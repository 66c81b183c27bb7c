// SPDX-License-Identifier: MIT
// Fork, and the list of open devices of this process.
//
// The child of a fork has the memory of the parent at that moment, its descriptors, and one thread. It may use memory
// regions and windows, open devices and use what it creates there. Queue pairs, connections and shared receive queues
// of the parent belong to the parent: the child can destroy its copies, which has no effect on the parent. Channels,
// and ids of rdma_cm without a connection, become the child's once the parent has ended (process/inheritance.h).
//
// Another thread of the parent may be at any point during the fork. Therefore:
//
//   * Tables of the process that the child goes on using (contexts, channels, queue pair numbers, ports, the loop,
//     STags, libnl, and those of the layers above) are locked over the fork, in a fixed order.
//   * Objects use Mutex (base/mutex.h), which the child can take even if another thread held it.
//   * Static objects are created when the library is loaded, or with an atomic exchange. Static variables of functions
//     are used once at that time, so that the child does not find their guard locked.
#pragma once

#include <functional>

namespace uiw::provider {

class Context;

// Locks of the layers above. They are taken before those of this layer, so no thread may take one of them while it
// holds a lock of this layer.
struct ForkHooks {
  bool (*before)();  // whether there is something that a child could inherit
  void (*in_parent)();
  void (*in_child)();
};
void set_outer_fork_hooks(const ForkHooks& hooks);  // `hooks` must remain live as long as the process

void register_context(Context* context);
void unregister_context(Context* context);

// Calls the function with a lock held: it must not open or close a context.
void for_each_context(const std::function<void(Context&)>& function);

}  // namespace uiw::provider
