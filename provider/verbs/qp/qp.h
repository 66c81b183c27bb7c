// SPDX-License-Identifier: MIT
// Queue pairs (Verbs draft section 6), as programs see them.
//
// Qp has their creation and destruction, their states and attributes. Its parts: WorkQueues has the work that is posted
// and not complete; SendPosting takes requests and sends them; QpConnection has the Stream that carries out the work;
// ManualConnection is for programs that connect with ibv_modify_qp. Thread-safe, except for destruction. Locks:
// qp_common.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/stream/tcp_stream.h"
#include "provider/connect/attachable.h"
#include "provider/progress/driven.h"
#include "provider/progress/driver.h"
#include "provider/verbs/qp/manual_connection.h"
#include "provider/verbs/qp/qp_common.h"
#include "provider/verbs/qp/qp_connection.h"
#include "provider/verbs/qp/send_posting.h"
#include "provider/verbs/qp/work_queues.h"
#include "provider/verbs/queue_pair.h"

namespace uiw::provider {

class Qp final : public QueuePair, public Driven, public Attachable {
 public:
  // Fills in `attributes.cap` with the granted values. Null with errno: EINVAL for values beyond the device's,
  // EOPNOTSUPP for a type other than RC and UC, ENOMEM, EMFILE. `handle` is the program's ibv_qp, which events carry.
  // With `srq` the queue pair has no receive queue of its own. Context, domain, queues and `srq` must remain live as
  // long as the queue pair.
  static std::unique_ptr<Qp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                                    ibv_qp* handle, Srq* srq = nullptr);
  ~Qp() override;
  // The first half of destruction: from here on the queue pair is not found or driven, no event about it is reported,
  // and its stream has ended. Work that is not complete gets no completion; octets that TCP has taken are still sent.
  void stop() override;

  QpIdentity& identity() override { return common_; }
  std::uint32_t number() const override { return common_.number; }
  const ibv_qp* handle() const { return common_.handle; }
  ibv_qp_state state() const { return common_.state.load(); }

  // The send side: open batches, and posting.
  SendPosting& posting() override { return posting_; }
  // As the manual page of ibv_post_recv says: 0 or an errno, with the first bad request.
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) override;
  // The number of requests that are posted and not complete.
  std::uint32_t sends_outstanding();
  std::uint32_t receives_outstanding();

  // As the manual page of ibv_modify_qp says: 0, or an errno and nothing has changed.
  int modify(const ibv_qp_attr& attributes, int mask) override;
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) override;

  void show(ShownQp& shown, PortCounts& traffic) override;

  Attachable* attachable() override { return this; }
  Driven* driven() override { return this; }

  // See QpConnection and ManualConnection.
  using Attachment = provider::Attachment;
  using Driver = uiw::provider::Driver;
  int attach(TcpStream& socket, const Attachment& to) override { return connection_.attach(socket, to); }
  bool can_attach(const manual::Attempt* attempt = nullptr) override { return connection_.can_attach(attempt); }
  int doorbell() override { return connection_.doorbell(); }
  bool is_confirmed() const override { return common_.is_reliable(); }
  bool is_for(std::uint32_t peer_psn) override { return connection_.is_for(peer_psn); }
  int disconnect(const ConnectionOwner* owner) override { return connection_.disconnect(owner); }
  void arrived(const ConnectionOwner* owner) override { connection_.arrived(owner); }
  void no_first_message(const ConnectionOwner* owner) override { connection_.no_first_message(owner); }
  void completion_lost() override { connection_.completion_lost(); }
  void lose_connection() override { connection_.lose_connection(); }
  void no_memory() noexcept override { common_.no_memory(); }
  bool progress(Driver driver) noexcept override { return connection_.progress(driver); }
  bool watch_socket(bool watched) override { return connection_.watch_socket(watched); }
  bool check_retry_timer(std::chrono::nanoseconds late) override { return manual_.check_retry_timer(late); }
  void restart_retry_timer() override { manual_.restart_retry_timer(); }

  // True if a parent process created the queue pair. It then stays the parent's: calls on the copy in this process
  // affect neither the stream nor the peer, and modify() fails with EIO. Instead of destruction, leave_to_parent()
  // releases the domain and the queues; the memory of the copy may be inconsistent and is left as it is.
  bool inherited() const override;
  void leave_to_parent() override;
  void after_fork_in_child() override;
  QpConnection& connection() { return connection_; }

 private:
  Qp(Context& context, Pd& pd, Cq& send_cq, Cq& receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
     Srq* srq);

  int check(ibv_qp_state from, int to, const ibv_qp_attr& attributes, int mask);
  int take_step(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attributes, int mask);
  void advance(ibv_qp_state from, ibv_qp_state to);
  int to_rtr(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_rts(ibv_qp_state from, const ibv_qp_attr& attributes);
  void to_sqd(ibv_qp_state from, const ibv_qp_attr& attributes, int mask);
  void to_error();
  void reset();
  void change_attributes(const ibv_qp_attr& attributes, int mask);
  // Adapters for iWARP have one state for RESET and INIT (Idle, Verbs draft section 6.2.1), and call it INIT.
  ibv_qp_state idle() const { return common_.rnic ? IBV_QPS_INIT : IBV_QPS_RESET; }
  ibv_qp_state shown_state() const;

  const unsigned generation_;
  ibv_qp_init_attr init_;
  QpCommon common_;
  WorkQueues queues_;
  SendPosting posting_;
  QpConnection connection_;
  ManualConnection manual_;
};

// The queue pair with this number, or null. Inside a ReadSection.
Qp* find_qp(std::uint32_t number);
// Each that can be found now, one after the other.
void for_each_qp(const std::function<void(Qp&)>& function);

}  // namespace uiw::provider
