// SPDX-License-Identifier: MIT
// One open of /dev/infiniband/rdma_cm: a queue of events, and an eventfd that counts them.
//
// The eventfd works as a semaphore with one token for each event, so poll, epoll and O_NONBLOCK of the program see the
// state of the queue. Tokens and events change together, under the registry's lock.
//
// Parent and child of a fork share the eventfd, and each has a queue of its own. The tokens count the events of the
// parent's queue until the child takes the channel over (provider/process/inheritance.h).
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then omits its own copy of the same types
#include <rdma/rdma_user_cm.h>
#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/process/inheritance.h"

namespace uiw::kernel_abi {

class CmId;
struct CmGroup;

struct CmEvent {
  std::shared_ptr<CmId> owner;  // the id of the event; for a CONNECT_REQUEST the listener
  std::shared_ptr<CmId> child;  // the new id of a CONNECT_REQUEST
  rdma_ucm_event_resp response = {};
  std::shared_ptr<CmGroup> group;  // of a multicast event
};
using CmEvents = std::list<CmEvent>;

class CmChannel {
 public:
  // Creates the channel and its eventfd. `fd` becomes the program's descriptor. The channel keeps a duplicate, since
  // other threads write events while the program may close or replace its descriptor. 0 or an errno.
  static int create(int flags, std::shared_ptr<CmChannel>& channel, int& fd);
  ~CmChannel();
  CmChannel(const CmChannel&) = delete;
  CmChannel& operator=(const CmChannel&) = delete;

  // Moves the first event of `from` to the queue. This needs no memory, so no event is lost.
  void post(CmEvents& from) noexcept UIW_REQUIRES(g_registry_lock);
  bool empty() const UIW_REQUIRES(g_registry_lock) { return events_.empty(); }
  CmEvent& front() UIW_REQUIRES(g_registry_lock) { return events_.front(); }
  CmEvent take_front() UIW_REQUIRES(g_registry_lock);
  // Removes and returns the events that match, in order.
  CmEvents take_matching(const std::function<bool(const CmEvent&)>& matches) UIW_REQUIRES(g_registry_lock);

  // Count the descriptors that refer to this channel; release() returns whether that was the last one.
  void retain() UIW_REQUIRES(g_registry_lock) { ++descriptors_; }
  bool release() UIW_REQUIRES(g_registry_lock) { return --descriptors_ == 0; }
  // Ends the queue: later events are dropped. A thread that waits for an event goes on waiting, as in the kernel, where
  // the thread's call keeps the file open; programs leave such a thread behind when they exit.
  void close() UIW_REQUIRES(g_registry_lock);
  bool closed() const UIW_REQUIRES(g_registry_lock) { return closed_; }

  std::set<std::uint32_t>& ids() UIW_REQUIRES(g_registry_lock) { return ids_; }

  // A wait of a blocking GET_EVENT, created when the queue was found empty or closed. wait() is called without the
  // lock, and ends with the next event. Like a blocking write to the kernel's device, wait() restarts after a signal
  // whose handler has SA_RESTART, ends with EINTR after another signal, and can be cancelled.
  class Waiter {
   public:
    explicit Waiter(CmChannel& channel) UIW_REQUIRES(g_registry_lock);
    ~Waiter();  // takes the lock
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    int wait();  // 0: the queue may have an event now; or EINTR

   private:
    friend class CmChannel;
    CmChannel& channel_;
    sem_t woken_;
  };
  bool non_blocking() const UIW_REQUIRES(g_registry_lock);

  // To be called in the child of a fork: the eventfd stays the parent's until take_over().
  void inherit() UIW_REQUIRES(g_registry_lock);
  // Whether an ancestor has made the channel, and this process has not taken it over.
  bool inherited() const UIW_REQUIRES(g_registry_lock) { return inherited_; }
  provider::Owner owner() const { return provider::owner_of(generation_); }
  provider::Owner prospect() const { return provider::prospect_of(generation_); }
  // To be called when the parent has ended. From here on the tokens of the eventfd count the events of this queue.
  void take_over() UIW_REQUIRES(g_registry_lock);
  // To be called when the parent has ended and a peer connects to one of the ids: makes the channel readable, so that
  // the program uses it.
  void announce_caller() UIW_REQUIRES(g_registry_lock);
  // Removes all tokens from the eventfd, unless it is still the parent's, or the channel is closed. To be called when
  // no event of this queue needs a token: a fork shares the eventfd, so a sibling of this process may have added tokens
  // for events of its own.
  void drop_foreign_tokens() UIW_REQUIRES(g_registry_lock);

 private:
  explicit CmChannel(int fd) : fd_(fd) {}
  void add_token() UIW_REQUIRES(g_registry_lock);
  void remove_token() UIW_REQUIRES(g_registry_lock);
  bool take_token() UIW_REQUIRES(g_registry_lock);
  void wake() UIW_REQUIRES(g_registry_lock);

  int fd_ UIW_GUARDED_BY(g_registry_lock);
  unsigned descriptors_ UIW_GUARDED_BY(g_registry_lock) = 1;
  bool closed_ UIW_GUARDED_BY(g_registry_lock) = false;
  bool inherited_ UIW_GUARDED_BY(g_registry_lock) = false;
  const unsigned generation_ = fork_generation();
  bool was_non_blocking_ UIW_GUARDED_BY(g_registry_lock) = false;  // the value of non_blocking() at close()
  CmEvents events_ UIW_GUARDED_BY(g_registry_lock);
  std::set<std::uint32_t> ids_ UIW_GUARDED_BY(g_registry_lock);  // the numbers of the ids that use this channel
  std::set<Waiter*> waiters_ UIW_GUARDED_BY(g_registry_lock);
};

}  // namespace uiw::kernel_abi
