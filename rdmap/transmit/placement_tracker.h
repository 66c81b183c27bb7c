// SPDX-License-Identifier: MIT
// The remote completion rule: what the peer is known to have placed, which work is unconfirmed, and when to send a
// request whose answer confirms it.
//
// By this rule Sends, Writes and Immediate Data complete when the peer has placed them. The peer handles what it
// receives in order, so its answer to an RDMA Read or an atomic operation confirms that all work before that request is
// placed (RFC 5040 section 5.5). If no such request follows signaled work, the transmitter sends a *probe*, an RDMA
// Read of no octets. A probe costs a segment in each direction, so in a long sequence of work a probe is sent only when
// the octets since the last request have reached the stride, or the entries since then a quarter of the queue. The
// stride depends on how much work was in progress when the program last waited. A peer that sends progress reports
// (rdmap_format.h) confirms work without probes, too. If the octets go through shared memory, the byte stream itself
// tells how much the peer has placed, so there are no probes.
//
// This class sends nothing, reads no clock and completes nothing; it marks entries of the send queue as done. Called
// with the sender's lock held; no errors. Arguments: `at` is the position where the next segment is built, `sent` the
// position up to which TCP has accepted whole FPDUs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "rdmap/read_queue.h"
#include "rdmap/transmit/cursor.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

class PlacementTracker {
 public:
  // When to send a probe after signaled work that no request confirms, while no other probe is outstanding.
  enum class ProbePolicy : std::uint8_t {
    at_once,
    if_none_due,  // at once if no other completion is due, else after a stride: the program will poll again soon
    by_stride,    // after a stride: the program does not wait for this completion yet
  };

  // `queue` must remain live as long as the tracker.
  explicit PlacementTracker(SendQueue& queue) : queue_(queue) {}

  // `remote`: the remote rule applies, not the local one. `reports`: the peer may send progress reports.
  void start(bool remote, bool reports) {
    remote_ = remote;
    reports_ = reports;
    reported_.sequence = queue_.head();
  }
  bool remote() const { return remote_; }
  // From now on the peer's position in the byte stream shows what has been placed (placed_up_to()), without probes.
  void follow_position() { by_position_ = true; }
  bool by_position() const { return by_position_; }
  bool needs_probes() const { return remote_ && !by_position_; }
  void set_probe_policy(ProbePolicy policy) { policy_ = policy; }

  // While the stream waits for a posted receive it reads nothing, so no answer can arrive. During this time Sends and
  // Writes are done when TCP has taken them.
  void set_receive_stalled(bool stalled) { receive_stalled_ = stalled; }
  bool receive_stalled() const { return receive_stalled_; }
  // Whether Sends and Writes are done as soon as TCP has taken them.
  bool done_when_sent() const { return !remote_ || receive_stalled_; }

  // ---- Probes ----
  // False if no probe can be due at `at`: the local rule applies, or positions are used and no probe has to be built
  // again.
  bool may_probe(const Cursor& at) const { return remote_ && (!by_position_ || probe_pushed(at)); }
  std::uint32_t probes_outstanding() const { return probes_pushed_ - probes_answered_; }
  // Whether a probe is needed: TCP has taken signaled work that no request follows, and no probe is outstanding.
  bool wants_probe(const Cursor& sent) const {
    return needs_probes() && !receive_stalled_ && probes_outstanding() == 0 && completion_due(sent);
  }
  // Whether the policy, or the amount of work since the last request (in octets, or in entries), calls for a probe
  // right before `at`.
  bool probe_worthwhile(const Cursor& at, const Cursor& sent) const;
  // probe_pushed(): whether the next probe at or after `at` was pushed to SharedReads before, so that it is to be built
  // again, at its old position and nowhere else. probe_stands_at(): whether this position is `at`.
  bool probe_pushed(const Cursor& at) const { return at.placement.probes != probes_pushed_; }
  bool probe_stands_at(const Cursor& at) const { return at.sequence == probe(at.placement.probes).before; }
  void push_probe(const Cursor& at);
  // The oldest probe has been answered. Returns an entry; all work before it has been placed.
  std::uint64_t probe_answered();
  // Called when the program waits and wants_probe() is true: derives the stride from the amount of work in progress.
  void note_waiting(const Cursor& sent);

  // ---- What has been placed ----
  // The peer has placed all work before the entry `sequence`: by the remote rule marks this work as done, except Reads
  // and atomic operations. Work that TCP has not accepted is never marked, whatever a hostile peer answers.
  void placed_before(std::uint64_t sequence, const Cursor& sent);
  // The peer has placed all octets of the stream before this position. Returns the entry before which all work has been
  // placed.
  std::uint64_t placed_up_to(std::uint64_t position, const Cursor& sent) const;
  // The position in the byte stream that the peer has to reach so that more work is placed; kNowhere if there is none,
  // or positions are not used (follow_position()).
  std::uint64_t awaited_position(const Cursor& sent);
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  // Takes a progress report of the peer. Returns the entry before which all work has been placed. Nothing if the report
  // confirms nothing new, or more than was sent, or if start() was called without `reports`.
  std::optional<std::uint64_t> take_report(const Progress& progress, const Cursor& sent);
  // To be called when all work that is done has been completed.
  void note_completed(const Cursor& sent) {
    if (queue_.head() >= sent.sequence) answered_weight_ = sent.placement.weight;
  }
  // To be called when the oldest entry is about to be popped.
  void note_pop(const SendWork& work) {
    if (reports_ && queue_.head() == reported_.sequence) pass(work);
  }

 private:
  struct Probe {
    std::uint64_t before = 0;  // the probe is in front of this entry
    std::uint64_t weight = 0;  // see Placement
  };
  // How far the peer has placed work by its reports: all work before the entry `sequence`. `send_msn` is the next MSN
  // after that work, and `writes` the number of its Writes.
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
  bool by_position_ = false;
  bool reports_ = false;
  bool receive_stalled_ = false;
  ProbePolicy policy_ = ProbePolicy::at_once;
  std::uint32_t probes_pushed_ = 0;  // pushed into SharedReads, modulo 2^32
  std::uint32_t probes_answered_ = 0;
  std::array<Probe, SharedReads::kMostProbes> probes_;  // indexed by the number of the probe, modulo the size
  std::uint64_t answered_weight_ = 0;
  std::uint64_t stride_ = kLongestStride;
  std::uint64_t placed_ = 0;  // all work before this entry is placed
  Reported reported_;
};

}  // namespace uiw::rdmap
