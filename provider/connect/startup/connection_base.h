// SPDX-License-Identifier: MIT
// What both ends of a start-up have in common: the socket, the lock, the deadline, the step by which the stream goes to
// its queue pair, and the news of its end.
//
// Ownership: a connection owns its socket until hand_over() gives it to the queue pair, whose stream then keeps the
// connection alive until it has ended. Before that its consumer does; CmLoop holds it weakly.
//
// Threads and locks: ready() and run() come on the thread of CmLoop, the functions of Connection on any thread, those
// of StreamOwner on any thread with locks of the stream held, which is why they only leave a note for run(). Every
// member is used with mutex_ held, but for the two notes, and for who is told that it has failed, once that is settled.
// The lock is taken before those of a queue pair, and is let go of before an observer is called: who is given a
// std::unique_lock may return without it.
//
// Errors: a connection that is being set up fails with ENOMEM where there is no memory for its next step.
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "mpa/startup.h"
#include "mpa/tcp_stream.h"
#include "provider/connect/connection.h"
#include "provider/connect/startup/startup_frame.h"
#include "provider/process/cm_loop.h"
#include "provider/process/mutex.h"
#include "provider/stream/stream_owner.h"

namespace uiw::provider {

class Attachable;

class ConnectionBase : public Connection,
                       public StreamOwner,
                       public CmLoop::Handler,
                       public CmLoop::TimedTask,
                       public std::enable_shared_from_this<ConnectionBase> {
 public:
  ~ConnectionBase() override;

  // EINVAL: they are for calls that come in.
  int accept(const ConnectionParameters& own, std::weak_ptr<ConnectionObserver> observer) override;
  int reject(const std::vector<std::byte>& private_data) override;

  int disconnect() override;
  sockaddr_storage local_address() const override;
  sockaddr_storage remote_address() const override;

  void stream_established() noexcept override;
  void stream_ended() noexcept override;

  void ready(std::uint32_t epoll_events) override;
  void run() override;

 protected:
  enum class State { connecting, awaiting_reply, awaiting_request, requested, attached, established, over };

  ConnectionBase(mpa::TcpStream&& socket, State state);

  // The socket has something to read, or has connected.
  virtual void socket_ready(std::unique_lock<Mutex>& lock) = 0;
  // What only the start-up needed goes: the stream stands.
  virtual void drop_startup() = 0;
  // Without the lock: the start-up has failed.
  virtual void report_failure() {}

  template <typename Step>
  void without_exceptions(Step step) {
    std::unique_lock lock(mutex_);
    try {
      step(lock);
    } catch (const std::exception&) {
      if (!lock.owns_lock()) lock.lock();
      if (state_ != State::attached && state_ != State::established) fail(lock, ENOMEM, nullptr);
    }
  }

  mpa::Proposal proposal_of(const ConnectionParameters& own) const;
  // Its start-up frame as the consumer is shown it.
  ConnectionParameters parameters_of_peer() const;
  void remember_addresses();
  // Replaces the one before. The consumer's time to think about a request has none.
  void start_deadline();
  bool send_whole(const std::vector<std::byte>& octets);

  // The stream goes to its queue pair: 0, or the errno of what hindered it, and the socket has been reset.
  int hand_over(Attachable& qp, const mpa::Agreement& agreement, bool initiator);
  // The stream stands, and nothing of its start-up is needed any more. Returns what the peer has said.
  ConnectionParameters end_startup();
  void fail(std::unique_lock<Mutex>& lock, int error, const ConnectionParameters* peer);

  mutable Mutex mutex_;
  State state_;
  mpa::TcpStream socket_;
  StartupFrame frame_;
  sockaddr_storage local_{}, remote_{};
  ConnectionParameters own_, peer_parameters_;
  std::weak_ptr<ConnectionObserver> observer_;
  mpa::PeerSaid said_;
  unsigned revision_ = 2;

 private:
  void deadline(std::unique_lock<Mutex>& lock);
  void abort_stream();
  void on_established(std::unique_lock<Mutex>& lock);
  void on_ended(std::unique_lock<Mutex>& lock);

  std::optional<CmLoop::Clock::time_point> deadline_;
  std::atomic<bool> stream_stands_{false}, stream_over_{false};  // news of the queue pair
};

}  // namespace uiw::provider
