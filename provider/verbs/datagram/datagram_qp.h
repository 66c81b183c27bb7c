// SPDX-License-Identifier: MIT
// Queue pairs for datagrams (IBV_QPT_UD) of the RoCE view. Nothing connects them: what is posted goes to the UDP socket
// of the port that their number names, and completes when the kernel has it; what arrives there is placed into a posted
// receive, or dropped.
//
// Work queues and completions are those of all queue pairs (WorkQueues); there is no stream. Thread-safe, except for
// destruction. Locks: the receiver's, then the sender's, as for Qp; the port of datagrams holds its own while it calls
// deliver() or may_send().
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/grace_period.h"
#include "provider/datagram/datagram_port.h"
#include "provider/datagram/datagram_target.h"
#include "provider/verbs/datagram/datagram_sender.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/qp_identity.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

class DatagramQp final : public QueuePair, public DatagramTarget, private SendRequests {
 public:
  // See QueuePair::create(); the type must be IBV_QPT_UD.
  static std::unique_ptr<DatagramQp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                            ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq = nullptr);
  ~DatagramQp() override;

  QpIdentity& identity() override { return qp_; }
  std::uint32_t number() const override { return qp_.number; }
  void stop() override;
  bool inherited() const override;
  void leave_to_parent() override;

  int modify(const ibv_qp_attr& attributes, int mask) override;
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) override;
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) override;
  SendRequests& posting() override { return *this; }
  void completion_lost() override;
  void show(ShownQp& shown, PortCounts& traffic) override;
  int attach_group(const Gid& group) override;
  int detach_group(const Gid& group) override;
  bool is_attached() const override;

  DatagramTarget* datagrams() override { return this; }
  void after_fork_in_child() override {}
  void deliver(const Arrival& arrival) noexcept override;
  void may_send() noexcept override;

 private:
  using Lock = std::unique_lock<SectionMutex>;

  DatagramQp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
             Srq* srq);
  int post(ibv_send_wr* requests, ibv_send_wr** bad) override;
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) override;
  void begin_batch() override;
  void add(const ibv_send_wr& request) override;
  void address_last(const ibv_ah* handle, std::uint32_t number, std::uint32_t qkey) override;
  int end_batch() override;
  void abort_batch() override;

  bool is_ours(const Gid& to) const;
  void drop(DatagramDrop why) const;
  rdmap::Status place(const Arrival& arrival, const rdmap::ReceiveBuffer& buffer) const;
  bool state_allows_posts() const;
  void send();
  bool await_batch(Lock& lock);
  void close_batch();
  void enter_error();
  void reset();

  struct Batch {
    std::atomic<bool> open{false};  // written with the sender's lock held
    // Used by the thread that builds the batch.
    pthread_t thread{};
    int error = 0;
    std::uint32_t size = 0;
  };

  const unsigned generation_;
  ibv_qp_init_attr init_;
  QpIdentity qp_;
  WorkQueues queues_;
  alignas(64) SectionMutex receive_;
  alignas(64) SectionMutex send_;
  DatagramSender sender_;
  std::shared_ptr<DatagramPort> port_;
  mutable Mutex groups_mutex_;
  std::vector<Gid> groups_;                  // that it is attached to
  std::shared_ptr<DatagramPort> multicast_;  // if there are any
  ibv_qp_attr attributes_{};                 // written with both locks
  Batch batch_;
};

}  // namespace uiw::provider
