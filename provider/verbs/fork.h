// SPDX-License-Identifier: MIT
// Fork, and the list of open devices of this process.
//
// The child of a fork has the memory of the parent at that moment, its descriptors, and one thread. The child may use
// memory regions and windows, and may open devices and use what it creates there. Queue pairs, connections and shared
// receive queues of the parent belong to the parent: the child can destroy its copies, which has no effect on the
// parent. Channels, and ids of rdma_cm without a connection, belong to the first child that uses them once the parent
// has ended (process/inheritance.h).
//
// Another thread of the parent may be in the middle of any work at the fork. Therefore:
//
//   * Tables of the process that the child goes on using (contexts, channels, queue pair numbers, ports, CmLoop, STags,
//     libnl, and those of the layers above) are locked over the fork, in a fixed order.
//   * Objects use Mutex (base/mutex.h), which the child can take even if another thread held it.
//   * Static objects are created when the library is loaded, or with an atomic exchange. Functions with static
//     variables are called once when the library is loaded, so that the child does not find the guard of such a
//     variable locked.
#pragma once

#include <functional>

namespace uiw::provider {

class Context;

// How the layers above (kernel-abi/) take part in a fork: `before` takes their locks, the other two functions release
// them. These locks are taken before those of this layer, so no thread may take one of them while it holds a lock of
// this layer.
struct ForkHooks {
  bool (*before)();  // returns whether there is something that a child could inherit
  void (*in_parent)();
  void (*in_child)();
};
void set_outer_fork_hooks(const ForkHooks& hooks);  // `hooks` must remain live as long as the process

void register_context(Context* context);
void unregister_context(Context* context);

// Calls the function for each open context, with a lock held: the function must not open or close a context.
void for_each_context(const std::function<void(Context&)>& function);

}  // namespace uiw::provider
