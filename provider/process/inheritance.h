// SPDX-License-Identifier: MIT
// What the child of a fork inherits from its parent, and when.
//
// With the kernel's adapters, the parent and the child of a fork share the open files of devices and of rdma_cm. Here
// these objects are memory: the child has a copy as of the fork, while the parent goes on with its own. So the parent's
// objects stay the parent's as long as the parent lives. Once the parent has ended, or has executed another program,
// the first of its children that uses these objects becomes their owner, the heir, as daemon(3) needs. The other
// children never get them.
//
// A process that forks holds the write end of a pipe with one octet in it. Its children have only the read end, so the
// pipe hangs up when the parent ends, and the child that reads the octet is the heir. A child of a child has the pipes
// of all its ancestors. It can inherit from an ancestor once that ancestor and all later ancestors have ended.
//
// "Generation" is the value of fork_generation(), the number of forks so far, when something was made. Thread-safe.
#pragma once

#include <functional>

namespace uiw::provider {

enum class Owner {
  self,      // this process has made it, or is the heir
  ancestor,  // an ancestor, which lives
  other      // another process, or nobody: this process cannot inherit from the ancestor any more
};

// The owner of what was made in this generation. If all ancestors that had it have ended, this process becomes their
// heir, unless another process is their heir already.
Owner owner_of(unsigned generation);
// As owner_of(), but this process does not become the heir: `self` says that it could.
Owner prospect_of(unsigned generation);

// Calls the function once on the thread "uiw-cm": when the next ancestor ends, or at once if all have ended. At that
// time owner_of() may return another owner than before. Returns 0, or an errno of CmLoop::watch() or CmLoop::post().
int when_ancestors_end(std::function<void()> function);

// prepare_inheritance() is called before a fork and takes a lock, which go_on_after_fork() releases after the fork in
// the parent, and inherit_in_child() in the child. `leaves`: whether there is anything that a child could inherit; if
// not, no pipe is made.
void prepare_inheritance(bool leaves);
void go_on_after_fork();
// Called in the child. A program may close all its descriptors, as daemons do: `protect` keeps the program from closing
// the pipes of its ancestors until release_ancestors(), which is called once the program has closed all rdma_cm
// channels that it has inherited.
void inherit_in_child(bool protect);
void release_ancestors();

}  // namespace uiw::provider
