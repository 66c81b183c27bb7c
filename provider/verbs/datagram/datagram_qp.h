// SPDX-License-Identifier: MIT
// Queue pairs of type IBV_QPT_UD, which exist only on devices shown as RoCE (Transport::roce). There is no
// connection: posted Sends go to the UDP socket of the port that the queue pair number contains, and complete when the
// kernel has accepted them. A datagram that arrives at this port is placed into a posted receive, or dropped.
//
// Locks: the receiver's, then the sender's, as for Qp; the attributes change with both held. The DatagramPort holds its
// own lock while it calls deliver() or may_send().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/grace_period.h"
#include "provider/datagram/datagram_port.h"
#include "provider/datagram/datagram_target.h"
#include "provider/verbs/datagram/datagram_sender.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/qp_identity.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

class DatagramQp final : public QueuePair, public DatagramTarget {
 public:
  // The arguments, the result and the errors are those of QueuePair::create(); the type must be IBV_QPT_UD.
  static std::unique_ptr<DatagramQp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                            ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq = nullptr);
  ~DatagramQp() override;

  void stop() override;

  int modify(const ibv_qp_attr& attributes, int mask) override;
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) override;
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) override;
  int post_send(ibv_send_wr* requests, ibv_send_wr** bad) override;
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind) override;
  void begin_batch() override;
  void add(const ibv_send_wr& request) override;
  void address_last(const ibv_ah* handle, std::uint32_t number, std::uint32_t qkey) override;
  int end_batch() override;
  void abort_batch() override;
  void completion_lost() override;
  void show(ShownQp& shown, PortCounts& traffic) override;
  int attach_group(const Gid& group) override;
  void block_own_multicast() override { blocks_own_multicast_ = true; }
  int detach_group(const Gid& group) override;
  bool is_attached() const override;

  DatagramTarget* datagrams() override { return this; }
  void after_fork_in_child() override {}
  void deliver(const Arrival& arrival) noexcept override;
  void may_send() noexcept override;

 private:
  DatagramQp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
             Srq* srq);

  bool is_ours(const Gid& to) const;
  void drop(DatagramDrop why) const;
  rdmap::Status place(const Arrival& arrival, const rdmap::ReceiveBuffer& buffer) const;
  bool state_allows_posts() const;
  void send() UIW_REQUIRES(send_);
  void enter_error() UIW_REQUIRES(receive_, send_);
  void reset() UIW_REQUIRES(receive_, send_);

  alignas(64) SectionMutex receive_;
  alignas(64) SectionMutex send_;
  DatagramSender sender_;
  std::shared_ptr<DatagramPort> port_;
  bool blocks_own_multicast_ = false;
  mutable Mutex groups_mutex_;
  std::vector<Gid> groups_ UIW_GUARDED_BY(groups_mutex_);  // the groups that this queue pair is attached to
  std::shared_ptr<DatagramPort> multicast_ UIW_GUARDED_BY(groups_mutex_);  // made by the first attach_group()
};

}  // namespace uiw::provider
