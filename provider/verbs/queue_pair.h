// SPDX-License-Identifier: MIT
// A queue pair of any type, as the plugin and the device's other objects use it, and what all types have: identity,
// work queues, attributes, and the batch of send requests that is open. Qp is the type with a connection (RC, UC);
// DatagramQp the one without (UD). Thread-safe, except for destruction; and between begin_batch() and end_batch() or
// abort_batch() only the thread that builds the batch may call the other functions of batches.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/grace_period.h"
#include "base/mutex.h"
#include "provider/connect/numbered.h"
#include "provider/export.h"
#include "provider/inventory/inventory.h"
#include "provider/process/device.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/qp_identity.h"

namespace uiw::provider {

class Context;
class Cq;
class Pd;
class Srq;
class XrcDomain;

class QueuePair : public Numbered {
 public:
  ~QueuePair() override;
  // Creates a queue pair of the type that `attributes` name, and writes the granted values to `attributes`. Null with
  // errno: EINVAL for values beyond the device's limits, EOPNOTSUPP for a type that the device does not offer, ENOMEM,
  // EMFILE, ENFILE; for datagrams also EAGAIN or EAFNOSUPPORT. Throws std::bad_alloc. `handle` is the program's ibv_qp,
  // which events carry. If `srq` is not null, the queue pair has no receive queue of its own. Context, domain, queues
  // and `srq` must remain live as long as the queue pair.
  UIW_API static std::unique_ptr<QueuePair> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                                   ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq);

  // An XRC_RECV queue pair of a RoCE device, likewise. `attributes.cap` is set to 0.
  UIW_API static std::unique_ptr<QueuePair> create_target(Context& context, XrcDomain& domain,
                                                          ibv_qp_init_attr& attributes, ibv_qp* handle);

  QpIdentity& identity() { return qp_; }
  std::uint32_t number() const { return qp_.number; }
  const ibv_qp* handle() const { return qp_.handle; }
  const Context& context() { return *qp_.context; }
  virtual bool completes_to(const Cq* cq) { return cq == &qp_.send_cq || cq == &qp_.receive_cq; }
  // Called while this context is closed. True if the queue pair is to end now. One with several handles (ibv_open_qp)
  // loses those of this context, and ends if no other is left.
  virtual bool leave_context(const Context& closed) { return &context() == &closed; }
  // The number of async events about this queue pair that were written to the context's pipe.
  unsigned events_reported() { return qp_.events_reported.load(); }

  // To be called before the destructor. From here on the queue pair cannot be found by its number, no thread sends or
  // receives for it or places anything into the program's memory, and no event about it is reported. Work that is not
  // complete gets no completion.
  virtual void stop() = 0;
  // True if a parent process created the queue pair. Such a queue pair stays the parent's: calls on the copy in this
  // process affect neither the connection nor the peer, and modify() fails with EIO. Instead of destruction,
  // leave_to_parent() releases the domain and the queues; the memory of the copy may be inconsistent and is left as it
  // is.
  UIW_API bool inherited() const;
  UIW_API void leave_to_parent();

  // `--check=order`: what is posted from now on is sent a moment later than it could be, if there is a connection.
  virtual void delay_posts() {}

  // As the manual pages of ibv_modify_qp, ibv_query_qp, ibv_post_recv and ibv_post_send say. The result is 0 or an
  // errno; the first bad request is stored in `bad`.
  virtual int modify(const ibv_qp_attr& attributes, int mask) = 0;
  virtual void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) = 0;
  // The state that query() shows. Takes no lock.
  virtual ibv_qp_state shown_state() const { return qp_.state.load(); }
  virtual int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) = 0;
  virtual int post_send(ibv_send_wr* requests, ibv_send_wr** bad) = 0;
  // ibv_bind_mw: 0 or an errno. On success `mw` has its new rkey.
  virtual int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) = 0;
  // begin_batch() is ibv_wr_start, end_batch() is ibv_wr_complete, and abort_batch() is ibv_wr_abort; add() adds a
  // request to the open batch. Other threads that post send requests to this queue pair wait for the end of the batch.
  // No lock is held while the batch is open, so the program may do anything. end_batch() returns EINVAL if the same
  // thread had a batch open already.
  virtual void begin_batch() = 0;
  virtual void add(const ibv_send_wr& request) = 0;
  // ibv_wr_set_ud_addr, for the request that was added last.
  virtual void address_last(const ibv_ah* /*handle*/, std::uint32_t /*number*/, std::uint32_t /*qkey*/) {}
  // ibv_wr_set_xrc_srqn, likewise.
  virtual void name_last_queue(std::uint32_t /*number*/) {}
  // The next request that add() gets, an atomic operation without SGEs, becomes that of ibv_wr_atomic_write, or
  // ibv_wr_flush, on the peer's memory that it names.
  virtual void next_is_atomic_write(std::uint64_t /*octets*/) {}
  virtual void next_is_flush(const rdmap::Flush&) {}
  virtual int end_batch() = 0;  // 0; or an errno, and nothing of the batch is posted
  virtual void abort_batch() = 0;
  // ibv_attach_mcast and ibv_detach_mcast: 0 or an errno. Only queue pairs for datagrams support these calls.
  virtual int attach_group(const Gid&) { return EINVAL; }
  virtual int detach_group(const Gid&) { return EINVAL; }
  // IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, right after the creation.
  virtual void block_own_multicast() {}
  // Whether the queue pair is attached to a group, and therefore cannot be destroyed.
  virtual bool is_attached() const { return false; }

  // Fills in what programs such as `rdma resource` show of the queue pair, except for its number and device. If there
  // is a connection, adds to `traffic` the part of its traffic that the port's counters do not include yet. Takes the
  // sender's lock.
  virtual void show(ShownQp& shown, PortCounts& traffic) = 0;

  // To be called when a completion queue of this queue pair has overrun.
  virtual void completion_lost() = 0;
  // Ends the connection, if there is one, as if the network had lost it.
  virtual void lose_connection() {}

 protected:
  using Lock = UniqueLock<SectionMutex>;

  QueuePair(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
            Srq* srq);
  // The last step of creation: from here on the queue pair can be found by its number. False with errno if no number is
  // free, or if there is no descriptor or no memory for another port (the upper 16 bits of a number are a TCP port).
  bool take_number();
  rdmap::SendQueue& sends() { return queues_.sends(); }
  const rdmap::SendQueue& sends() const { return queues_.sends(); }

  // A batch: send requests that one thread collects before it posts them.
  class Batch {
   public:
    // Waits until no other thread has a batch open, releasing the sender's lock meanwhile. False if the calling thread
    // has one open.
    bool await_end(Lock& lock) { return !open_.load(std::memory_order_relaxed) || await_slowly(lock); }
    // Opens a batch. `refused`: the errno with which the state of the queue pair refuses posts, or 0. False if the
    // calling thread has a batch open already; none of the requests in that batch is posted.
    bool begin(Lock& lock, int refused);
    // Called with the sender's lock held.
    void end();

    // Used by the thread that builds the batch.
    int error = 0;
    std::uint32_t size = 0;
    std::uint32_t named_queue = 0;  // as Qp::named_queue_, after the batch

   private:
    bool await_slowly(Lock& lock);

    std::atomic<bool> open_{false};  // written with the sender's lock held
    pthread_t thread_{};
  };

  const unsigned generation_;
  ibv_qp_init_attr init_;
  QpIdentity qp_;
  WorkQueues queues_;
  Batch batch_;
  ibv_qp_attr attributes_{};  // written with the sender's lock
};

// Calls the function for each queue pair that can be found now, one after the other, with its number.
void for_each_queue_pair(const std::function<void(std::uint32_t, QueuePair&)>& function);

}  // namespace uiw::provider
