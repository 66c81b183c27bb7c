// SPDX-License-Identifier: MIT
// Queue pairs (Verbs draft section 6): work queues, states, and the RDMAP stream that serves them once connected.
//
// Locks: the receiver's, then the sender's, then those of completion queues. The receive queue has one of its own
// for its posters. The sender's lock is never held while the receiver's is taken. Work is flushed with both, so that
// nothing is placed for it any more.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "mpa/deframer.h"
#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/coalescing.h"
#include "provider/cq.h"
#include "provider/export.h"
#include "provider/grace_period.h"
#include "rdmap/receiver.h"
#include "rdmap/transmitter.h"
#include "rdmap/work.h"

namespace uiw::provider {

class Context;
class Pd;
class Srq;
class SrqUser;

// Who set the stream up and wants to know of its fate. Called on any thread, with locks of the queue pair held: it
// may note the news, and do nothing else. The queue pair keeps it alive until the stream has ended.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void stream_established() noexcept = 0;
  virtual void stream_ended() noexcept = 0;
};

class UIW_API Qp final : rdmap::SendHost, rdmap::ReceiveHost {
 public:
  // Fills in `attributes.cap` with what was granted. Null with errno: EINVAL for caps beyond the device's, EOPNOTSUPP for
  // a type other than RC and UC, ENOMEM, EMFILE. `handle` is the program's ibv_qp, which events carry. With a shared receive queue it
  // has none of its own.
  static std::unique_ptr<Qp> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, ibv_qp_init_attr& attributes,
                                    ibv_qp* handle, Srq* srq = nullptr);
  ~Qp();
  // The first half of destruction: nobody finds or drives it from here on, no event about it is reported, and its stream has
  // ended. What was posted and not complete is gone without a completion; what TCP has taken still goes out.
  void stop();

  std::uint32_t number() const { return number_; }
  const Context& context() const { return *context_; }
  const ibv_qp* handle() const { return handle_; }
  ibv_qp_state state() const { return state_.load(); }

  // As the manual pages of ibv_post_send and ibv_post_recv say: 0 or an errno, with the first bad request.
  int post_send(ibv_send_wr* requests, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad);

  // ibv_bind_mw: 0 or an errno. On success the window has its new rkey already.
  int post_bind(ibv_mw& mw, const ibv_mw_bind& bind);

  // ibv_wr_start ... ibv_wr_complete: one thread builds, and others that post to this queue pair wait for it. No lock is
  // held in between: the program may do as it likes. EINVAL from end_batch() where this very thread had begun one already.
  void begin_batch();
  void add(const ibv_send_wr& request);
  // What ibv_send_wr cannot say of the request that is added next (uiwdv.h): the numbers of an atomic operation, or
  // that Immediate Data stands alone.
  using Extension = std::variant<std::monostate, rdmap::AtomicOperands, rdmap::Immediate>;
  void extend(const Extension& extension) { extension_ = extension; }
  int end_batch();  // 0 or an errno: then none of the batch was posted
  void abort_batch();

  // As the manual page of ibv_modify_qp says: 0, or an errno and nothing has changed.
  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init);

  // Work posted and not complete.
  std::uint32_t sends_outstanding();
  std::uint32_t receives_outstanding();

  bool completes_to(const Cq* cq) const { return cq == send_cq_ || cq == receive_cq_; }
  // A completion queue had no room for a completion of this or another queue pair: the stream ends with a Terminate.
  void completion_lost();

  // Gives the QP its stream. EINVAL where its state does not allow it, EISCONN where it has one; the socket is then
  // untouched.
  struct Attachment {
    mpa::Agreement agreement;
    bool initiator = false;
    std::size_t mulpdu = 0;  // largest ULPDU to send; 0 follows the TCP segment size
    bool by_hand = false;    // by its program: its state and attributes are what that says
    std::uint32_t life = 0;  // which connection by hand it is for: one that was begun before RESET is not for the next
    std::uint32_t peer_psn = 0;  // by hand: the peer's rq_psn, 0 if it has said none
    rdmap::Completion completion = rdmap::Completion::local;
    // What the program knows of the depths agreed on, at most; the rest is for probes (rdmap/transmitter.h).
    std::uint32_t ord = ~0U, ird = ~0U;
    std::shared_ptr<StreamOwner> owner;
  };
  int attach(mpa::TcpStream& socket, const Attachment& attachment);
  bool can_attach(bool by_hand = false, std::uint32_t life = 0) const;
  // By hand: does the peer that says this PSN (Attachment) mean this queue pair, as far as is known?
  bool is_for(std::uint32_t peer_psn);
  // Orderly end: what is posted is sent, then TCP is closed; a peer that does not close in time is reset. ENOTCONN if
  // the stream is not this owner's or not there; nullptr stands for any.
  int disconnect(const StreamOwner* owner);
  // False if it has no stream.
  struct Agreed {
    mpa::Agreement agreement;
    bool initiator = false;
    std::size_t mulpdu = 0;
  };
  bool query_agreed(Agreed& agreed);
  // The peer has had its time to begin.
  void abort_beginning(const StreamOwner* owner);

  // Work posted to a queue pair that its program has connected has its time to get on (ibv_modify_qp: timeout, retry_cnt,
  // rnr_retry); then it fails. False if there is none.
  bool look_after_work();

  // It was made by a process of which this one is the child: then it stays that one's. What is done to the copy here
  // touches neither the stream nor the peer, modify() fails with EIO, and in place of its destruction leave_to_parent()
  // gives up its domain and queues; its memory may be half changed, and is left as it is.
  bool inherited() const;
  void leave_to_parent();
  void after_fork_in_child();

  // Something about its stream needed memory that is not to be had: the stream ends, by a reset.
  void no_memory() noexcept;

  // The program ends without having destroyed it.
  void leave_at_exit();

  // Async events about this queue pair that went into the context's pipe.
  unsigned events_reported() const { return events_reported_.load(); }

  enum class Driver : std::uint8_t { program, event };
  // Moves what can be moved now; true if anything was. A program's poll does not wait for a lock. A stream for which
  // there is no memory ends.
  bool progress(Driver driver) noexcept;
  // Something is still to be sent: posts that may go with the next ones, or the question to the peer whether it has
  // placed some work; sent at the latest when the program waits for a completion.
  bool held() const { return held_.load(); }
  bool posts_wait() const { return posts_wait_since_.load() != 0; }
  // The program polls: what it has posted goes. And, as it has found nothing, the rest.
  void send_posts();
  void send_held();
  // The program posts and polls, but has not come back for what it has posted here.
  void send_overdue();
  unsigned idle_rounds = 0;  // the engine's note: polls in a row without work

 private:
  Qp(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq, const ibv_qp_init_attr& attributes, ibv_qp* handle,
     Srq* srq);

  // rdmap::SendHost and rdmap::ReceiveHost
  void send_complete(const rdmap::SendWork& work, rdmap::Status status) override;
  rdmap::Status carry_out(const rdmap::SendWork& work, const ddp::Binding& binding) override;
  bool next_receive(rdmap::Landing& landing) override;
  void receive_complete(const rdmap::Landing& landing, rdmap::Status status, const Message& message) override;
  void read_complete() override;
  void read_requested(bool only_asks) override { (only_asks ? answer_wanted_ : transmit_wanted_) = true; }
  void peer_dealt_with(const rdmap::DealtWith& said) override;
  void peer_wants_acknowledgements() override;
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override;

  // Posting. What the stream can do, as far as it is known: it may be asked for before there is one.
  struct Abilities {
    bool send_immediate = true, reads = true;
  };
  // These fill in the entry `sequence`, at or behind the tail of the queue, which has room for it. 0, or the errno of
  // ibv_post_send.
  int prepare(std::uint64_t sequence, const ibv_send_wr& request, const Abilities& abilities);
  int apply_extension(std::uint64_t sequence, const Extension& extension);
  int prepare_bind(std::uint64_t sequence, std::uint64_t id, unsigned flags, const ibv_mw& mw, std::uint32_t rkey,
                   const ibv_mw_bind_info& info);
  int prepare_invalidate(std::uint64_t sequence, std::uint64_t id, unsigned flags, std::uint32_t rkey);
  rdmap::SendWork& fresh_work(std::uint64_t sequence, rdmap::WorkKind kind, std::uint64_t id, unsigned flags);
  // The sender's lock is held from here on.
  Abilities abilities() const;
  bool posts() const;  // does the state allow it?
  bool make_room(std::uint64_t sequence);
  void push_prepared(std::uint32_t count);
  bool await_batch(std::unique_lock<SectionMutex>& lock);
  void close_batch();
  void send_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock);
  void send_what_is_posted(std::uint64_t first, std::unique_lock<SectionMutex>& lock) noexcept;
  bool coalesces(std::uint64_t first);
  void resume_posting();
  void send_waiting();
  bool drained() const { return by_hand_ ? send_queue_.head() >= drain_to_ : send_queue_.empty(); }
  bool too_late() const;   // for anything but a flushed completion
  void release_windows();

  // Whether somebody sends, under the sender's lock, and is to look once more before it ends; or the socket has taken no
  // more.
  enum class Sending : std::uint8_t { idle, busy, once_more, full };
  // Sending; the sender's lock is held.
  using Patience = rdmap::Transmitter::Patience;
  void transmit(Patience patience = Patience::none);
  Patience patience(Driver driver) const;
  Patience patience_of_program() const;
  bool full() const { return sending_.load(std::memory_order_relaxed) == Sending::full; }
  bool stop_sending(Sending to);
  void note_held();
  bool awaited_elsewhere() const;
  void forget_held();
  void finish_sending();

  bool make_progress(Driver driver);

  // Receiving; the receiver's lock is held.
  bool ask_sender();
  bool receive(Driver driver);
  bool receive_there() const;
  bool resume();
  bool pause(mpa::Octets rest);
  bool keep_stash(mpa::Octets rest);
  void drop_stash() { stash_.reset(), stash_size_ = stash_taken_ = 0; }
  void set_deaf(bool deaf);
  void watch_for_end();
  bool take_octets(mpa::Octets octets);
  bool take_result(mpa::Deframer::Result result, mpa::Octets rest);
  bool drop_received();
  void note_first_message();
  void take_linger_serial();
  bool stop_lingering_later();
  void stop_lingering(unsigned serial);
  bool stop_closing_later();
  void stop_closing(unsigned serial, std::uint64_t head);
  void await_sender();
  void note_send_error();
  void end_for_send_error(bool linger);
  bool work_failed_here();
  void reset_stream();
  void end_without_memory();
  void report_lost();
  void tell_not_ready_later();
  void tell_not_ready(std::uint64_t pauses);
  void tell_not_ready();
  void give_up_later();
  void give_up(const StreamOwner* owner, std::uint64_t pauses);
  // `broken`: not by a FIN.
  void peer_closed(bool broken);
  void stream_error(const rdmap::Terminate& terminate);
  void end_with(const rdmap::Terminate& terminate, bool peer_gone = false);
  std::optional<std::uint64_t> never_confirmed();
  void peer_terminated(const rdmap::Terminate& terminate);
  // The stream is over; both queues are flushed and the state is ERR. `linger` keeps the socket until the FPDU in
  // progress and a Terminate, if one is due, have gone out and the peer has closed.
  void end_stream(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger);
  void flush_receives();
  bool step(ibv_qp_state from, ibv_qp_state to);
  void change_attributes(const ibv_qp_attr& attributes, int mask);
  bool answers_due();
  void answer_last();
  void leave();
  void let_go_of_socket();
  bool mixed_up(std::uint32_t peer_psn) const;
  void ready_to_send_by_hand(const ibv_qp_attr& attributes);
  bool unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now);
  int connect_by_hand(const ibv_qp_attr& attributes, int mask);
  void drain();
  void go_on();
  void forget_completions();
  void forget_stream();
  void forget_message();
  void peer_left(bool broken);
  void reset();
  void report(ibv_event_type type);

  enum class Stream : std::uint8_t {
    none,
    running,
    closing,    // our side has sent, or will send, its last octet
    lingering,  // in error: the FPDU in progress and a Terminate go out, what comes in is dropped
    gone,       // connected by hand, and the peer has left; nobody has noticed yet
    ended,
  };

  const std::shared_ptr<Context> context_;
  const unsigned generation_;
  Pd& pd_;
  Cq* const send_cq_;
  Cq* const receive_cq_;
  ibv_qp* const handle_;
  std::uint32_t number_ = 0;  // 0 where all are taken
  const bool signal_all_;
  ibv_qp_init_attr init_;
  ibv_qp_attr attributes_{};

  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<Stream> stream_{Stream::none};
  std::atomic<bool> steps_due_{false};  // on RoCE, while the program has yet to go through the states of its stream
  std::atomic<unsigned> events_reported_{0};
  std::atomic<bool> by_hand_{false};  // from RTR on, by ibv_modify_qp; written with both locks held
  std::atomic<std::uint32_t> life_{0};  // counts that; likewise
  std::uint32_t peer_psn_ = 0;         // of the stream by hand; with both locks held

  // The sender.
  alignas(64) SectionMutex send_mutex_;
  rdmap::SendQueue send_queue_;
  rdmap::Transmitter transmitter_;
  std::atomic<Sending> sending_{Sending::idle};
  std::atomic<bool> held_{false};  // written under the lock
  Coalescing coalescing_;
  // Of it, for threads without the lock.
  std::atomic<std::uint64_t> posts_wait_since_{0};
  std::atomic<pthread_t> poster_{};  // who has posted them
  bool send_dead_ = false;    // the socket takes nothing any more
  bool fin_sent_ = false;
  std::atomic<bool> send_error_{false};  // found while sending; the receiver's side ends the stream
  bool error_told_ = false;          // by a completion of the send queue
  bool tell_when_drained_ = false;   // IBV_QP_EN_SQD_ASYNC_NOTIFY
  std::uint32_t ord_limit_ = ~0U;    // what the program asked for before it was connected
  bool has_windows_ = false;  // some of type 2 were bound
  // A batch is open, of one thread: written under the lock. The rest is that thread's own.
  std::atomic<bool> batch_open_{false};
  pthread_t batch_thread_{};
  int batch_error_ = 0;
  std::uint32_t batch_size_ = 0;
  Abilities batch_abilities_;
  Extension extension_;
  std::uint64_t drain_to_ = 0;   // SQD, connected by hand: what stands before this goes on
  std::uint64_t stuck_at_ = ~std::uint64_t{0};                     // the head of the queue when look_after_work() looked last
  std::chrono::steady_clock::time_point stuck_since_; // and since when
  std::uint64_t moved_ = 0;                             // octets of the stream, both ways, when it looked last
  std::chrono::steady_clock::time_point unmoved_since_;

  // The receiver.
  alignas(64) SectionMutex receive_mutex_;
  rdmap::Receiver receiver_;
  mpa::Deframer deframer_;
  std::unique_ptr<rdmap::SharedReads> reads_;
  mpa::TcpStream socket_;
  std::unique_ptr<std::byte[]> stash_;  // read while no receive is posted; at most what one recv takes
  std::size_t stash_size_ = 0;
  std::size_t stash_taken_ = 0;  // so much of it is done with
  std::atomic<bool> paused_{false};
  std::uint64_t pauses_ = 0;
  bool transmit_wanted_ = false;
  bool answer_wanted_ = false;        // by a peer that waits for no more than that its work is placed
  // Such an answer goes with what the program posts, if so it did a few times in a row before it polled again.
  static constexpr unsigned kRides = 4;
  unsigned rides_ = 0;
  bool ride_offered_ = false;
  std::atomic<bool> ride_open_{false};  // nothing has been posted since
  bool initiator_ = false;
  Agreed agreed_;
  bool established_ = false;
  bool giving_up_ = false;
  bool telling_not_ready_ = false;
  unsigned linger_serial_ = 0;
  bool receive_error_told_ = false;  // by a completion of the receive queue
  bool last_receive_reported_ = false;
  std::shared_ptr<StreamOwner> owner_;

  alignas(64) SectionMutex post_receive_mutex_;
  rdmap::ReceiveQueue receive_queue_;
  std::unique_ptr<SrqUser> shared_;  // in place of it
};

// The queue pair with this number, or null. Inside a ReadSection.
Qp* find_qp(std::uint32_t number);

}  // namespace uiw::provider
