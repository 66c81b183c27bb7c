// SPDX-License-Identifier: MIT
// Epoll sets for completion channels, inside the set of an engine. Where several threads of a program wait, each for a
// channel of its own, the sockets of a channel's queue pairs are in one of these sets. The thread that waits for the
// channel waits for the set, too, and drives: a message wakes that thread and no other. While no thread waits for it, a
// set reports to that of the engine, so that "uiw-progress" and polls get its events.
//
// Peers on this host ring for many queue pairs at a time, so "uiw-progress" drives where several threads wait for
// those: each of its wake-ups is for several messages.
//
// A set is made when a thread waits for it first, and stays. There are as many as descriptors can be spared for;
// channels have numbers, and share a set where there are more of them. Thread-safe, where not said otherwise.
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
  static constexpr int kNone = -1;  // the number of what belongs to no channel

  struct Set {
    std::atomic<int> fd{-1};
    std::atomic<bool> waited{false};   // a thread waits for it and drives
    std::atomic<pthread_t> waiter{};   // while it is `waited`
    std::atomic<unsigned> members{0};  // queue pairs whose sockets are to be in it
    BusyWait busy_wait;                // of that thread
    Mutex driving;                     // held by who takes its events, and by close()
    std::atomic<bool> refused{false};  // the system has no descriptor for it
  };

  // `engine_set` has the descriptor of the engine's set, or -1, and remains live as long as this.
  explicit ChannelSets(const std::atomic<int>& engine_set) : engine_set_(engine_set) {}
  ~ChannelSets() { close(); }
  ChannelSets(const ChannelSets&) = delete;
  ChannelSets& operator=(const ChannelSets&) = delete;

  // As epoll_wait() for the set of the engine, but no cancellation point. Events of one of these sets come in its
  // place.
  int wait(epoll_event* events, int most, int milliseconds) const;
  // Takes the events of one set, as epoll_wait() that does not wait.
  int take(const Set& set, epoll_event* events, int most) const;

  // From here on the socket of the queue pair is to be in the set of its channel; from part() on, in the engine's.
  void join(Driven& qp);
  void part(Driven& qp);
  // The set of a channel, which is made where there is none; `made` is set then. Null without members.
  Set* open(int number, bool& made);
  bool has(int number) const { return number >= 0 && sets_[index(number)].fd.load(std::memory_order_relaxed) >= 0; }
  // True: the calling thread waits for the set and drives until leave(). False: another one does.
  bool enter(Set& set) const;
  void leave(Set& set) const;

  static constexpr std::uint64_t bit(int number) { return std::uint64_t{1} << index(number); }

  // Has epoll report the events of a descriptor, again where it does already: in the set of the channel where there is
  // one, else in that of the engine. 0 or an errno.
  int watch(int number, int fd, epoll_event event) const;
  void release(int fd) const;

  // Only while nobody waits or watches. forget() is for descriptors that are another file's meanwhile.
  void close();
  void forget();

 private:
  void report(const Set& set, unsigned events) const;
  static constexpr unsigned index(int number) { return static_cast<unsigned>(number) % kMost; }

  // Of events in the engine's set, beside the number of one of these: no queue pair has such a number.
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 40;

  std::array<Set, kMost> sets_;
  const std::atomic<int>& engine_set_;
};

}  // namespace uiw::provider
