// SPDX-License-Identifier: MIT
#include "provider/process/inheritance.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/event_counter.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

namespace {

constexpr const char* kPurpose = "the children of this process";
constexpr int kSmallest = 4096;  // the smallest size of a pipe

struct Ancestor {
  int pipe;  // the read end
  ino_t inode;
  unsigned generation;
};

class EndWatch;

struct Inheritance {
  TableMutex mutex;
  std::vector<Ancestor> ancestors UIW_GUARDED_BY(mutex);  // those from which this process may still inherit
  int read_end UIW_GUARDED_BY(mutex) = -1, write_end UIW_GUARDED_BY(mutex) = -1;
  unsigned lost_before UIW_GUARDED_BY(mutex) = 0;  // objects of lower generations cannot be inherited
  std::vector<std::function<void()>> waiting UIW_GUARDED_BY(mutex);
  std::shared_ptr<EndWatch> watch UIW_GUARDED_BY(mutex);  // not null while functions wait
};
Inheritance& state() {
  static Immortal<Inheritance> instance;
  return *instance;
}

ino_t inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

bool has_ended(const Ancestor& ancestor) { return (events_of(ancestor.pipe, 0) & POLLHUP) != 0; }

// Whether the ancestor's octet is still in the pipe, so that no process is the ancestor's heir yet.
bool has_no_heir(const Ancestor& ancestor) { return (events_of(ancestor.pipe, POLLIN) & POLLIN) != 0; }

// Removes ancestors whose pipe the program has closed, since the number of that descriptor may belong to another file
// now. Nothing can be inherited from these ancestors any more.
void drop_closed(Inheritance& own) UIW_REQUIRES(own.mutex) {
  std::erase_if(own.ancestors, [&own](const Ancestor& ancestor) {
    assume_held(own.mutex);
    if (inode_of(ancestor.pipe) == ancestor.inode) return false;
    own.lost_before = std::max(own.lost_before, ancestor.generation + 1);
    return true;
  });
}

class EndWatch final : public CmLoop::Handler {
 public:
  void ready(std::uint32_t) override {
    std::vector<std::function<void()>> due;
    {
      Inheritance& own = state();
      const LockGuard lock(own.mutex);
      due.swap(own.waiting);
      bool all = true;
      for (const Ancestor& ancestor : own.ancestors) {
        if (has_ended(ancestor)) {
          CmLoop::instance().unwatch(ancestor.pipe);
        } else {
          all = false;
        }
      }
      if (all) own.watch.reset();
    }
    for (const std::function<void()>& function : due) function();
  }
};

// Whether all ancestors that had objects of this generation have ended. These are the ancestors of this and of all
// later generations.
bool have_ended(const Inheritance& own, unsigned generation) UIW_REQUIRES(own.mutex) {
  return std::all_of(own.ancestors.begin(), own.ancestors.end(), [generation](const Ancestor& ancestor) {
    return ancestor.generation < generation || has_ended(ancestor);
  });
}

// Tries to become the heir: reads the octet of each ancestor that had objects of this generation. If another process
// has read an octet already, the objects are lost to this process, which `lost_before` then says.
void succeed(Inheritance& own, unsigned generation) UIW_REQUIRES(own.mutex) {
  std::erase_if(own.ancestors, [&](const Ancestor& ancestor) {
    assume_held(own.mutex);
    if (ancestor.generation < generation) return false;
    char octet;
    const long taken = ::syscall(SYS_read, ancestor.pipe, &octet, sizeof octet);
    if (taken != 1) own.lost_before = std::max(own.lost_before, ancestor.generation + 1);
    CmLoop::instance().unwatch(ancestor.pipe);
    close_descriptor(ancestor.pipe);
    return true;
  });
}

void make_pipe(Inheritance& own) UIW_REQUIRES(own.mutex) {
  int ends[2];
  DescriptorChange change;
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  own.read_end = change.take(ends[0], kPurpose);
  own.write_end = change.take(ends[1], kPurpose);
  const char octet = 0;
  if (own.read_end >= 0 && own.write_end >= 0 && ::syscall(SYS_write, own.write_end, &octet, sizeof octet) == 1) {
    ::fcntl(own.write_end, F_SETPIPE_SZ, kSmallest);
    return;
  }
  for (int* end : {&own.read_end, &own.write_end})
    if (*end >= 0) close_descriptor(std::exchange(*end, -1));
}

// The result of prospect_of(): `ancestor` if an ancestor that had objects of this generation lives, `self` if this
// process may become the heir, `other` if it cannot.
Owner prospect(Inheritance& own, unsigned generation) UIW_REQUIRES(own.mutex) {
  drop_closed(own);
  if (generation < own.lost_before) return Owner::other;
  if (!have_ended(own, generation)) return Owner::ancestor;
  const bool is_free = std::all_of(own.ancestors.begin(), own.ancestors.end(), [generation](const Ancestor& ancestor) {
    return ancestor.generation < generation || has_no_heir(ancestor);
  });
  return is_free ? Owner::self : Owner::other;
}

}  // namespace

Owner owner_of(unsigned generation) {
  if (generation == fork_generation()) return Owner::self;
  Inheritance& own = state();
  const LockGuard lock(own.mutex);
  const Owner found = prospect(own, generation);
  if (found == Owner::ancestor || generation < own.lost_before) return found;
  succeed(own, generation);  // of several children only one reads the octet
  return generation < own.lost_before ? Owner::other : Owner::self;
}

Owner prospect_of(unsigned generation) {
  if (generation == fork_generation()) return Owner::self;
  Inheritance& own = state();
  const LockGuard lock(own.mutex);
  return prospect(own, generation);
}

int when_ancestors_end(std::function<void()> function) {
  Inheritance& own = state();
  const LockGuard lock(own.mutex);
  drop_closed(own);
  if (have_ended(own, 0)) return CmLoop::instance().post(std::move(function));
  own.waiting.push_back(std::move(function));
  if (own.watch != nullptr) return 0;
  auto watch = std::make_shared<EndWatch>();
  for (const Ancestor& ancestor : own.ancestors) {
    if (has_ended(ancestor)) continue;
    // Asks for no event: epoll reports the hang-up in any case, and must not report the octet.
    if (const int error = CmLoop::instance().watch(ancestor.pipe, 0, watch); error != 0) {
      for (const Ancestor& watched : own.ancestors) CmLoop::instance().unwatch(watched.pipe);
      own.waiting.pop_back();
      return error;
    }
  }
  own.watch = std::move(watch);
  return 0;
}

void prepare_inheritance(bool leaves) UIW_ACQUIRE(state().mutex) {
  state().mutex.lock();
  Inheritance& own = state();
  assume_held(own.mutex);
  if (leaves && own.read_end < 0) make_pipe(own);
}

void go_on_after_fork() UIW_RELEASE(state().mutex) { state().mutex.unlock(); }

void release_ancestors() {
  Inheritance& own = state();
  const LockGuard lock(own.mutex);
  for (const Ancestor& ancestor : own.ancestors) DescriptorChange().leave(ancestor.pipe);
}

void inherit_in_child(bool protect) {
  Inheritance& own = state();
  assume_held(own.mutex);
  const unsigned generation = fork_generation() - 1;
  try {
    if (own.read_end < 0) {
      own.lost_before = generation + 1;  // the parent has left nothing, or had no descriptors for a pipe
    } else {
      own.ancestors.push_back({own.read_end, inode_of(own.read_end), generation});
      close_descriptor(own.write_end);
    }
  } catch (const std::bad_alloc&) {
    own.lost_before = generation + 1;
    close_descriptor(own.read_end);
    close_descriptor(own.write_end);
  }
  own.read_end = own.write_end = -1;
  for (Ancestor& ancestor : own.ancestors)
    if (protect) ancestor.pipe = DescriptorChange().guard(ancestor.pipe);
  // The parent's `waiting` and `watch` are not destroyed: that could use objects that another thread of the parent was
  // changing at the fork.
  new (&own.waiting) decltype(own.waiting);
  new (&own.watch) decltype(own.watch);
  own.mutex.unlock();
}

}  // namespace uiw::provider
