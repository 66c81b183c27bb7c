// SPDX-License-Identifier: MIT
// What the child of a fork has of its parent, and when it becomes the child's own.
//
// In the kernel, parent and child share the files of devices and of rdma_cm. Here all of that is memory, of which the
// child has a copy as of the fork, while the parent goes on with its own. So what was the parent's stays the parent's
// as long as that lives. When it has ended, or has executed another program, the first of its children that uses what
// it left is the heir; that is what daemon(3) needs. The others never get it.
//
// A process that forks holds the write end of a pipe with one octet in it. Its children have the read end only, so the
// end of the pipe is the end of the parent, and the heir is who reads the octet. A child of a child has the pipes of
// all its ancestors, and what one of them made waits for its end and for those of the ancestors between.
//
// "Generation" is the fork_generation() in which something was made. Thread-safe.
#pragma once

#include <functional>

namespace uiw::provider {

enum class Owner {
  self,      // this process has made it, or is the heir
  ancestor,  // a process that it descends from lives
  other      // nobody whom this process could succeed
};

// Whose what was made in this generation is. If all ancestors have ended that had it, this process becomes their heir,
// unless another one is.
Owner owner_of(unsigned generation);
// The same, but this process becomes nobody's heir: `self` says that it could.
Owner prospect_of(unsigned generation);

// Calls the function on the thread "uiw-cm" when the next of the ancestors has ended; then owner_of() may have another
// answer. 0 or an errno of CmLoop::watch().
int when_ancestors_end(std::function<void()> function);

// Called around a fork, with the lock held in between. `leaves` says whether there is anything to inherit: without it
// a process that forks takes no descriptors.
void prepare_inheritance(bool leaves);
void go_on_after_fork();
// The program may close all of the parent's descriptors. With `protect` it cannot close the pipes of the ancestors,
// until release_ancestors(), which is called when nothing of uiw's is left that the program could have kept.
void inherit_in_child(bool protect);
void release_ancestors();

}  // namespace uiw::provider
