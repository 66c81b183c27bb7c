// SPDX-License-Identifier: MIT
// XRC domains (ibv_open_xrcd): the shared receive queues that a peer can name, and the XRC_RECV queue pairs by which
// its messages come.
//
// XRC takes a connection from process to process apart. An XRC_SEND queue pair has a send queue only. Each of its
// requests names a shared receive queue of the peer. The XRC_RECV queue pair at the other end has no queues at all: a
// message is placed into a receive of the queue that it names, and completes where that queue completes. Remote access
// is checked with the protection domain of that queue. How the name travels is in rdmap/rdmap_format.h (kSharedQueue).
//
// Programs that open the same file have the same domain. Here these are contexts of one process: processes do not share
// domains, so a process that opens another's is told that there is none (EAGAIN) or gets its own (O_CREAT).
//
// An XRC_RECV queue pair has several handles, the one that it was created with and those of ibv_open_qp, and lives
// until the last one is closed. Thread-safe. Locks: `ends_`, then those of queue pairs, then `mutex_`.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "provider/export.h"
#include "provider/memory/memory.h"

namespace uiw::provider {

class Context;
class Cq;
class QueuePair;
class Srq;
class SrqUser;

// As a protection domain it has no memory. It is that of its XRC_RECV queue pairs, which the program gives none.
class XrcDomain final : public Pd {
 public:
  // The domain of the file `fd`, or a new one that no file names if `fd` is -1; `flags` are O_CREAT and O_EXCL. Null
  // with errno: EBADF; EAGAIN if there is none and O_CREAT is not set; EINVAL if there is one and O_EXCL is set;
  // EMFILE, ENFILE, ENOMEM. Throws std::bad_alloc.
  UIW_API static std::shared_ptr<XrcDomain> open(const std::shared_ptr<Context>& context, int fd, int flags);
  UIW_API ~XrcDomain();
  // In the child of a fork: the domain is its parent's, and must not be destroyed.
  UIW_API bool inherited() const;

  // The completion queue of XRC_RECV queue pairs, which have none: nothing is ever pushed to it.
  Cq& no_completions() { return *no_completions_; }

  // remove() returns when no queue pair uses the queue any more, and no message is placed into a receive of it. It
  // takes locks of queue pairs.
  void add(Srq& queue);
  void remove(const Srq& queue);
  // `users` are a queue pair's places in the queues that its peer has named so far. Returns them with the queue
  // `number` in front; null, and the queue pair leaves them all, if there is no such queue. With the receiver's lock.
  // Throws std::bad_alloc.
  std::unique_ptr<SrqUser> use(std::uint64_t number, std::unique_ptr<SrqUser> users, std::uint32_t qp_number);

  // The handles of XRC_RECV queue pairs. open_qp() returns the queue pair; null if the domain has none with the number.
  // close_qp() returns whether this was the last handle, whose owner destroys the queue pair then, and stores how many
  // events about the handle were reported. Events go to all handles.
  // QueuePair::stop() calls forget_qp().
  UIW_API void add_qp(QueuePair& qp, std::shared_ptr<Context> context, ibv_qp* handle);
  UIW_API QueuePair* open_qp(std::uint32_t number, std::shared_ptr<Context> context, ibv_qp* handle);
  UIW_API bool close_qp(std::uint32_t number, const ibv_qp* handle, unsigned& events);
  void forget_qp(std::uint32_t number);
  // The context is closed: its handles of the queue pair end. True if there were some, and no other context has one;
  // the caller then stops the queue pair.
  bool leave(std::uint32_t number, const Context& context);
  void report(std::uint32_t number, ibv_event_type type);

 private:
  struct File {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const File&) const = default;
  };
  struct Handle {
    std::shared_ptr<Context> context;
    ibv_qp* handle;
    unsigned events = 0;
  };
  struct Target {
    QueuePair* qp;
    std::vector<Handle> handles;  // empty once the last one has been closed
  };

  XrcDomain(std::shared_ptr<Context> context, OwnedDescriptor file);

 public:
  // All domains of this process that a file names.
  struct Named;

 private:
  // Of the file (O_PATH), so that no other file gets its inode; none without a file.
  const OwnedDescriptor file_;
  std::unique_ptr<Cq> no_completions_;
  Mutex ends_;  // held while a queue ends, and where a queue pair ends
  Mutex mutex_;
  std::map<std::uint64_t, Srq*> queues_ UIW_GUARDED_BY(mutex_);
  std::map<std::uint32_t, Target> targets_ UIW_GUARDED_BY(mutex_);
};

// Take and release the lock of the list of domains, before and after a fork; the child's list is empty.
void lock_xrc_domains();
void unlock_xrc_domains();
void forget_xrc_domains();

}  // namespace uiw::provider
