// SPDX-License-Identifier: MIT
// Driven: the interface through which an engine works for a Qp or a DatagramPort, so that the engine needs no headers
// of queue pairs. progress() sends and receives octets; other functions send what has been deferred.
//
// Thread-safe. A queue pair that is found by its number, or in an engine's list, inside a ReadSection, lives until that
// section closes.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <exception>

#include "provider/progress/driver.h"
#include "provider/progress/turn_gate.h"

namespace uiw::provider {

class Driven {
 public:
  // The queue pair number, which is also the data of epoll events of the socket.
  virtual std::uint32_t number() const = 0;
  // Sends and receives what can be sent and received now. True if anything has arrived or work has completed. If a
  // stream lacks memory, it ends, and this returns true, too.
  virtual bool progress(Driver driver) noexcept = 0;
  // Ends the stream, since there is no memory for something that it needs.
  virtual void no_memory() noexcept = 0;
  // Makes epoll report events of the socket from now on (`watched`), or no longer; at first they are reported. Returns
  // false if there is no memory to watch the socket again.
  virtual bool watch_socket([[maybe_unused]] bool watched) { return true; }

  // ---- Deferred sends: posts that wait for the next posts, or a probe (an RDMA Read of no octets) ----
  // By default there are none. Deferred sends go out at the latest when the program waits for a completion. If another
  // thread holds the sender's lock, or has just posted, the functions that send may leave the sending to that thread.
  virtual bool has_deferred() const { return false; }
  virtual bool posts_wait() const { return false; }
  // The program polls: posts that wait are sent.
  virtual void send_waiting_posts() {}
  // The program has polled in vain: posts that wait are sent, and a probe if one is due.
  virtual void send_all_deferred() {}
  // Sends posts that have waited for too long. Called when the timer of the thread "uiw-progress" expires, and after
  // some posts.
  virtual void send_overdue_posts() {}
  // Gives back shared memory that has not been used for sending since the last call. Returns true if there may be more
  // to give back at the next call. Called about once a second as long as any queue pair of the context may have memory
  // to give back.
  virtual bool give_back_idle_memory() { return false; }

  // The number of the completion channel that gets the events of receives, or -1. Constant once Engine::add() is
  // called.
  int channel = -1;
  // The number of the channel while the socket is in that channel's set (ChannelSets), else -1.
  std::atomic<int> channel_set{-1};
  // This object's slot in the engine's DrivenList, which sets the value.
  std::atomic<std::uint32_t> slot{~std::uint32_t{0}};
  // Lets only one of several progress threads call progress() at a time.
  TurnGate gate;
  // epoll has reported an end or an error of the socket that was passed to Engine::add(). Set before gate.enter(), so
  // that the thread that is in progress() sees the flag at its next turn.
  std::atomic<bool> end_reported{false};
  // The argument of progress() after an event of the socket.
  Driver event_driver() const { return end_reported.load() ? Driver::event : Driver::arrival; }
  // Takes note of an event with these bits of epoll(7).
  void note_event(std::uint32_t bits) {
    if ((bits & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) end_reported.store(true);
  }
  // Polls in a row that have found nothing at this queue pair. Used only by the thread that holds Engine::drive_mutex_.
  unsigned idle_rounds = 0;

 protected:
  ~Driven() = default;
};

// Calls `function`, but lets no exception into a poll of the program or a thread of the library: if there is no memory
// for a stream, the stream ends.
template <typename Function>
void carry_out(Driven& qp, Function function) {
  try {
    function(qp);
  } catch (const std::exception&) {
    qp.no_memory();
  }
}

// Finds the queue pair with this number, or null. To be called inside a ReadSection.
using FindDriven = Driven* (*)(std::uint32_t number);

}  // namespace uiw::provider
