// SPDX-License-Identifier: MIT
// While an event of a queue pair's socket is handled, the resulting completions can be polled but cause no event of
// their completion queue. So a sleeping program is woken only after the answers to the peer are sent: an adapter
// acknowledges a message before its program can know of it, so the program's next message must not overtake the answer.
//
// This affects only completions pushed by the thread that handles the event. Other threads handle events of other queue
// pairs at the same time; if theirs counted, too, there might never be a moment for the event of the completion queue.
#pragma once

#include <cstdint>

namespace uiw::provider {

class Cq;

class SuppressedNotifications {
 public:
  // `cq`, unless it is null, must remain live as long as this object. A thread may have several, one inside the other;
  // the innermost counts.
  explicit SuppressedNotifications(Cq* cq) : cq_(cq), outer_(innermost) { innermost = this; }
  // Counts the completions for the queue's event.
  ~SuppressedNotifications();
  SuppressedNotifications(const SuppressedNotifications&) = delete;
  SuppressedNotifications& operator=(const SuppressedNotifications&) = delete;

 private:
  friend class Cq;
  static inline constinit thread_local SuppressedNotifications* innermost = nullptr;

  Cq* const cq_;
  SuppressedNotifications* const outer_;
  // Used with the producer's lock of the queue held: the number of completions for which an event was requested,
  // whether one of them has failed, and the number of the request that was in force, for which they count.
  unsigned completions_ = 0;
  bool failed_ = false;
  std::uint64_t request_ = 0;
};

}  // namespace uiw::provider
