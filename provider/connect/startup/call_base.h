// SPDX-License-Identifier: MIT
// The common part of both sides of a connection start-up: the socket, the lock, the deadline, the step that gives the
// stream to its queue pair, and the report of the stream's end.
//
// Ownership: a call owns its socket until hand_over() gives the socket to the queue pair. Until then the consumer
// (rdma_cm or connect/manual/) owns the call; from then on the stream keeps the call alive until the stream ends.
// CmLoop keeps a weak reference.
//
// Order: if a peer establishes or closes several connections in turn, the thread of CmLoop reports these events in the
// same order, although other threads read the streams. To do so, the thread of CmLoop watches the socket of a stream
// that rdma_cm has accepted, and reads the first message itself. A request is reported after all events that were
// pending when the request was read (CmLoop::post_behind()). Whichever thread sees the end of a stream posts the report
// of it to CmLoop.
//
// Threads and locks: ready() and run() are called on the thread of CmLoop, the functions of Call on any thread. The
// functions of ConnectionOwner are called on any thread with locks of the stream held, so they only set a flag and post
// run(). mutex_ is taken before the locks of a queue pair. mutex_ is released before an observer is called, so a
// function that gets a UniqueLock may return with the lock released.
//
// Errors: a call fails with ENOMEM if there is no memory for the next step of its set-up.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/stream/shared_stream.h"
#include "base/stream/tcp_stream.h"
#include "mpa/startup.h"
#include "provider/connect/call.h"
#include "provider/connect/rendezvous.h"
#include "provider/connect/startup/startup_frame.h"
#include "provider/connection/connection_owner.h"
#include "provider/process/cm_loop.h"

namespace uiw::provider {

class Attachable;
class Placeholder;

class CallBase : public Call,
                 public ConnectionOwner,
                 public CmLoop::Handler,
                 public CmLoop::TimedTask,
                 public std::enable_shared_from_this<CallBase> {
 public:
  ~CallBase() override;

  // EINVAL, since only incoming calls can be accepted or rejected.
  int accept(const CallParameters& own, std::weak_ptr<CallObserver> observer) override;
  int reject(const std::vector<std::byte>& private_data) override;

  int disconnect() override;
  void confirm() override;
  sockaddr_storage local_address() const override;
  sockaddr_storage remote_address() const override;

  void connection_established() noexcept override;
  void connection_ended() noexcept override;

  void ready(std::uint32_t epoll_events) override;
  void run() override;
  // Implements abandon() of Call and of CmLoop::Handler. Takes no lock, since the child of a fork has no other thread.
  void abandon() override UIW_NO_THREAD_SAFETY_ANALYSIS { socket_.close(); }

 protected:
  enum class State { connecting, awaiting_reply, awaiting_request, requested, attached, established, over };

  CallBase(TcpStream&& socket, State state);

  // Called when the socket is readable or has connected, and was not given to a stream yet.
  virtual void socket_ready(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_) = 0;
  // Called by end_startup() when the connection is established: frees the members of the derived class that only the
  // start-up needed.
  virtual void drop_startup() UIW_REQUIRES(mutex_) = 0;
  // Called when the start-up has failed.
  virtual void report_failure() UIW_EXCLUDES(mutex_) {}

  // Runs a step with mutex_ locked. If the step throws, the call fails with ENOMEM, unless it has given its stream to a
  // queue pair already. Without thread safety analysis, since a step may release the lock.
  template <typename Step>
  void without_exceptions(Step step) UIW_NO_THREAD_SAFETY_ANALYSIS {
    UniqueLock lock(mutex_);
    try {
      step(lock);
    } catch (const std::exception&) {
      if (!lock.owns_lock()) lock.lock();
      if (state_ != State::attached && state_ != State::established) fail(lock, ENOMEM, nullptr);
    }
  }
  // Calls an observer without the lock, as the last thing that a function does. Without thread safety analysis, since
  // the lock belongs to the caller.
  template <typename Report>
  void unlock_and(UniqueLock<Mutex>& lock, Report report) UIW_REQUIRES(mutex_) UIW_NO_THREAD_SAFETY_ANALYSIS {
    lock.unlock();
    report();
  }

  // The number of RDMA Reads by which the IRD and ORD of a proposal exceed the program's values. They are for probes:
  // Reads of no octets; their answers confirm that earlier work has been placed (RFC 5040 section 5.5).
  unsigned probes(const CallParameters& own) const UIW_REQUIRES(mutex_);
  mpa::Proposal proposal_of(const CallParameters& own) const UIW_REQUIRES(mutex_);
  // What the peer's start-up frame says, as CallObserver gets it.
  CallParameters parameters_of_peer() const UIW_REQUIRES(mutex_);
  void remember_addresses() UIW_REQUIRES(mutex_);
  // Starts a deadline for what the peer has to send next during start-up; it replaces an earlier deadline. There is no
  // deadline while the consumer decides on a request.
  void start_deadline() UIW_REQUIRES(mutex_);
  bool send_whole(const std::vector<std::byte>& octets) UIW_REQUIRES(mutex_);

  // The endpoint for the stream: the queue pair with the number in `own`. If there is no such queue pair, rdma_cm in
  // the RoCE view gets a Placeholder, which the call keeps. Null if there is no endpoint, or if the queue pair cannot
  // have a stream now. The result is valid inside the caller's ReadSection.
  Attachable* find_end(const CallParameters& own) UIW_REQUIRES(mutex_);
  // The endpoint that find_end() has found; null if it is gone.
  Attachable* end() const UIW_REQUIRES(mutex_);
  // Watches the socket of a stream of rdma_cm for the peer's first message; 0 or an errno. Throws std::bad_alloc. The
  // called side calls this before it replies. Otherwise the peer's first message might arrive unseen, and what the peer
  // does next on another connection would be reported first. unwatch_stream() stops watching; it is called while the
  // socket is open.
  int watch_for_first_message() UIW_REQUIRES(mutex_);
  void unwatch_stream();
  // To be called when the connection is established on the called side: by the peer's first message or, if no
  // ready-to-receive message was agreed on, by the reply. Makes the thread of CmLoop report this to the observer.
  void note_established() noexcept;
  // Gives the stream to its endpoint `qp`. 0 or an errno. After a failure the socket is still in socket_.
  int hand_over(Attachable& qp, const mpa::Agreement& agreement, bool initiator, std::shared_ptr<SharedOffer> rings)
      UIW_REQUIRES(mutex_);
  // To be called when the connection is established: frees what only the start-up needed. Returns the parameters of the
  // peer.
  CallParameters end_startup() UIW_REQUIRES(mutex_);
  void fail(UniqueLock<Mutex>& lock, int error, const CallParameters* peer) UIW_REQUIRES(mutex_);

  mutable Mutex mutex_;
  State state_ UIW_GUARDED_BY(mutex_);
  TcpStream socket_ UIW_GUARDED_BY(mutex_);
  StartupFrame frame_ UIW_GUARDED_BY(mutex_);
  sockaddr_storage local_ UIW_GUARDED_BY(mutex_){}, remote_ UIW_GUARDED_BY(mutex_){};
  CallParameters own_ UIW_GUARDED_BY(mutex_), peer_parameters_ UIW_GUARDED_BY(mutex_);
  std::weak_ptr<CallObserver> observer_ UIW_GUARDED_BY(mutex_);
  mpa::PeerSaid said_ UIW_GUARDED_BY(mutex_);
  unsigned revision_ UIW_GUARDED_BY(mutex_) = 2;                       // of MPA, as in the request
  std::shared_ptr<Placeholder> placeholder_ UIW_GUARDED_BY(mutex_);    // in place of a queue pair
  std::unique_ptr<RingRendezvous> rendezvous_ UIW_GUARDED_BY(mutex_);  // at the caller, until the reply has arrived

 private:
  bool hear_stream();
  void deadline(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_);
  void no_first_message();
  void log_failure(int error, bool rejected, bool answer_awaited) const UIW_REQUIRES(mutex_);
  void on_established(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_);
  void on_ended(UniqueLock<Mutex>& lock) UIW_REQUIRES(mutex_);

  std::optional<CmLoop::Clock::time_point> deadline_ UIW_GUARDED_BY(mutex_);
  int end_error_ UIW_GUARDED_BY(mutex_) = ECONNRESET;                 // reported if a stream ends during start-up
  std::atomic<bool> stream_established_{false}, stream_over_{false};  // set by the stream, handled by run()
  std::atomic<int> watched_{-1};  // the stream's socket while this call watches it, else -1
};

}  // namespace uiw::provider
