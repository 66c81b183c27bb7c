// SPDX-License-Identifier: MIT
// Epoll sets for completion channels, nested in the epoll set of an engine. If several threads of a program wait, each
// for a channel of its own, the sockets of a channel's queue pairs are in one of these sets. The thread that waits for
// the channel also waits on the set, and sends and receives on its sockets: a message wakes that thread and no other.
// (If there is more to read than that thread reads at once, the thread "uiw-progress" reads the rest.) While no thread
// waits on a set, the set reports to the engine's set, so that "uiw-progress" and polls get its events.
//
// Queue pairs that share memory with a peer on this host are in none of these sets. Their peers wake this end through
// one socket for all queue pairs of the context, so a peer cannot choose the thread that waits for a certain channel.
// The thread "uiw-progress" receives for these queue pairs: each time that it wakes, it serves several messages.
//
// A set is made when a thread first waits on it, and is kept. At most kMost sets exist, to save descriptors: channels
// whose numbers are equal modulo kMost share a set. Thread-safe, unless said otherwise.
#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "provider/progress/busy_wait.h"
#include "provider/progress/driven.h"

namespace uiw::provider {

class ChannelSets {
 public:
  static constexpr int kMost = 64;
  static constexpr int kNone = -1;  // stands for the channel of a queue pair that has none

  struct Set {
    std::atomic<int> fd{-1};
    std::atomic<bool> waited{false};   // a thread waits on the set, and sends and receives on its sockets
    std::atomic<pthread_t> waiter{};   // that thread, while `waited`
    std::atomic<unsigned> members{0};  // queue pairs whose sockets belong in the set
    BusyWait busy_wait;                // of the waiting thread
    Mutex driving;                     // held by open() and close(), and while events of the set are taken
    std::atomic<bool> refused{false};  // the set could not be made, and is not tried again
  };

  // `engine_set` contains the descriptor of the engine's epoll set, or -1, and must remain live as long as this object.
  explicit ChannelSets(const std::atomic<int>& engine_set) : engine_set_(engine_set) {}
  ~ChannelSets() { close(); }
  ChannelSets(const ChannelSets&) = delete;
  ChannelSets& operator=(const ChannelSets&) = delete;

  // As epoll_wait() on the engine's set, but not a cancellation point. An event of a nested set is replaced by that
  // set's events.
  int wait(epoll_event* events, int most, int milliseconds) const;
  // Takes the events of one set without waiting.
  int take(const Set& set, epoll_event* events, int most) const;

  // After join(), the socket of the queue pair belongs in the set of its channel; after part(), in the engine's set.
  void join(Driven& qp);
  void part(Driven& qp);
  // Returns the set of a channel. If there is none yet, makes it and sets `made`. Null if no queue pair belongs in the
  // set, or if the set cannot be made.
  Set* open(int number, bool& made);
  bool has(int number) const { return number >= 0 && sets_[index(number)].fd.load(std::memory_order_relaxed) >= 0; }
  // True: until leave(), the calling thread waits on the set, and sends and receives. False: another thread already
  // does so.
  bool enter(Set& set) const;
  void leave(Set& set) const;

  static constexpr std::uint64_t bit(int number) { return std::uint64_t{1} << index(number); }

  // Adds a descriptor to the set of the channel, or to the engine's set if the channel has no set. If the descriptor is
  // there already, epoll reports its pending events again. Returns 0 or an errno.
  int watch(int number, int fd, epoll_event event) const;
  void release(int fd) const;

  // To be called only while no other thread waits on one of the epoll sets or calls watch(). close() closes the epoll
  // sets. forget() only resets the state: it is called when the program has closed the descriptors of the sets, and
  // after close() in the child of a fork.
  void close();
  void forget();

 private:
  void report(const Set& set, unsigned events) const;
  static constexpr unsigned index(int number) { return static_cast<unsigned>(number) % kMost; }

  // The bit of epoll_event::data that marks an event of a nested set; the low bits are the set's number. The numbers of
  // queue pairs have 32 bits, so none of them has this bit.
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 40;

  std::array<Set, kMost> sets_;
  const std::atomic<int>& engine_set_;
};

}  // namespace uiw::provider
