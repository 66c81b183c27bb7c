// SPDX-License-Identifier: MIT
// What Checker does when the program requests events and waits for them.
#include <algorithm>
#include <new>
#include <utility>

#include "provider/check/checker.h"
#include "provider/check/text.h"

namespace uiw::provider::check {

void Checker::requests_event(const ibv_cq& cq, const void* caller) {
  if (off_) return;
  const Place place = Place::of_call(caller);
  const Locked lock(*this);
  const auto known = work_.completion_queues.find(&cq);
  if (known == work_.completion_queues.end() || !is_there(&cq)) return;
  CompletionQueue& queue = known->second;
  queue.request = place;
  queue.requester = std::this_thread::get_id();
  queue.requests = ++requests_;
  // What comes between here and the request makes no event either, but that is seldom.
  queue.pushed_before = questions_.look_at(cq).pushed;
}

Checker::Sleep Checker::begin_sleep(int channel, bool reads) noexcept {
  Sleep sleep;
  sleep.channel = channel;
  sleep.reads = reads;
  if (off_) return sleep;
  try {
    const Locked lock(*this);
    for (const auto& [handle, queue] : work_.completion_queues) {
      if (queue.channel != channel || !is_there(handle)) continue;
      const auto* const cq = static_cast<const ibv_cq*>(handle);
      sleep.seen.push_back({cq, questions_.look_at(*cq).pushed});
    }
  } catch (const std::bad_alloc&) {
    sleep.seen.clear();
  }
  return sleep;
}

// Completions that were there at the last look and are there still, which no event will announce. Another thread may
// poll them when it pleases, so only a queue counts that this thread has polled last.
void Checker::sleeps(Sleep& sleep) noexcept {
  if (off_) return;
  try {
    const Place place = Place::here();
    const auto self = std::this_thread::get_id();
    const Locked lock(*this);
    look_at_waits(nullptr, false);
    struct Waiting {
      const ibv_cq* cq;
      const CompletionQueue* queue;
      Questions::Completions now;
    };
    std::vector<Waiting> all;
    bool any_requested = false;
    for (Sleep::Seen& seen : sleep.seen) {
      const auto known = work_.completion_queues.find(seen.cq);
      if (known == work_.completion_queues.end() || !is_there(seen.cq)) continue;
      const Questions::Completions now = questions_.look_at(*seen.cq);
      any_requested = any_requested || now.requested;
      const bool stays = now.taken < std::exchange(seen.pushed, now.pushed);
      if (stays && objects_.find(seen.cq)->poller == self) all.push_back({seen.cq, &known->second, now});
    }
    for (const Waiting& one : all) {
      const CompletionQueue& queue = *one.queue;
      const Reports::At at{place, "waits for an event"};
      const std::uint64_t count = one.now.pushed - one.now.taken;
      const auto waits = [&](const char* why) {
        return text("a thread waits for an event of a completion queue that has %llu completion%s already, %s",
                    static_cast<unsigned long long>(count), count == 1 ? "" : "s", why);
      };
      if (one.now.requested && queue.requester == self && one.now.taken < queue.pushed_before) {
        report(FaultKind::event_missed, at, {queue.request, "requested"},
               [&] { return waits("from before it requested the event, and has not polled since"); });
      } else if (one.now.requested && one.now.solicited_only && queue.requester == self && !one.now.gave_events &&
                 !has_receives_beyond(one.cq, count)) {
        report(FaultKind::event_not_solicited, at, {queue.request, "requested"}, [&] {
          return waits("and has requested events of solicited completions only, of which it has had none");
        });
      } else if (sleep.reads && !any_requested) {
        // Perhaps the thread has requested an event of another queue instead.
        const CompletionQueue* other = nullptr;
        for (const auto& [cq, candidate] : work_.completion_queues) {
          const bool later = other == nullptr || candidate.requests > other->requests;
          if (candidate.requester == self && candidate.channel != sleep.channel && later) other = &candidate;
        }
        const bool instead = other != nullptr && other->requests > queue.requests;
        report(FaultKind::event_not_requested, at,
               instead ? Reports::At{other->request, "requested of another queue"}
                       : Reports::At{queue.requests != 0 ? queue.request : place_of(one.cq),
                                     queue.requests != 0 ? "requested the last event" : "created"},
               [&] { return waits("and has requested no event of it since the last one"); });
      }
    }
  } catch (const std::bad_alloc&) {
  }
}

// Whether receives are posted that complete to the queue, beyond those whose completions it may have already.
bool Checker::has_receives_beyond(const ibv_cq* cq, std::uint64_t completions) {
  std::uint64_t receives = 0;
  for (const auto& [handle, queue] : work_.queues) {
    if (queue.receive_cq != cq) continue;
    if (queue.receives_from != nullptr) return true;  // of a shared queue nobody knows where they will complete
    receives += queue.receives.size();
  }
  return receives > completions;
}

// The program polls for the completion of a request that was refused. Nothing else of the queue can complete.
void Checker::look_at_refused(const ibv_cq& cq) {
  const auto now = std::chrono::steady_clock::now();
  for (auto& [handle, known] : work_.queues) {
    Queue& queue = known;
    if (!queue.refused_at || queue.send_cq != &cq || !queue.sends.empty() || now - *queue.refused_at < kPatience)
      continue;
    report(FaultKind::post_ignored, {queue.refused, "refused"}, {place_of(handle), "created"}, [&] {
      return text(
          "a request to queue pair 0x%06x was refused (ENOMEM) and not posted again; all that was posted has "
          "completed, and the program polls on",
          queue.number);
    });
    --watched_;
    queue.refused_at.reset();
  }
}

}  // namespace uiw::provider::check
