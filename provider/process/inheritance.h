// SPDX-License-Identifier: MIT
// What the child of a fork inherits from its parent, and when.
//
// With the kernel's adapters, the parent and the child of a fork share the open files of devices and of rdma_cm. Here
// these are memory: the child has a copy as of the fork, while the parent goes on with its own. So what was the
// parent's stays the parent's as long as the parent lives. When it has ended, or has executed another program, its
// first child that uses what it left becomes the heir, as daemon(3) needs. The other children never get it.
//
// A process that forks holds the write end of a pipe with one octet in it. Its children have only the read end, so the
// pipe hangs up when the parent ends, and the child that reads the octet is the heir. A child of a child has the pipes
// of all its ancestors. It can inherit from an ancestor when that one and all ancestors after it have ended.
//
// "Generation" is the fork_generation() in which something was made. Thread-safe.
#pragma once

#include <functional>

namespace uiw::provider {

enum class Owner {
  self,      // this process has made it, or is the heir
  ancestor,  // an ancestor, which lives
  other      // a process, perhaps none, from which this one cannot inherit
};

// The owner of what was made in this generation. If all ancestors that had it have ended, this process becomes their
// heir, unless another one is.
Owner owner_of(unsigned generation);
// As owner_of(), but this process does not become the heir: `self` says that it could.
Owner prospect_of(unsigned generation);

// Calls the function on the thread "uiw-cm" when the next ancestor has ended; then owner_of() may have another answer.
// 0 or an errno of CmLoop::watch().
int when_ancestors_end(std::function<void()> function);

// Called around a fork, with the lock held in between. `leaves`: whether there is anything to inherit; if not, the
// process takes no descriptors.
void prepare_inheritance(bool leaves);
void go_on_after_fork();
// Called in the child. `protect` keeps the program, which may close all descriptors as daemons do, from closing the
// pipes of its ancestors until release_ancestors(). That is called once the program has closed all that it inherited
// from uiw.
void inherit_in_child(bool protect);
void release_ancestors();

}  // namespace uiw::provider
