// SPDX-License-Identifier: MIT
// The work queues of a queue pair: the work that is posted and not complete, and the completions that the program gets.
//
// The queues outlive the streams that carry out the work. The send queue is used with the sender's lock held. The
// receive queue is used with the receiver's lock held; posting receives has a lock of its own.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "base/grace_period.h"
#include "provider/connection/connection_host.h"
#include "provider/memory/accessible.h"
#include "rdmap/work.h"

namespace uiw::provider {

struct QpIdentity;
class Cq;
class Srq;
class SrqUser;

class WorkQueues final : public ConnectionWork {
 public:
  // `qp` and `srq` must remain live as long as this object; `srq` is null if the queue pair has a receive queue of its
  // own. Throws std::bad_alloc.
  WorkQueues(QpIdentity& qp, const ibv_qp_init_attr& granted, Srq* srq);
  ~WorkQueues();

  // Looks up memory that the queue pair may access, and binds and invalidates memory windows for the queue pair.
  const ddp::Accessor& memory() const { return memory_; }

  // ---- With the sender's lock ----
  rdmap::SendQueue& sends() { return sends_; }
  const rdmap::SendQueue& sends() const { return sends_; }
  // What the connection supports. A member is true as long as the answer is not known, since work may be posted before
  // there is a connection.
  struct Abilities {
    bool uiws_own = true;  // messages that only a uiw peer accepts: Send with immediate, atomic write and flush
    bool reads = true;
  };
  struct AtomicWrite {
    std::uint64_t octets;  // as they are in memory
  };
  // What ibv_send_wr cannot express: the operands of a masked atomic operation, or that Immediate Data is sent without
  // a Write (uiwdv.h); or that an atomic operation without SGEs is an atomic write or a flush.
  using Extension = std::variant<std::monostate, rdmap::AtomicOperands, rdmap::Immediate, AtomicWrite, rdmap::Flush>;
  // These three functions are in build_work.cc. They fill in the entry `sequence`, at or after the tail of the queue,
  // for which there is room, and return 0 or the errno of ibv_post_send. build() and build_bind() are called inside a
  // ReadSection. The sender's lock is held, except for entries of an open batch.
  int build(std::uint64_t sequence, const ibv_send_wr& request, const Abilities& abilities);
  int extend(std::uint64_t sequence, const Extension& extension, const Abilities& abilities);
  // Only the low 8 bits of `rkey`, the key, are used; the index is that of the window. On success `mw`, if of type 1,
  // has its new rkey.
  int build_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, ibv_mw& mw, std::uint32_t rkey,
                 const ibv_mw_bind_info& info);
  // Of an XRC_SEND queue pair: moves the entry `sequence` to the place behind it, and puts there what tells the peer
  // the shared receive queue of the entry. 0 or ENOMEM.
  int choose_before(std::uint64_t sequence, std::uint32_t queue);
  // Completes the entry `culprit`, if there is one, with `status`, and all other posted sends as flushed. Not for a
  // queue pair that is connected: rdmap::Transmitter::flush() does this for a connection.
  void flush_sends(std::optional<std::uint64_t> culprit, rdmap::Status status);
  // Called if no stream carries out work: carries out and completes binds and local invalidates at the head of the
  // queue, which need no stream. False if one of them has failed; that one is then the oldest entry, and its status
  // says why.
  bool carry_out_local();

  // Implement rdmap::SendHost.
  bool make_persistent(std::byte* memory, std::uint64_t length) override {
    return provider::make_persistent(memory, length);
  }
  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override;
  rdmap::Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override;

  // ---- With the receiver's lock ----
  bool next_receive(rdmap::ReceiveBuffer& buffer) override;
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status,
                        const rdmap::ReceiveHost::Message& message) override;
  // Completes a receive with this completion, which the caller has filled in except for the number of the queue pair.
  void receive_complete(ibv_wc& completion, bool solicited);
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override;
  void await_no_receive() override { leave_shared(); }
  bool receive_there() const override;
  void give_back(const rdmap::ReceiveBuffer& buffer, bool completes) override;
  void flush_receives() override;
  std::uint32_t receives() const { return receives_.size(); }
  // Of an XRC_RECV queue pair: the peer names the queue that its messages are for. leave_queue() is for one that ends.
  const void* choose_queue(std::uint64_t number) override;
  bool receives_from(const Srq& queue) const;
  bool completes_to(const Cq* cq) const;
  void leave_queue(const Srq& queue);
  void leave_queues();  // for RESET: the peer names one anew

  // ---- With both locks ----
  // Ends the bindings of windows of type 2, since the stream has ended. (By the Verbs draft, section 6.1.4, a program
  // must invalidate these windows before it destroys the queue pair. Many programs do not, and must not be left with a
  // queue pair that is half destroyed.)
  void release_windows();
  // For the step to RESET: drops all posted work without completions, and calls release_windows().
  void empty();
  // Leaves the line in which queue pairs wait for a receive of the shared receive queue, since this queue pair needs
  // none any more. The receiver's lock is enough.
  void leave_shared();

  // ---- Without a lock ----
  bool is_shared() const { return shared_ != nullptr; }
  // See the manual page of ibv_post_recv; not for queue pairs with a shared receive queue.
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad);
  // Drops the queue pair's completions that were not polled. Waits for a poll that another thread has begun
  // (ibv_start_poll).
  void forget_completions();
  // In the child of a fork: stops counting as a user of the shared receive queue, and changes nothing else.
  void leave_to_parent();
  void number_is_known();

 private:
  rdmap::SendWork& fresh(std::uint64_t sequence, rdmap::WorkKind kind, std::uint64_t id, unsigned flags);
  int build_local(std::uint64_t sequence, const ibv_send_wr& request);
  int build_atomic(std::uint64_t sequence, const ibv_send_wr& request);
  int take_octets(std::uint64_t sequence, const ibv_send_wr& request);
  void name_memory(std::uint64_t sequence, const ibv_send_wr& request);

  QpIdentity& qp_;
  const ddp::Accessor memory_;
  const bool signal_all_;  // sq_sig_all
  rdmap::SendQueue sends_;
  ddp::KnownSlot known_to_send_;
  bool has_windows_ = false;  // windows of type 2 were bound

  // Whether an injected fault has made the send queue, or the receive queue, fail. Each flag is used with the lock of
  // that queue held.
  bool send_failed_ = false, receive_failed_ = false;
  bool last_receive_reported_ = false;
  alignas(64) SectionMutex post_receive_mutex_;
  ddp::KnownSlot known_;  // for post_receive(), with the mutex held
  rdmap::ReceiveQueue receives_;
  // Used instead of receives_ if not null; of an XRC_RECV queue pair the queue that the peer has named last. The others
  // that it has named before hang on it.
  std::unique_ptr<SrqUser> shared_;
};

}  // namespace uiw::provider
