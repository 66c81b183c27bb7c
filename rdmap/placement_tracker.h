// SPDX-License-Identifier: MIT
// Remote completion rule: what the peer is known to have placed, which work is unconfirmed, and when an answer is
// requested.
//
// Sends, Writes and Immediate Data complete once the peer has placed them. It handles what it is sent in order, so that
// its answer to an RDMA Read or atomic operation says that all work before that has been placed (RFC 5040 section 5.5).
// Where none follows signaled work, the transmitter sends a *probe*, an RDMA Read of no octets. Each costs the peer a
// segment of its own, so a stream of work has few: a stride apart, and the stride follows from how much the program had
// under way when it last waited, or from the length of its queue. A peer that sends progress reports (rdmap_format.h)
// confirms work without being asked, too.
//
// Pure bookkeeping: nothing is sent, and no clock is read. It marks entries of the send queue as done and completes
// none. It belongs to whoever holds the sender's lock. `at` is where the sender builds, `sent` what TCP has taken.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "rdmap/cursor.h"
#include "rdmap/read_queue.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

class PlacementTracker {
 public:
  // When a probe is sent behind signaled work that no request confirms, where no other probe is outstanding.
  enum class ProbePolicy : std::uint8_t {
    at_once,
    if_none_due,  // the caller comes back before all else: where no other completion is due, or after a stride
    by_stride,    // and it did not wait for the last one: after a stride
  };

  // `queue` must remain live as long as the tracker.
  explicit PlacementTracker(SendQueue& queue) : queue_(queue) {}

  // `remote`: the remote rule holds, and not the local one. `reports`: the peer may send progress reports.
  void start(bool remote, bool reports) {
    remote_ = remote;
    reports_ = reports;
    reported_.sequence = queue_.head();
  }
  bool remote() const { return remote_; }
  void set_probe_policy(ProbePolicy policy) { policy_ = policy; }

  // While this end waits for a receive to be posted it reads nothing, hence hears no answer: meanwhile the local rule
  // holds.
  void set_receive_stalled(bool stalled) { receive_stalled_ = stalled; }
  bool receive_stalled() const { return receive_stalled_; }
  // Is work that is not answered done once TCP has it?
  bool done_when_sent() const { return !remote_ || receive_stalled_; }

  // ---- Probes ----
  std::uint32_t probes_outstanding() const { return probes_pushed_ - probes_answered_; }
  // Signaled work is with TCP, no request stands behind it, and no probe is outstanding.
  bool wants_probe(const Cursor& sent) const {
    return remote_ && !receive_stalled_ && probes_outstanding() == 0 && completion_due(sent);
  }
  // Is a probe due for the work before `at`, by the policy and the stride?
  bool probe_worthwhile(const Cursor& at, const Cursor& sent) const;
  // The next probe behind `at` was pushed before, and is to be sent again: at its old place, and nowhere else.
  bool probe_pushed(const Cursor& at) const { return at.placement.probes != probes_pushed_; }
  bool probe_stands_at(const Cursor& at) const { return at.sequence == probe(at.placement.probes).before; }
  void push_probe(const Cursor& at);
  // The oldest probe has been answered: all work before the entry returned has been placed.
  std::uint64_t probe_answered();
  // The program has nothing left to do but to wait for what wants_probe(): the stride follows from what is under way.
  void note_waiting(const Cursor& sent);

  // ---- What has been placed ----
  // All work before the entry `sequence` has. An answer that comes before its request confirms nothing that was not
  // sent.
  void placed_before(std::uint64_t sequence, const Cursor& sent);
  // A progress report of the peer: all work before the entry returned has been placed. Empty if it confirms no more
  // than those before it.
  std::optional<std::uint64_t> take_report(const Progress& progress, const Cursor& sent);
  // What is done has been completed.
  void note_completed(const Cursor& sent) {
    if (queue_.head() >= sent.sequence) answered_weight_ = sent.placement.weight;
  }
  // The oldest entry is about to be popped.
  void note_pop(const SendWork& work) {
    if (reports_ && queue_.head() == reported_.sequence) pass(work);
  }

 private:
  struct Probe {
    std::uint64_t before = 0;  // it stands before this entry
    std::uint64_t weight = 0;  // see Placement
  };
  // How far the peer has got, as its reports say: work before the entry, and what was sent before that.
  struct Reported {
    std::uint64_t sequence = 0;
    Msn send_msn{1};
    std::uint32_t writes = 0;
  };
  static constexpr std::uint64_t kShortestStride = 64, kLongestStride = 1024 * 1024;

  bool completion_due(const Cursor& sent) const {
    return sent.placement.completion_due && queue_.head() < sent.sequence;
  }
  const Probe& probe(std::uint32_t number) const { return probes_[number % probes_.size()]; }
  void pass(const SendWork& work);

  SendQueue& queue_;
  bool remote_ = false;
  bool reports_ = false;
  bool receive_stalled_ = false;
  ProbePolicy policy_ = ProbePolicy::at_once;
  std::uint32_t probes_pushed_ = 0;  // into SharedReads
  std::uint32_t probes_answered_ = 0;
  std::array<Probe, SharedReads::kMostProbes> probes_;  // by number
  std::uint64_t answered_weight_ = 0;
  std::uint64_t stride_ = kLongestStride;
  std::uint64_t placed_ = 0;  // all work before this entry is
  Reported reported_;
};

}  // namespace uiw::rdmap
