// SPDX-License-Identifier: MIT
// Holds back completion events while a thread sends and receives for a queue pair because of an event, not in a poll of
// the program. Completions that the thread pushes to the completion queue of receives can be polled at once, but the
// completion event is written only after the answers to the peer have been sent. So a sleeping program wakes up after
// the answers: an adapter acknowledges a message before its program can know of the message, so the program's next
// message must not overtake the answer.
//
// An object of this class affects only the completions that its own thread pushes. Other threads push completions of
// other queue pairs at the same time. If events were held back for these, too, the event might never be written.
#pragma once

#include <cstdint>

namespace uiw::provider {

class Cq;

class SuppressedNotifications {
 public:
  // `cq`, unless it is null, must remain live as long as this object. A thread may have several of these objects, one
  // inside the other; only the innermost has an effect.
  explicit SuppressedNotifications(Cq* cq) : cq_(cq), outer_(innermost) { innermost = this; }
  // Counts the completions that were held back for the requested event, and writes the event unless moderation delays
  // it or it has been given meanwhile.
  ~SuppressedNotifications();
  SuppressedNotifications(const SuppressedNotifications&) = delete;
  SuppressedNotifications& operator=(const SuppressedNotifications&) = delete;

 private:
  friend class Cq;
  static inline constinit thread_local SuppressedNotifications* innermost = nullptr;

  Cq* const cq_;
  SuppressedNotifications* const outer_;
  // The number of completions for which an event was requested, whether one of them has failed, and the number of that
  // request (Cq::requests_answered_). Used with the queue's producer lock held.
  unsigned completions_ = 0;
  bool failed_ = false;
  std::uint64_t request_ = 0;
};

}  // namespace uiw::provider
