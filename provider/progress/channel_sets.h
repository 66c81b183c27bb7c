// SPDX-License-Identifier: MIT
// Epoll sets for completion channels, nested in the epoll set of an engine. If several threads of a program wait, each
// for a channel of its own, the sockets of a channel's queue pairs are in one of these sets. The thread that waits for
// the channel waits for the set, too, and drives: a message wakes that thread and no other. (If there is more to read
// than one turn takes, "uiw-progress" goes on.) While no thread waits for a set, the set reports to the engine's set,
// so that "uiw-progress" and polls get its events.
//
// Queue pairs that share memory with a peer on this host are in none of these sets. Such peers ring for many queue
// pairs at a time, so "uiw-progress" drives these: each of its wake-ups serves several messages.
//
// A set is made when a thread first waits for it, and stays. At most kMost sets exist, to save descriptors: channels
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
  static constexpr int kNone = -1;  // the number of a queue pair without a channel

  struct Set {
    std::atomic<int> fd{-1};
    std::atomic<bool> waited{false};   // a thread waits for the set and drives
    std::atomic<pthread_t> waiter{};   // while it is `waited`
    std::atomic<unsigned> members{0};  // queue pairs whose sockets are to be in it
    BusyWait busy_wait;                // of the waiting thread
    Mutex driving;                     // locked by the thread that takes the set's events, and by close()
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

  // join(): the socket of the queue pair belongs in the set of its channel from now on; part(): in the engine's.
  void join(Driven& qp);
  void part(Driven& qp);
  // The set of a channel, made if there is none yet (`made`). Null if no queue pair belongs in it, or if it cannot be
  // made.
  Set* open(int number, bool& made);
  bool has(int number) const { return number >= 0 && sets_[index(number)].fd.load(std::memory_order_relaxed) >= 0; }
  // True: the calling thread waits for the set and drives until leave(). False: another one does.
  bool enter(Set& set) const;
  void leave(Set& set) const;

  static constexpr std::uint64_t bit(int number) { return std::uint64_t{1} << index(number); }

  // Adds a descriptor to the set of the channel, or to the engine's if the channel has none. If the descriptor is there
  // already, epoll reports its pending events again. Returns 0 or an errno.
  int watch(int number, int fd, epoll_event event) const;
  void release(int fd) const;

  // Call these only while no thread waits or watches. forget() drops the descriptors without closing them, when they no
  // longer belong to this object.
  void close();
  void forget();

 private:
  void report(const Set& set, unsigned events) const;
  static constexpr unsigned index(int number) { return static_cast<unsigned>(number) % kMost; }

  // The bit of epoll_event::data that marks an event of a nested set; the low bits are the set's number. The numbers of
  // queue pairs have 32 bits, so none contains it.
  static constexpr std::uint64_t kTag = std::uint64_t{1} << 40;

  std::array<Set, kMost> sets_;
  const std::atomic<int>& engine_set_;
};

}  // namespace uiw::provider
