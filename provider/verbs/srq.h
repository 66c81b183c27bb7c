// SPDX-License-Identifier: MIT
// Shared receive queues (Verbs draft section 6.3): receives for whichever of many queue pairs gets the next message.
//
// A queue pair that finds no receive waits in line, with its stream paused (section 13.2). Receives posted then are
// promised to those in line, the first one first, one each; nobody else takes a promised one, and who needs another
// stands at the end of the line. So no queue pair starves, however busy the others are.
//
// Thread-safe. The queue's lock is taken under locks of queue pairs; no lock of one is taken under it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "provider/export.h"
#include "provider/process/mutex.h"
#include "rdmap/receiver.h"
#include "rdmap/work.h"

namespace uiw::provider {

class Context;
class Pd;
class SrqUser;

class UIW_API Srq {
 public:
  // Fills in what was granted; `srq_limit` counts only if `arm`. Null with errno: EINVAL for sizes or a limit out of
  // range. Throws for lack of memory. `handle` is the program's ibv_srq, which events carry.
  static std::unique_ptr<Srq> create(Pd& pd, ibv_srq_attr& attributes, bool arm, ibv_srq* handle);
  ~Srq();

  std::uint32_t number() const { return number_; }

  // As the manual pages of ibv_post_srq_recv, ibv_modify_srq and ibv_query_srq say: 0 or an errno.
  int post(ibv_recv_wr* requests, ibv_recv_wr** bad);
  int modify(const ibv_srq_attr& attributes, int mask);  // ENOMEM where a new size cannot be had
  void query(ibv_srq_attr& attributes);

  // As those of Qp.
  bool inherited() const;
  void leave_to_parent();

  // Queue pairs are attached: not to be destroyed.
  bool in_use() const { return users_.load(std::memory_order_relaxed) != 0; }
  // How many queue pairs stand in line.
  std::size_t waiting();
  // Takes the events about it out of the context's pipe that the program has not read; returns how many it has.
  unsigned withdraw_events();

 private:
  friend class SrqUser;
  using Line = std::list<SrqUser*>;
  class Waker;

  Srq(Pd& pd, const ibv_srq_attr& attributes, std::uint32_t limit, ibv_srq* handle);

  // The lock is held.
  std::uint32_t available() const { return queue_->size() - promised_; }
  std::size_t promise();
  bool limit_passed();

  void wake(std::size_t count);
  bool next_to_wake(std::uint32_t& qp_number);
  void report_limit();

  Pd& pd_;
  const unsigned generation_;
  ibv_srq* const handle_;
  const std::uint32_t number_;
  const std::uint32_t max_sges_;
  std::atomic<int> users_{0};
  std::atomic<unsigned> events_reported_{0};

  alignas(64) Mutex mutex_;
  std::unique_ptr<rdmap::ReceiveQueue> queue_;
  std::uint32_t limit_;         // 0: not armed
  std::uint32_t promised_ = 0;  // receives in the queue that somebody has been promised
  Line waiting_;                // they have no receive
  Line to_wake_;                // they have been promised one and do not know it yet

  const std::shared_ptr<Waker> waker_;  // tells them where locks of queue pairs are held
};

// What a queue pair has of a shared receive queue: its place in line, and the receive it took last.
class SrqUser {
 public:
  explicit SrqUser(Srq& srq);
  ~SrqUser();  // the queue pair can no longer be found
  SrqUser(const SrqUser&) = delete;
  SrqUser& operator=(const SrqUser&) = delete;

  // In the child of a fork (Qp::leave_to_parent()).
  void leave_to_parent() { srq_.users_.fetch_sub(1, std::memory_order_relaxed); }

  // Whose progress() is called once a receive has been promised.
  void set_qp_number(std::uint32_t number) { qp_number_ = number; }

  // The functions below are called under the receiver's lock of the queue pair.

  // Takes a receive off the queue; its elements stay valid until the next is taken. False where there is none: then the
  // queue pair stands in line.
  bool take(rdmap::ReceiveBuffer& buffer);
  // Is one there for it, that had none?
  bool promised() const { return promised_.load(std::memory_order_acquire); }
  // Needs none any more. What it was promised goes to the next in line.
  void leave();
  // The receive it took last is free again: for whoever is next, behind those that are there. False where the queue has
  // been filled up meanwhile.
  bool give_back(const rdmap::ReceiveBuffer& buffer);

 private:
  friend class Srq;
  enum class Place : std::uint8_t { none, waiting, to_wake };

  // Between the lines of the queue, under its lock; allocates nothing.
  void move_to(Place place);

  Srq& srq_;
  std::uint32_t qp_number_ = 0;
  const std::unique_ptr<rdmap::Sge[]> sges_;
  std::atomic<bool> promised_{false};  // written under the queue's lock
  Place place_ = Place::none;
  Srq::Line none_;  // its one node, while it stands in no line
  Srq::Line::iterator node_;
};

}  // namespace uiw::provider
