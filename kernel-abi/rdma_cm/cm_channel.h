// SPDX-License-Identifier: MIT
// One open of /dev/infiniband/rdma_cm: a queue of events, and the eventfd that says how many there are.
//
// The eventfd counts as a semaphore, one token an event, so the program's poll, epoll and O_NONBLOCK see
// exactly what the queue holds. Tokens move only under the registry's lock, together with the events.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/rdma_user_cm.h>
#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>

namespace uiw::kernel_abi {

class CmId;

struct CmEvent {
  std::shared_ptr<CmId> owner;  // whose event it is: for a CONNECT_REQUEST the listener
  std::shared_ptr<CmId> child;  // the new id of a CONNECT_REQUEST
  rdma_ucm_event_resp response = {};
};
using CmEvents = std::list<CmEvent>;

// Every member needs the registry's lock, but for what says otherwise.
class CmChannel {
 public:
  // Makes the eventfd: the program's descriptor goes to `fd`, and a duplicate of it stays here, for events
  // come from other threads while the program may close or replace its own. 0 or an errno.
  static int create(int flags, std::shared_ptr<CmChannel>& channel, int& fd);
  ~CmChannel();
  CmChannel(const CmChannel&) = delete;
  CmChannel& operator=(const CmChannel&) = delete;

  // Takes over the first of `from`: nothing is lost for lack of memory.
  void post(CmEvents& from) noexcept;
  bool empty() const { return events_.empty(); }
  CmEvent& front() { return events_.front(); }
  CmEvent take_front();
  // Takes out the events that match, in their order.
  CmEvents take_matching(const std::function<bool(const CmEvent&)>& matches);

  // The descriptors that stand for this channel.
  void retain() { ++descriptors_; }
  bool release() { return --descriptors_ == 0; }
  // No more events. Who waits for one goes on waiting, as in the kernel: the call keeps the file open, and
  // programs leave such a thread behind when they exit.
  void close();
  bool closed() const { return closed_; }

  std::set<std::uint32_t>& ids() { return ids_; }

  // For a blocking GET_EVENT. Made under the lock, when the queue was found empty; the wait is without it,
  // and ends with the next event or the channel's close. It restarts after a signal whose handler says so,
  // and can be cancelled, as a blocking write to the kernel's device.
  class Waiter {
   public:
    explicit Waiter(CmChannel& channel);
    ~Waiter();  // takes the lock
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    int wait();  // 0 (look again) or EINTR

   private:
    friend class CmChannel;
    CmChannel& channel_;
    sem_t woken_;
  };
  bool non_blocking() const;

  // In the child of a fork: the descriptor is of no use any more, and nothing else may be touched.
  void abandon();

 private:
  explicit CmChannel(int fd) : fd_(fd) {}
  void add_token();
  void remove_token();
  void wake();

  int fd_;
  unsigned descriptors_ = 1;
  bool closed_ = false;
  bool was_non_blocking_ = false;  // when it was closed
  CmEvents events_;
  std::set<std::uint32_t> ids_;  // the numbers of the ids whose events come here
  std::set<Waiter*> waiters_;
};

}  // namespace uiw::kernel_abi
