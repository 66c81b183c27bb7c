// SPDX-License-Identifier: MIT
// Decides when a stream sends something: now, or a little later together with what comes next. Every rule about that is
// a function here.
//
// The caller says what has happened: the program has posted, polls, or has polled in vain; octets have arrived; or the
// timer of the progress thread has expired. The caller gets a decision back, and carries it out. The scheduler sends
// nothing, takes no lock, and knows no engine, queue pair or stream. Times are monotonic nanoseconds and come from the
// caller. Reading the clock costs as much as a small post; so, if the time does not always matter, the caller passes a
// function that reads the clock, which is called only if the decision depends on it.
//
// Each stream has a scheduler; it is used with the sender's lock held. The static functions have no state: any thread
// may call them, with any lock or none. Two of the rules depend on what happened before. That state is kept by classes
// with files of their own: Coalescing (coalescing.h), a part of each scheduler, and Piggybacking (piggybacking.h), a
// part of each Connection, which needs the receiver's lock and whose result the caller passes in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "provider/progress/coalescing.h"
#include "provider/progress/driver.h"
#include "rdmap/transmit/placement_tracker.h"

namespace uiw::provider {

class SendScheduler {
 public:
  // When to send a probe behind the work that is sent now. A probe is an RDMA Read of no octets, whose answer says that
  // the work before it has been placed.
  using ProbePolicy = rdmap::PlacementTracker::ProbePolicy;
  // All that is due is sent now, with probes by this policy; empty: nothing is sent now.
  using Decision = std::optional<ProbePolicy>;

  // Whether the program comes back soon by itself, to send what has been deferred.
  struct Program {
    bool awaits_event = false;  // it may block on a completion channel, and does not poll before it has the event
    bool watched = false;       // the progress thread sees if the program stops polling, and then sends in its place
  };

  // ---- The policy for probes ----
  // A probe may be left to the next poll only where the program polls and is going to poll again.
  static constexpr ProbePolicy probe_policy(Driver driver, Program program) {
    const bool comes_back = driver == Driver::poll && !program.awaits_event && program.watched;
    return comes_back ? ProbePolicy::if_none_due : ProbePolicy::at_once;
  }
  // For a thread that posts, or sends what it has posted before. While completions are there for the thread to take,
  // it does not yet wait for the completions of its last posts. So the next probe may come after some more work
  // (by_stride).
  static constexpr ProbePolicy posters_probe_policy(Program program, bool completions_there) {
    const ProbePolicy policy = probe_policy(Driver::poll, program);
    return policy == ProbePolicy::if_none_due && completions_there ? ProbePolicy::by_stride : policy;
  }
  // A stream that is about to end sends its probes at once, so that their answers come before the end.
  static constexpr ProbePolicy stream_probe_policy(ProbePolicy policy, bool running) {
    return running ? policy : ProbePolicy::at_once;
  }

  // The policy of a thread that is sending when another thread leaves its own sending to it: perhaps that other thread
  // does not come back to send a probe.
  static constexpr ProbePolicy kDelegated = ProbePolicy::at_once;

  // ---- The program posts ----
  struct Post {
    unsigned requests = 0;
    std::uint64_t completions_taken = 0;  // how many the program has taken from the send completion queue so far
    bool remote_rule = false;             // Sends and Writes complete when the peer has placed them
    std::uint32_t queued = 0;             // requests that are not complete, these included
  };
  struct PostConditions {
    std::size_t octets = 0;    // of the posts
    bool running = false;      // the stream is neither closing nor in error
    bool socket_full = false;  // then posts are sent once the socket has room
    bool queue_full = false;   // the send queue has no room behind these posts
    bool awaits_event = false;
    std::size_t most_octets = 0;  // once the posts that wait have this many octets, no further post waits
  };
  struct PostTime {
    std::uint64_t now = 0;
    std::uint64_t active = 0;  // when this thread last posted or polled in vain, on any queue pair; 0: not known
  };
  enum class PostDecision : std::uint8_t {
    defer,        // the posts wait, as earlier posts do
    defer_first,  // the first posts that wait; the caller makes "uiw-progress" check them (Engine::watch_posts())
    send,
    send_in_burst,  // the posts are sent, and then resume() is called: the time of sending does not count as a pause
    send_and_look,  // as send_in_burst; and the calling thread looks at what has arrived from time to time
  };
  // A program with this many requests queued, whose completions depend on the peer, polls soon: so its posts, too, look
  // at what has arrived (send_and_look). A program with fewer may wait, without polling, for the peer to write into its
  // memory.
  static constexpr std::uint32_t kPollsSoon = 4;

  // `conditions()` returns PostConditions, and `time()` a PostTime. Most posts are not part of a burst, and need
  // neither.
  template <typename Conditions, typename Time>
  PostDecision posted(const Post& post, Conditions conditions, Time time) {
    const bool first = !coalescing_.waiting();
    if (coalescing_.posted(post.requests, post.completions_taken)) {
      const PostConditions now = conditions();
      coalescing_.add_octets(now.octets);
      if (may_defer(now)) {
        if (coalescing_.waits_too(now.most_octets)) return PostDecision::defer;
        const PostTime at = time();
        if (coalescing_.may_wait(at.now, now.most_octets, at.active))
          return first ? PostDecision::defer_first : PostDecision::defer;
      }
    }
    const bool polls_soon = post.remote_rule && post.queued >= kPollsSoon;
    if (coalescing_.without_pause() || polls_soon) return PostDecision::send_and_look;
    return coalescing_.in_burst() ? PostDecision::send_in_burst : PostDecision::send;
  }
  // Whether posts may wait: only if the program can post more and does not wait for an event, and only if the stream
  // could send the posts now.
  static constexpr bool may_defer(const PostConditions& conditions) {
    const bool sends = conditions.running && !conditions.socket_full;
    return sends && !conditions.queue_full && !conditions.awaits_event;
  }
  // The call that posted returns to the program now: the time that the call took does not count as a pause.
  void resume(std::uint64_t now) { coalescing_.resume(now); }
  std::uint64_t last_post() const { return coalescing_.last_post(); }

  // ---- Posts that wait ----
  bool posts_wait() const { return coalescing_.waiting(); }
  std::uint64_t posts_wait_since() const { return coalescing_.since(); }  // when the oldest was posted; 0: none waits
  // Called each time before the stream sends all that may be sent, whichever rule has decided that it sends.
  void sending_all() { coalescing_.sent(); }

  // The program polls, or needs room in the send queue: posts that wait are sent.
  Decision polled(ProbePolicy policy) const { return posts_wait() ? Decision(policy) : std::nullopt; }
  // The queue pair, or its stream, is about to end: posts that wait are sent before.
  Decision ending() const { return posts_wait() ? Decision(ProbePolicy::at_once) : std::nullopt; }
  // A thread sends for the stream, after a poll or an event: all that is due is sent. Posts that have waited for too
  // long when an event comes count as having waited in vain, since the program has neither posted nor polled.
  template <typename Clock>
  ProbePolicy turn(Driver driver, Program program, Clock clock) {
    if (driver != Driver::poll && posts_wait()) coalescing_.take_overdue(clock(), false);
    return probe_policy(driver, program);
  }
  // The timer of the progress thread has expired: posts that have waited for too long are sent. They do not count as
  // having waited in vain, since the program posts and polls, but may be busy with other queue pairs.
  template <typename Clock>
  Decision ticked(bool socket_full, Clock clock) {
    if (socket_full || !coalescing_.take_overdue(clock(), true)) return std::nullopt;
    return ProbePolicy::at_once;
  }

  // ---- Polls in vain ----
  // For this time after the first waiting post, a thread that only polls leaves the sending to the thread that posts.
  static constexpr std::uint64_t kPosterNs = 5'000;
  template <typename Clock>
  static constexpr bool left_to_poster(std::uint64_t posts_wait_since, bool is_poster, Clock clock) {
    return posts_wait_since != 0 && !is_poster && clock() < posts_wait_since + kPosterNs;
  }
  // Deferred sends of all queue pairs are sent once a poll has found no work at any queue pair, since then the program
  // waits. As one queue pair may always have work, they are also sent after this many polls that found some.
  static constexpr unsigned kBusyLooks = 16;
  static constexpr bool ends_deferral(bool found_work, unsigned busy_looks) {
    return !found_work || busy_looks >= kBusyLooks;
  }
  // The decision for each queue pair once ends_deferral() is true. `deferred`: the queue pair has posts that wait, or a
  // probe.
  static constexpr Decision polled_in_vain(bool deferred, bool socket_full) {
    return deferred && !socket_full ? Decision(ProbePolicy::at_once) : std::nullopt;
  }

  // ---- Octets have arrived ----
  enum class AnswerDecision : std::uint8_t {
    send,
    wait_for_post,       // the program is expected to post, and the answer is sent with that post
    look_for_more_once,  // read once more, then send: meanwhile the program may post, since it can see the message
  };
  struct AnswerConditions {
    bool post_expected = false;  // the result of Piggybacking::offer()
    bool more_due = false;       // something else has to be sent, too
    bool socket_full = false;
    bool awaits_event = false;
    bool reads = false;  // the stream runs, and does not wait until a receive is posted
    // True if the answer is a message. If it is a position in shared memory, telling it costs less than another look.
    bool by_message = false;
  };
  // When to send the answer to a peer that is waiting only to learn that its work has been placed.
  static constexpr AnswerDecision answer(Driver driver, const AnswerConditions& conditions) {
    if (!conditions.post_expected || conditions.more_due || conditions.socket_full) return AnswerDecision::send;
    if (driver == Driver::poll) return AnswerDecision::wait_for_post;
    const bool looks = conditions.reads && conditions.by_message && !conditions.awaits_event;
    return looks ? AnswerDecision::look_for_more_once : AnswerDecision::send;
  }
  // A peer that waits for answers may have stopped sending. After this many octets the answers are sent before more is
  // read.
  static constexpr std::size_t kMostUnanswered = 256 * 1024;
  static constexpr bool answers_before_reading_on(bool due, std::size_t octets) {
    return due && octets >= kMostUnanswered;
  }
  struct TurnConditions {
    bool due = false;          // the receiver has something to send
    bool socket_full = false;  // the socket was full, and may have room again meanwhile
    bool deferred = false;
    bool ends = false;  // the stream is ending, and a thread is sending or the socket is full
  };
  // Whether a thread that has received for the stream also sends. After a poll deferred sends are left to
  // polled_in_vain(). After an event they are sent, since the next event may be a long time away.
  static constexpr bool sender_is_next(Driver driver, const TurnConditions& conditions) {
    const bool by_event = driver != Driver::poll && (conditions.deferred || conditions.ends);
    return conditions.due || conditions.socket_full || by_event;
  }

 private:
  Coalescing coalescing_;
};

}  // namespace uiw::provider
