// SPDX-License-Identifier: MIT
// The connection of a queue pair, from Qp::attach() on: how it sends, how it receives, and how it ends.
//
// A Connection is a part of its queue pair and lives as long as the queue pair. It is idle while there is no peer. Each
// time the queue pair is connected, a session begins, with all the state that starts anew then. Its files: send.cc
// (turns work into FPDUs and hands them to TCP), receive.cc (octets arrive and are placed), end.cc (how a session
// ends). What the two ends have agreed on is the session's ConnectionRules.
//
// Locks: the receiver's is taken first, then the sender's, then those of completion queues. The phase of the session
// (enum Phase) changes with the receiver's and the sender's held, except in the child of a fork. Functions are called
// inside a ReadSection (base/grace_period.h), with the locks held that their annotations name. If there is no session
// they do nothing, unless a comment says that there must be a session.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/grace_period.h"
#include "base/stream/shared_stream.h"
#include "base/stream/tcp_stream.h"
#include "mpa/deframer.h"
#include "provider/connection/connection_host.h"
#include "provider/connection/connection_owner.h"
#include "provider/connection/movement.h"
#include "provider/connection/read_ahead.h"
#include "provider/process/log.h"
#include "provider/progress/driver.h"
#include "provider/progress/piggybacking.h"
#include "provider/progress/send_scheduler.h"
#include "rdmap/connection_rules.h"
#include "rdmap/read_queue.h"
#include "rdmap/receiver.h"
#include "rdmap/transmit/transmitter.h"

namespace uiw::provider {

class Engine;
struct IoScratch;

class Connection final : rdmap::ReceiveHost {
 public:
  enum class Phase : std::uint8_t {
    idle,  // there is no session
    running,
    closing,    // orderly end: what is posted is sent, then FIN
    lingering,  // the FPDU in progress and a Terminate, if one is due, are sent; what arrives is dropped
    gone,       // the peer of a manual connection has left, and no work has failed because of that yet
    ended,
  };
  using ProbePolicy = SendScheduler::ProbePolicy;
  // The connection of the queue pair with this number, or null. To be called inside a ReadSection, which stays open
  // while the result is used.
  using Find = Connection* (*)(std::uint32_t qp_number);

  // `engine` must remain live as long as the connection.
  Connection(Engine& engine, Find find) : engine_(engine), find_(find) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends are flushed with both locks held, receives with the receiver's lock held, so that nothing is placed for
  // flushed work.
  struct Locks {
    alignas(64) SectionMutex receive;
    alignas(64) SectionMutex send;
  } locks;
  // Flags and values that threads read without holding a lock of the connection.
  struct Signals {
    alignas(64) std::atomic<bool> receive_stalled{false};  // the stream reads nothing until a receive is posted
    // Sends are deferred: posts wait for the next posts, or a probe (an RDMA Read of no octets) waits.
    alignas(64) std::atomic<bool> deferred{false};
    std::atomic<std::uint64_t> posts_wait_since{0};  // when the oldest deferred post was made (monotonic, ns); 0: none
    std::atomic<pthread_t> poster{};                 // the thread that made the last of these posts
  } signals;

  // Sets the parts of the queue pair that this connection uses, and the memory that the connection may access. Called
  // once, before the queue pair can be found. All arguments must remain live as long as the connection.
  void serve(ConnectionWork& work, ConnectionHost& host, rdmap::SendQueue& sends, const ddp::Accessor& memory) {
    work_ = &work, host_ = &host, sends_ = &sends, memory_ = &memory;
  }

  // ---- Any thread; without a lock, the answer may be out of date at once ----
  Phase phase() const { return phase_.load(); }
  bool is_idle() const { return phase() == Phase::idle; }
  bool runs() const { return phase() == Phase::running; }
  bool runs_or_closes() const {
    const Phase now = phase();
    return now == Phase::running || now == Phase::closing;
  }
  // Whether there is a session that carries out work, or flushes it.
  bool carries_work() const {
    const Phase now = phase();
    return now != Phase::idle && now != Phase::gone;
  }

  // ---- With both locks held ----
  // prepare() makes a session on a TCP connection that has carried no FPDU yet, begin() starts it. Nothing is sent or
  // read before begin(). prepare() throws std::bad_alloc. `owner` may be null.
  void prepare(std::uint32_t qp_number, const rdmap::ConnectionRules& rules, std::shared_ptr<ConnectionOwner> owner,
               TcpStream&& socket) UIW_REQUIRES(locks.receive, locks.send);
  // Makes the octets go through shared memory once the peer has agreed. Called at most once, after prepare(). Returns
  // 0, also if the octets stay on TCP, or an errno. Throws std::bad_alloc.
  int share(SharedOffer&& offer) UIW_REQUIRES(locks.receive, locks.send);
  void begin() UIW_REQUIRES(locks.receive, locks.send) { phase_ = Phase::running; }
  // Called instead of begin() if the session cannot begin: gives the socket back to the caller.
  TcpStream take_back() UIW_REQUIRES(locks.receive, locks.send);
  // A session must have been prepared.
  TcpStream& socket() UIW_REQUIRES(locks.receive, locks.send) { return session_->socket; }
  // Ends the session without completing posted work. If a message has arrived in part, its receive is given back to the
  // receive queue. If a shared receive queue cannot take the receive back, it completes as flushed if `completes` is
  // true, and is dropped otherwise.
  void abandon(bool completes) UIW_REQUIRES(locks.receive, locks.send);
  // RESET, for callers outside of the connection: abandons the session, and frees it.
  void reset() UIW_REQUIRES(locks.receive, locks.send) {
    abandon(false);
    session_.reset();
  }
  // In the child of a fork: the session belongs to the parent, so it is not used here. No locks are held.
  void after_fork_in_child();

  // ---- With the receiver's lock held ----
  // Called by a thread that receives for the connection: ends the session if the sender has found an error, then reads
  // and processes what has arrived. True if the caller is to release the receiver's lock and then to call send_turn().
  // Sets `work` to whether there was anything to do, unless there is no session or it is over.
  bool receive_turn(Driver driver, bool& work) UIW_REQUIRES(locks.receive);
  bool is_of(const ConnectionOwner* owner) const UIW_REQUIRES(locks.receive) {
    return !is_idle() && session_->owner.get() == owner;
  }
  // Orderly end: what is posted is sent, then TCP is closed. Returns 0, or ENOTCONN if there is no session that runs or
  // closes.
  int disconnect() UIW_REQUIRES(locks.receive);
  // Ends the session although the peer has not closed it. `beginning`: the peer's first message has not arrived before
  // the start-up deadline; `by_fault`: the user has asked for a fault (provider/process/faults/).
  enum class Lost { beginning, by_fault };
  void lose(Lost why) UIW_REQUIRES(locks.receive);
  // The shared receive queue that the peer has named ends (XRC): refuses the message that is arriving, if there is one,
  // and those that come until the peer names another.
  void leave_queue() UIW_REQUIRES(locks.receive);
  // A completion queue has overflowed: sends a Terminate.
  void completion_lost() UIW_REQUIRES(locks.receive);
  // There is no memory for something that the session needs: ends it by RST.
  void end_without_memory() UIW_REQUIRES(locks.receive);
  // ibv_modify_qp to ERR: flushes all work. There must be a session that runs or closes.
  void flush_work() UIW_REQUIRES(locks.receive);
  // Called before the step to RESET or ERR, by ibv_destroy_qp, and at exit(): if the peer's Sends and Writes complete
  // only when they are placed, reports to the peer what has been placed, as far as the stream accepts the octets at
  // once.
  void leave() UIW_REQUIRES(locks.receive);
  // Posted work has waited for its peer for too long: `culprit` completes with `status`, and the rest is flushed.
  // Without a culprit all work is flushed, and IBV_EVENT_QP_FATAL is reported. The session lingers if `status` is
  // rnr_exceeded, and ends at once otherwise. There must be a session.
  void fail_work(std::optional<std::uint64_t> culprit, rdmap::Status status) UIW_REQUIRES(locks.receive);
  // Makes epoll report events of the socket, or not (Driven::watch_socket(), provider/progress/driven.h). With shared
  // memory this does nothing: no octets arrive at the socket then, so it can stay watched. False if epoll has no memory
  // to watch the socket, or the user's limit of watches is reached.
  bool watch_socket(bool watched) UIW_REQUIRES(locks.receive);
  // Called when the session has begun. If the peer did not ask for peer-to-peer mode, a responder sends only after the
  // peer's first message, or, if the settings allow that, a moment after the peer has the MPA Reply. `by_owner`: if
  // true, nothing is read until first_may_come() is called for the owner of the connection (ConnectionOwner).
  void wait_for_first_message(bool by_owner) UIW_REQUIRES(locks.receive);
  // The peer's first message may be read from now on, see wait_for_first_message(). There must be a session.
  void first_may_come() UIW_REQUIRES(locks.receive) { session_->first_by_owner = false; }
  // It is now known whether the peer is uiw. A peer that is silent until the start-up deadline counts as another
  // implementation until its first message. `answer`: if true and the peer is uiw, the next message tells the peer that
  // this end is uiw, too. There must be a session.
  void peer_known(mpa::PeerKind peer, bool answer) override UIW_REQUIRES(locks.receive);

  // ---- With one of the locks held; there must be a session ----
  const rdmap::ConnectionRules& rules() const { return session_->rules; }
  mpa::PeerKind peer() const { return session_->reads.peer.load(std::memory_order_relaxed); }
  // Whether the peer has reported that it has no receive posted for a message.
  bool peer_waits() const { return session_->receiver.peer_waits(); }
  // Denies these rights to the peer, even if the registration of the memory grants them (Verbs draft section 8.1.2.2).
  void deny(std::uint32_t rights) { session_->receiver.deny(rights); }

  // ---- With the sender's lock held ----
  // Work has been posted, or earlier work may be sent now: sends it, unless the socket is full.
  void send(ProbePolicy policy = ProbePolicy::at_once) UIW_REQUIRES(locks.send) {
    if (!is_idle() && !full()) transmit(policy);
  }
  // Called by a thread that sends for the connection: sends all that may be sent now.
  void send_turn(Driver driver) UIW_REQUIRES(locks.send);
  // SendScheduler decides whether the next three functions send anything. The first one is called when the queue pair,
  // or its session, is about to end: deferred posts are sent.
  void send_posts_before_end() UIW_REQUIRES(locks.send);
  // Called when the program has polled and found nothing: sends deferred posts, and a probe (an RDMA Read of no octets)
  // if one is needed.
  void send_all_deferred() UIW_REQUIRES(locks.send);
  // Called when the timer of the thread "uiw-progress" has expired: sends posts that have been deferred for too long.
  void send_overdue_posts() UIW_REQUIRES(locks.send);
  // stop_for_good() and break_off() make the session end by RST. After stop_for_good() the caller itself ends the
  // session; break_off() asks the engine to call receive_turn(), which ends the session. There must be a session.
  void stop_for_good() UIW_REQUIRES(locks.send) { session_->dead = true; }
  void break_off() UIW_REQUIRES(locks.send);
  // Whether FIN has been sent.
  bool fin_sent() const UIW_REQUIRES(locks.send) { return !is_idle() && session_->fin_sent; }
  // Whether the program has disconnected, and FIN is not sent or the peer's TCP has not acknowledged everything yet.
  bool delivers_last() const UIW_REQUIRES(locks.send);
  // Whether the peer's host has acknowledged nothing for longer than `retry` while TCP retransmits; or, with
  // `has_to_answer` (the peer has no reason to be silent), whether no octets have moved for longer than both `retry`
  // and the timeout of start-up. There must be a session.
  bool unanswered(std::chrono::milliseconds retry, std::chrono::steady_clock::time_point now, bool has_to_answer)
      UIW_REQUIRES(locks.send);
  // If Sends and Writes complete when they are placed (the remote rule), and shared memory shows what the peer has
  // placed: completes that work.
  void take_placed() UIW_REQUIRES(locks.send);
  void note_progress(std::chrono::steady_clock::time_point now) UIW_REQUIRES(locks.send) {
    if (!is_idle()) session_->unmoved_since = now;
  }
  // Called when a post has also received for queue pairs, before it returns to the program: the time that receiving
  // took does not count as a pause between two posts.
  void note_return_to_program(std::uint64_t now) UIW_REQUIRES(locks.send) {
    if (!is_idle()) session_->scheduler.resume(now);
  }
  // Adds to the counters of the port what the stream has moved since the last call. `closes`: the socket is about to be
  // closed; what TCP has not sent yet goes out after that and is counted, too, unless the connection is reset.
  void count_traffic(bool closes) UIW_REQUIRES(locks.send);
  // The traffic of the session that is not in the counters of the port yet.
  StreamTraffic uncounted_traffic() const UIW_REQUIRES(locks.send);
  // Frees memory of the ring in shared memory that this end writes, if it has been idle since the previous call. True
  // if a later call may free memory.
  bool give_back_idle_memory() UIW_REQUIRES(locks.send);
  // Send queue entries from `sequence` on are not sent until another call of this function allows it.
  void hold_from(std::uint64_t sequence) UIW_REQUIRES(locks.send) {
    if (!is_idle()) session_->transmitter.hold_from(sequence);
  }
  // Entries from `sequence` on are sent a moment later than they could be, unless others are delayed already.
  void delay_from(std::uint64_t sequence) UIW_REQUIRES(locks.send);
  // Tells other threads, and the engine, whether there are deferred sends. There must be a session.
  void publish_deferred() UIW_REQUIRES(locks.send);
  // There must be a session.
  SendScheduler& scheduler() UIW_REQUIRES(locks.send) { return session_->scheduler; }
  rdmap::Transmitter& transmitter() UIW_REQUIRES(locks.send) { return session_->transmitter; }
  // Up to this number of octets one send is faster than several (ByteStream). There must be a session.
  std::size_t octets_in_one_send() const UIW_REQUIRES(locks.send) {
    return std::min(octets().octets_in_one_send(), mpa::Batch::limit(session_->rules.copies()));
  }
  // Whether sending has stopped because the stream accepts no more octets for now, or because the thread had no memory
  // for its buffers. To be called with either lock held. There must be a session.
  bool full() const { return session_->send_state.load(std::memory_order_relaxed) == SendState::socket_full; }
  // To be called when the program has posted work. There must be a session.
  void note_post() UIW_REQUIRES(locks.send) { session_->piggybacking.posted(); }

 private:
  enum class SendState : std::uint8_t {
    idle,         // no thread is sending
    sending,      // a thread is sending, with the sender's lock held
    send_again,   // as `sending`, and another thread has delegated a request to that thread
    socket_full,  // no thread is sending: the stream takes no more for now, or there was no memory
  };
  // The time between the acknowledgement of the MPA Reply by the peer's TCP and the first message of this end.
  static constexpr std::chrono::milliseconds kReplyTime{20};

  struct Session {
    Session(Connection& of, const rdmap::ConnectionRules& agreed, std::shared_ptr<ConnectionOwner> owned_by);

    const std::uint64_t number;  // unique in the process
    const rdmap::ConnectionRules rules;
    std::shared_ptr<ConnectionOwner> owner;  // null if there is none, or once it has been told of the end
    // Opened and closed with both locks held. The TCP connection stays open until the session ends, even if the octets
    // go through shared memory.
    TcpStream socket;
    std::unique_ptr<SharedStream> shared;  // null: the octets go by TCP
    alignas(64) rdmap::SharedReads reads;
    Movement movement;
    bool giving_up = false;
    bool speaks_first = false;  // this end, a responder, may send before the peer's first message

    // The members below need the sender's lock, unless they are atomic.
    alignas(64) rdmap::Transmitter transmitter;
    std::atomic<SendState> send_state{SendState::idle};
    SendScheduler scheduler;
    bool dead = false;  // nothing may be written to the socket any more
    bool fin_sent = false;
    bool send_error_reported = false;  // a completion of the send queue has reported the error
    // Set with both locks held, once the octets go through shared memory; `shared` may be null again by then.
    // follows_peer: this end has the remote rule, so the peer's position completes its work. tells_placed: the peer has
    // the remote rule, and needs this end's position.
    bool follows_peer = false, tells_placed = false;
    StreamTraffic counted;  // the traffic that count_traffic() has counted
    std::atomic<bool> send_error{false};
    // If follows_peer: work completes once the peer has placed the octets before this position (see take_placed()).
    std::atomic<std::uint64_t> awaited_position{rdmap::PlacementTracker::kNowhere};
    std::uint64_t moved = 0;  // octets acknowledged and received, when unanswered() compared them last
    std::chrono::steady_clock::time_point unmoved_since;

    // The members below need the receiver's lock.
    alignas(64) rdmap::Receiver receiver;
    mpa::Deframer deframer;
    ReadAhead read_ahead;
    std::uint64_t pauses = 0;
    bool transmit_wanted = false;
    bool answer_wanted = false;  // a probe, by which the peer asks whether its work is placed, is to be answered
    Piggybacking piggybacking;
    ExpectedMessage expected_message;
    bool first_by_owner = false;
    bool established = false;
    bool way_decided = false;  // it is known whether the octets go through shared memory or TCP
    bool drop_logged = false;  // answer_dropped() has written its line to the log
    bool peer_wants_reports = false;
    bool rnr_report_due = false;
    bool rnr_reported = false;  // an RNR report was sent, and no later report says that a receive is posted now
    bool watched = true;
    bool receive_error_reported = false;  // a completion of the receive queue has reported the error
  };

  ByteStream& octets() { return session_->shared ? static_cast<ByteStream&>(*session_->shared) : session_->socket; }
  const ByteStream& octets() const {
    return session_->shared ? static_cast<const ByteStream&>(*session_->shared) : session_->socket;
  }
  // Calls `function` on the thread "uiw-cm" after `delay`, with the receiver's lock held, unless by then the queue pair
  // is gone, or this session was abandoned or replaced. False if there is no memory for the timer.
  using Late = void (Connection::*)(std::uint64_t argument);
  bool later(std::chrono::milliseconds delay, Late function, std::uint64_t argument);
  void speak_first(std::uint64_t acknowledged) UIW_REQUIRES(locks.receive);
  void send_delayed(std::uint64_t) UIW_REQUIRES(locks.receive);
  void report_rnr_again(std::uint64_t pauses) UIW_REQUIRES(locks.receive);
  // `looks`: how often this timer has expired in this session, this time included.
  void stop_lingering(std::uint64_t looks) UIW_REQUIRES(locks.receive);
  void stop_closing(std::uint64_t) UIW_REQUIRES(locks.receive);
  void give_up(std::uint64_t pauses) UIW_REQUIRES(locks.receive);

  // ---- send.cc ----
  // Sends all that may be sent now. Unlike send(), tries even if the socket was full. There must be a session.
  void transmit(ProbePolicy policy = ProbePolicy::at_once) UIW_REQUIRES(locks.send);
  bool is_done() const UIW_REQUIRES(locks.send) { return session_->fin_sent || session_->dead; }
  void forget_deferred() UIW_REQUIRES(locks.send);
  bool try_stop(SendState to) UIW_REQUIRES(locks.send);
  void note_error() UIW_REQUIRES(locks.send);
  void finish_sending() UIW_REQUIRES(locks.send);
  ProbePolicy probe_policy(Driver driver) const UIW_REQUIRES(locks.send);
  // Hands a request to send to the thread that is sending now, which makes another pass before it stops, so the caller
  // need not wait for the lock. False if no thread is sending, or the session does not run any more; then the caller
  // itself has to send, with the sender's lock.
  bool delegate_to_sending_thread() UIW_REQUIRES(locks.receive);
  // Reports the completions of the Sends that a received message may answer. Called before the receive of that message
  // completes, if both queues have one completion queue, or if `follows_peer`. If Sends complete when TCP has taken
  // them (the local rule), waits until the thread that is sending now, if any, has reported them. By the remote rule
  // without shared memory this does nothing.
  void wait_for_sends() UIW_REQUIRES(locks.receive);
  // Whether an error was found while sending, for which the caller has to end the session; true once for each error.
  // Each receive_turn() calls this, so it writes only if there is an error. Once note_error() has stored the error, it
  // requests another call of receive_turn(), and that call sees an error that this load misses.
  bool take_error() UIW_REQUIRES(locks.receive) {
    if (!session_->send_error.load(std::memory_order_acquire)) return false;
    session_->send_error = false;
    return true;
  }
  bool await_placement() UIW_REQUIRES(locks.send);
  bool tells_placed() const { return session_->tells_placed && session_->shared; }
  void note_placed() UIW_REQUIRES(locks.receive) {
    if (tells_placed()) session_->shared->note_placed(session_->deframer.taken());
  }
  // Whether this end has placed octets and has not told the peer so yet (shared memory only).
  bool has_to_say() const { return tells_placed() && session_->shared->has_to_say(); }
  void say_placed() {
    if (has_to_say()) session_->shared->say_placed();
  }
  // Whether take_placed() would complete anything.
  bool peer_has_placed() const {
    const std::uint64_t awaited = session_->awaited_position.load();
    return awaited != rdmap::PlacementTracker::kNowhere && session_->shared &&
           session_->shared->placed_by_peer() >= awaited;
  }
  // Whether all that has been sent reaches the peer even if this process ends now: the peer's TCP has acknowledged it,
  // or it is in shared memory. Takes no lock.
  bool all_acknowledged() const;
  // Whether the sending of work has failed.
  bool has_failed() UIW_REQUIRES(locks.receive) UIW_EXCLUDES(locks.send);
  // Whether work of ours or a request of the peer would be left unfinished if the peer closed now.
  bool awaits_peer() UIW_REQUIRES(locks.receive) UIW_EXCLUDES(locks.send);
  // For a connection that is lost, or that the peer has closed. If Sends and Writes complete when they are placed (the
  // remote rule): completes unsignaled work at the head of the queue, and returns the oldest entry that was sent and is
  // not confirmed, if there is one. Otherwise returns no value.
  std::optional<std::uint64_t> first_unconfirmed() UIW_REQUIRES(locks.receive) UIW_EXCLUDES(locks.send);

  // ---- receive.cc ----
  // The functions of rdmap::ReceiveHost.
  bool next_receive(rdmap::ReceiveBuffer& buffer) override UIW_REQUIRES(locks.receive);
  void receive_complete(const rdmap::ReceiveBuffer& buffer, rdmap::Status status, const Message& message) override
      UIW_REQUIRES(locks.receive);
  void read_complete() override UIW_REQUIRES(locks.receive);
  void note_confirmed() UIW_REQUIRES(locks.receive, locks.send);
  void answer_dropped(std::size_t octets) override UIW_REQUIRES(locks.receive);
  void read_requested(bool probe) override UIW_REQUIRES(locks.receive) {
    (probe ? session_->answer_wanted : session_->transmit_wanted) = true;
  }
  void write_comes(const Part& part) override UIW_REQUIRES(locks.receive) { work_->write_comes(part); }
  void answer_comes(std::uint64_t sequence) override UIW_REQUIRES(locks.receive) {
    if (sequence >= sends_->head()) work_->answer_comes(sends_->at(sequence).id);
  }
  void progress_reported(const rdmap::Progress& progress) override UIW_REQUIRES(locks.receive);
  const void* choose_queue(std::uint64_t number) override UIW_REQUIRES(locks.receive) {
    return work_->choose_queue(number);
  }
  void reports_wanted() override UIW_REQUIRES(locks.receive);
  std::optional<rdmap::ErrorCode> invalidate(rdmap::Stag stag) override UIW_REQUIRES(locks.receive) {
    return work_->invalidate(stag);
  }

  SendScheduler::AnswerConditions answer_conditions() UIW_REQUIRES(locks.receive);
  bool receive_and_complete(Driver driver) UIW_REQUIRES(locks.receive);
  bool awaits_message(Driver driver) UIW_REQUIRES(locks.receive);
  bool receive(Driver driver) UIW_REQUIRES(locks.receive);
  bool receive_available(Driver driver, IoScratch& io) UIW_REQUIRES(locks.receive);
  ssize_t read(IoScratch& io, Octets& rest, bool& room_filled) UIW_REQUIRES(locks.receive);
  bool take(std::size_t filled, Octets rest) UIW_REQUIRES(locks.receive);
  bool drop_received() UIW_REQUIRES(locks.receive);
  bool resume() UIW_REQUIRES(locks.receive);
  bool pause(Octets rest) UIW_REQUIRES(locks.receive);
  void set_receive_stalled(bool stalled) UIW_REQUIRES(locks.receive);
  bool take_octets(Octets octets) UIW_REQUIRES(locks.receive);
  bool take_result(mpa::Deframer::Result result, Octets rest) UIW_REQUIRES(locks.receive);
  bool heard() const UIW_REQUIRES(locks.receive);
  void log_way(bool shared_memory) const;
  void note_decision() UIW_REQUIRES(locks.receive);
  void note_first_message() UIW_REQUIRES(locks.receive) {
    if (!session_->established) look_for_first_message();
  }
  void look_for_first_message() UIW_REQUIRES(locks.receive);
  void answer_last() UIW_REQUIRES(locks.receive);  // answers what has arrived, before our FIN
  void watch_for_end() UIW_REQUIRES(locks.receive);
  // Whether the peer accepts progress reports, since its Sends and Writes complete when they are placed.
  bool takes_reports() const UIW_REQUIRES(locks.receive) {
    return session_->rules.manual || session_->peer_wants_reports;
  }
  void report(rdmap::Stag occasion) UIW_REQUIRES(locks.receive);
  // Before this end leaves the connection: reports how much of the peer's work has been placed, if the peer accepts
  // reports.
  void report_last() UIW_REQUIRES(locks.receive);
  void report_rnr() UIW_REQUIRES(locks.receive);
  void report_rnr_later() UIW_REQUIRES(locks.receive);
  // The session is over: drops octets that were read and not processed.
  void stop_receiving() UIW_REQUIRES(locks.receive);

  // ---- end.cc ----
  void log_end(LogLevel level, const char* why) const;
  Movement::Counters counters() const UIW_REQUIRES(locks.receive, locks.send);
  void peer_closed(bool broken) UIW_REQUIRES(locks.receive);  // `broken`: TCP ended without FIN
  // A Terminate of the peer has arrived.
  void peer_terminated(const rdmap::Terminate& terminate) UIW_REQUIRES(locks.receive);
  void received_error(const rdmap::Terminate& terminate) UIW_REQUIRES(locks.receive);  // `terminate` says what is wrong
  void end_lingering() UIW_REQUIRES(locks.receive);
  void give_up_later() UIW_REQUIRES(locks.receive);
  void peer_left(bool broken) UIW_REQUIRES(locks.receive);
  void end_with(const rdmap::Terminate& terminate, bool peer_gone = false) UIW_REQUIRES(locks.receive);
  void end_for_send_error(bool linger) UIW_REQUIRES(locks.receive);
  // Completes `culprit` with `status`, flushes all other work, and sets the state of the queue pair to ERR. If this end
  // has failed to send some work, and `culprit` is not older than that work, then that work completes in error, with
  // the status of its own error, instead of `culprit`. `linger` keeps the session's socket until the stream has
  // accepted the FPDU in progress, a Terminate, if one is due, and FIN, or stop_lingering() gives up.
  void end(std::optional<std::uint64_t> culprit, rdmap::Status status, bool linger) UIW_REQUIRES(locks.receive);
  void end_by_reset() UIW_REQUIRES(locks.receive);
  void report_lost() UIW_REQUIRES(locks.receive);
  void let_go_of_socket() UIW_REQUIRES(locks.receive, locks.send);
  void tell_owner() UIW_REQUIRES(locks.receive);

  Engine& engine_;
  const Find find_;
  ConnectionWork* work_ = nullptr;
  ConnectionHost* host_ = nullptr;
  rdmap::SendQueue* sends_ = nullptr;
  const ddp::Accessor* memory_ = nullptr;
  std::uint32_t number_ = 0;  // of the queue pair
  std::atomic<Phase> phase_{Phase::idle};
  // Kept while the phase is idle, until RESET or the next session: the thread that has abandoned the session may still
  // be inside functions of the session.
  std::optional<Session> session_;
};

}  // namespace uiw::provider
