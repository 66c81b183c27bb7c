// SPDX-License-Identifier: MIT
// Shared receive queues (Verbs draft section 6.3): many queue pairs take their receives from one queue.
//
// A queue pair that finds no free receive waits in line, and its stream is not read (Verbs draft section 13.2).
// Receives that are posted later are promised to the queue pairs in line, one each, in order. A promised receive is not
// free for other queue pairs, and a queue pair that then finds no further receive goes to the end of the line. So no
// queue pair starves, however busy the others are.
//
// Thread-safe. The queue's lock may be taken while locks of a queue pair are held, and not the other way round. An Srq
// must remain live as long as queue pairs use it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

#include "base/mutex.h"
#include "provider/export.h"
#include "provider/process/shown/listed.h"
#include "rdmap/receiver.h"
#include "rdmap/work.h"

namespace uiw::provider {

class Context;
class Cq;
class Pd;
class SrqUser;
class XrcDomain;

class Srq {
 public:
  // Writes the granted sizes to `attributes`. Sets the limit `attributes.srq_limit` only if `arm` is true. Null with
  // errno: EINVAL for sizes or a limit out of range. Throws std::bad_alloc. `handle` is the program's ibv_srq, which
  // events carry. With a domain it is a queue for XRC, whose receives complete to `cq`.
  UIW_API static std::unique_ptr<Srq> create(Pd& pd, ibv_srq_attr& attributes, bool arm, ibv_srq* handle,
                                             std::shared_ptr<XrcDomain> domain = nullptr, Cq* cq = nullptr);
  UIW_API ~Srq();

  std::uint32_t number() const { return number_; }
  const Pd& pd() const { return pd_; }
  bool is_xrc() const { return domain_ != nullptr; }
  std::uint32_t listed_number() const { return listed_.number(); }

  // As the manual pages of ibv_post_srq_recv, ibv_modify_srq and ibv_query_srq say: 0 or an errno.
  UIW_API int post(ibv_recv_wr* requests, ibv_recv_wr** bad);
  UIW_API int modify(const ibv_srq_attr& attributes, int mask);  // ENOMEM if there is no memory for the new size
  UIW_API void query(ibv_srq_attr& attributes);

  // To be called before the destructor, and before withdraw_events(): from here on no queue pair takes a receive, and
  // no event is reported.
  UIW_API void stop();
  // True if a parent process created the queue. Then leave_to_parent() is called instead of the destructor: it releases
  // the protection domain, and leaves the memory of the queue as it is.
  UIW_API bool inherited() const;
  UIW_API void leave_to_parent();

  // Whether queue pairs use the queue. If they do, the queue must not be destroyed. XRC_RECV queue pairs do not count.
  bool in_use() const { return !is_xrc() && users_.load(std::memory_order_relaxed) != 0; }
  // The number of queue pairs that wait for a receive.
  std::size_t waiting();
  // Removes the events about this queue that the program has not read, and returns how many the program has read.
  UIW_API unsigned withdraw_events();

 private:
  friend class SrqUser;
  using Line = std::list<SrqUser*>;
  class Waker;

  Srq(Pd& pd, const ibv_srq_attr& attributes, std::uint32_t limit, ibv_srq* handle, std::shared_ptr<XrcDomain> domain,
      Cq* cq);

  std::uint32_t available() const UIW_REQUIRES(mutex_) { return queue_->size() - promised_; }
  std::size_t promise() UIW_REQUIRES(mutex_);
  bool limit_passed() UIW_REQUIRES(mutex_);

  void wake(std::size_t count) UIW_EXCLUDES(mutex_);
  std::uint32_t take_first_to_wake() UIW_REQUIRES(mutex_);
  bool next_to_wake(std::uint32_t& qp_number);
  void report_limit();

  Pd& pd_;
  const unsigned generation_;
  ibv_srq* const handle_;
  const std::uint32_t number_;
  const std::uint32_t max_sges_;
  const std::shared_ptr<XrcDomain> domain_;
  Cq* const cq_;
  std::atomic<int> users_{0};
  std::atomic<unsigned> events_reported_{0};

  alignas(64) Mutex mutex_;
  std::unique_ptr<rdmap::ReceiveQueue> queue_ UIW_GUARDED_BY(mutex_);
  ddp::KnownSlot known_ UIW_GUARDED_BY(mutex_);
  std::uint32_t limit_ UIW_GUARDED_BY(mutex_);         // 0: not armed
  std::uint32_t promised_ UIW_GUARDED_BY(mutex_) = 0;  // receives in the queue that are promised to queue pairs
  Line waiting_ UIW_GUARDED_BY(mutex_);                // queue pairs that wait for a receive
  Line to_wake_ UIW_GUARDED_BY(mutex_);  // queue pairs with a promised receive that have not been woken yet

  const std::shared_ptr<Waker> waker_;  // wakes queue pairs from a thread that holds no locks
  Listed<Srq> listed_{*this};
};

// A queue pair's part of a shared receive queue: its place in the line of queue pairs that wait for a receive, and the
// receive that it took last.
class SrqUser {
 public:
  // `others`: the places of an XRC_RECV queue pair in other queues.
  explicit SrqUser(Srq& srq, std::unique_ptr<SrqUser> others = nullptr);
  ~SrqUser();  // called when look-ups by number no longer find the queue pair
  SrqUser(const SrqUser&) = delete;
  SrqUser& operator=(const SrqUser&) = delete;

  // Called instead of the destructor in the child of a fork, for a queue pair of the parent process
  // (QueuePair::leave_to_parent()).
  void leave_to_parent() { srq_.users_.fetch_sub(1, std::memory_order_relaxed); }

  // Of this place and the others.
  bool completes_to(const Cq* cq) const;
  bool is_of(std::uint64_t number) const { return srq_.number() == number; }
  const Pd& pd() const { return srq_.pd(); }
  // Where receives complete: of a queue for XRC its own completion queue, else that of the queue pair.
  Cq& cq_or(Cq& of_queue_pair) const { return srq_.cq_ != nullptr ? *srq_.cq_ : of_queue_pair; }
  // Puts the place in the queue with this number in front of the others. False if there is none.
  static bool bring_forward(std::uint64_t number, std::unique_ptr<SrqUser>& users);
  // Ends the place in this queue.
  static std::unique_ptr<SrqUser> without(const Srq& queue, std::unique_ptr<SrqUser> users);

  // Sets the number of the queue pair whose progress() is called when a receive has been promised to it.
  void set_qp_number(std::uint32_t number) { qp_number_ = number; }

  // The functions below are called with the receiver's lock of the queue pair held.

  // Takes a receive off the queue; its scatter elements stay valid until this queue pair takes another receive. If no
  // receive is free, returns false and puts the queue pair into the line of those that wait.
  bool take(rdmap::ReceiveBuffer& buffer);
  // Whether a receive has been promised to this queue pair since take() returned false.
  bool promised() const { return promised_.load(std::memory_order_acquire); }
  // Removes the queue pair from the line of those that wait, since it needs no receive any more. A receive that was
  // promised to it goes to the next queue pair in line.
  void leave();
  // Puts the receive that was taken last back at the end of the queue. False if the queue has been filled up meanwhile,
  // or memory is short.
  bool give_back(const rdmap::ReceiveBuffer& buffer);

 private:
  friend class Srq;
  enum class Position : std::uint8_t { none, waiting, to_wake };

  // Moves `node_` to the list that stands for `position`. Allocates nothing.
  void move_to(Position position) UIW_REQUIRES(srq_.mutex_);

  Srq& srq_;
  std::unique_ptr<SrqUser> others_;
  std::uint32_t qp_number_ = 0;
  const std::unique_ptr<rdmap::Sge[]> sges_;
  std::atomic<bool> promised_{false};  // written under the queue's lock
  Position position_ UIW_GUARDED_BY(srq_.mutex_) = Position::none;
  Srq::Line none_ UIW_GUARDED_BY(srq_.mutex_);  // contains `node_` while the queue pair is in no line
  Srq::Line::iterator node_;
};

}  // namespace uiw::provider
