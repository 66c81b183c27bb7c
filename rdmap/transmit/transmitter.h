// SPDX-License-Identifier: MIT
// The sending half of an RDMAP stream: makes FPDUs of posted work, responses to Reads and atomic operations, a
// Terminate, and messages that uiw adds itself, in the order of RFC 5040 section 5.5, and completes work.
//
// fill() chooses what is sent next (choose.cc) and builds a batch of whole FPDUs (build_segment.cc). The caller writes
// the batch to the socket, and sent() commits the number of octets that the socket took. The other octets are built
// again by the next fill(). With CRC or markers, the rest of an FPDU that was sent in part is kept as a copy, since its
// octets may not change. PlacementTracker decides when work that the peer does not answer is complete, by the local or
// the remote rule. terminated_work.cc finds the work that a Terminate of the peer is about.
//
// Called with the sender's lock held. No I/O.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ddp/stag_table.h"
#include "mpa/fpdu_remainder.h"
#include "mpa/framer.h"
#include "mpa/startup.h"
#include "rdmap/atomic.h"
#include "rdmap/connection_rules.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/transmit/cursor.h"
#include "rdmap/transmit/placement_tracker.h"
#include "rdmap/transmit/report_queue.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// What a Transmitter calls, with the sender's lock held.
class SendHost {
 public:
  // Called once for each entry that completes, in the order of posting; then the entry is removed from the queue.
  virtual void send_complete(const SendWork& work, Status status) = 0;
  // Carries out local work (a bind or an invalidation) once, in its turn: TCP has accepted all earlier work. `binding`
  // is for a bind.
  virtual Status carry_out(const SendWork& work, const ddp::Binding& binding) {
    static_cast<void>(work), static_cast<void>(binding);
    return Status::local_operation;
  }
  // Called only if ConnectionRules::watched: carries out an atomic operation of the peer (rdmap::execute()).
  virtual bool execute(const AtomicRequest& request, std::byte* memory, std::uint64_t& original) {
    return rdmap::execute(request.opcode, request.operands, memory, original);
  }
  // Writes the memory to the medium of the files that are mapped there, for a flush of the peer. False if that cannot
  // be done. May block.
  virtual bool make_persistent(std::byte* memory, std::uint64_t length) {
    static_cast<void>(memory), static_cast<void>(length);
    return false;
  }

 protected:
  ~SendHost() = default;
};

// A batch of FPDUs and, for each FPDU, the position after it and the message that it belongs to, so that sending can go
// on from any FPDU if TCP accepts only a part of the batch. It belongs to the thread that sends.
struct OutgoingBatch {
  mpa::Batch fpdus;
  bool complete = false;  // nothing more could be sent after these FPDUs when they were built
  struct Begun {
    Cursor::Source source;
    std::uint32_t offset;
  };
  std::array<Begun, mpa::Batch::kMaxFpdus> begun;
  std::array<Cursor, mpa::Batch::kMaxFpdus> end;

  void clear() { fpdus.clear(), complete = false; }
};

class Transmitter {
 public:
  using ProbePolicy = PlacementTracker::ProbePolicy;

  // `queue`, `host`, the table of `memory`, and the arguments of start() must remain live as long as the transmitter.
  Transmitter(SendQueue& queue, const ddp::Accessor& memory, SendHost& host)
      : queue_(queue), memory_(memory), host_(host), tracker_(queue) {}
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  void start(const ConnectionRules& rules, SharedReads& reads);
  Completion completion() const { return tracker_.remote() ? Completion::remote : Completion::local; }
  void release_hold() { hold_ = false; }
  // It is now known whether the peer is uiw. A peer that is silent counts as `other` at first; if it turns out to be
  // uiw, this is called again. Called with both locks held. `answer`: if the peer is uiw, the next message tells it
  // that this end is uiw.
  void peer_known(mpa::PeerKind peer, bool answer);
  // Queues a report of what has been placed, for a peer that takes reports. `occasion` is kRnrReport or kProgressReport
  // (rdmap_format.h says when). Does nothing while another report, or a hello, waits to be sent.
  void report(Stag occasion, const Progress& progress) {
    if (sent_.reports == reports_.end()) reports_.push({occasion, progress}, sent_.reports);
  }
  // From here on a progress report is sent before each message that uses a receive of the peer, if this end has placed
  // more of the peer's work than it has confirmed: the message may be the reply to that work. No effect after
  // follow_position().
  void enable_reports() { reports_progress_ = !tracker_.by_position(); }
  // From now on each end learns from the byte stream how much the other end has placed (placed_up_to()), so this end
  // sends no probes, and no progress reports before its messages.
  void follow_position() {
    reports_progress_ = false;
    tracker_.follow_position();
  }
  // The peer has placed all octets of the stream before this position: completes work by the remote rule.
  void placed_up_to(std::uint64_t position);
  std::uint64_t awaited_position() { return tracker_.awaited_position(sent_); }
  // Evaluates a report of the peer. False if it confirms no more than earlier reports, or more than was sent.
  bool take_report(const Progress& progress);
  // While the stream waits for a posted receive, it reads nothing, so no confirmation can arrive. A consumer that waits
  // for a completion before it posts the receive would wait for ever. So during this time Sends and Writes complete
  // when TCP has taken them.
  void set_receive_stalled(bool stalled);
  // Sets ORD, to at most the negotiated value, and returns the new value; requests that are outstanding are answered as
  // before (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return read_queue_.limit_ord(ord); }
  std::uint32_t ord() const { return read_queue_.ord(); }

  enum class Fill {
    ready,        // the batch has something to send
    idle,         // nothing can be sent now
    local_error,  // work could not be sent, see failure(); the next fill() builds a Terminate, if one is due
    broken,       // an FPDU was sent in part and cannot be finished: the connection must be reset
  };
  Fill fill(OutgoingBatch& batch);
  // TCP has accepted this many octets of the batch. If there is no memory to keep the rest of an FPDU, the next fill()
  // returns `broken`. True if nothing is left to send, so that fill() would return `idle`; false if that is not known.
  bool sent(const OutgoingBatch& batch, std::size_t octets);

  // See PlacementTracker.
  bool needs_probes() const { return tracker_.needs_probes(); }
  void set_probe_policy(ProbePolicy policy) { tracker_.set_probe_policy(policy); }
  bool wants_probe() const { return tracker_.wants_probe(sent_); }
  void note_waiting() { tracker_.note_waiting(sent_); }

  // Entries from this one on are not sent. By default all entries are sent.
  static constexpr std::uint64_t kNoHold = ~std::uint64_t{0};
  void hold_from(std::uint64_t sequence) {
    hold_from_ = delays() ? std::min(sequence, hold_from_) : sequence;
    drain_from_ = sequence;
  }
  // As hold_from(), besides it.
  void delay_from(std::uint64_t sequence) { hold_from_ = std::min(sequence, drain_from_); }
  // Whether delay_from() holds anything back that hold_from() does not.
  bool delays() const { return hold_from_ < drain_from_; }

  // The socket has accepted nothing because some memory of the batch is not accessible. To find out which memory, the
  // next fill() builds a batch of one FPDU; if this batch was of one FPDU already, the message of this FPDU fails in
  // the next fill(). False if a part of that FPDU was sent before, so that the stream cannot go on.
  bool source_gone(const OutgoingBatch& batch);

  // Whether anything could be sent if the socket accepted it.
  bool pending() const;

  // The receiver has placed the whole answer to the oldest outstanding Read or atomic operation.
  void read_complete();

  // Sends a Terminate after the FPDU in progress, and nothing else. The first Terminate counts (RFC 5040 section 7.1).
  // With `answer_first` the peer's earlier requests are answered before it: they were valid, and a valid request is
  // answered (RFC 5040 section 5.2.1, RFC 7306 section 5.2.1).
  void terminate(const Terminate& terminate, bool answer_first = false);
  bool terminating() const { return terminate_.has_value(); }
  bool terminate_sent() const { return sent_.terminate_sent; }

  // Whether there is work that TCP has not accepted as a whole.
  bool unsent() const { return sent_.sequence < queue_.tail(); }
  // Whether there is unsent work, or a posted Read or atomic operation that the peer has not answered.
  bool unfinished() const { return unsent() || read_queue_.outstanding() > 0; }
  // Completes unsignaled work at the head of the queue that only waits for confirmation: room in the queue, or the end
  // of the stream, is more important than knowing which work an error is about.
  void release_unsignaled();
  // The peer has placed all work before the entry `sequence`. By the remote rule (Sends and Writes complete when they
  // are placed) this work completes now.
  void placed_before(std::uint64_t sequence);

  // Completes everything in the queue. The entry `culprit`, if given, gets `status`. An entry that is done gets
  // success, unless an entry before it has failed. Every other entry is flushed. By the remote rule
  // release_unsignaled() is called first, unless there is a `culprit` and it was sent. After the FPDU in progress only
  // a Terminate is sent.
  void flush(std::optional<std::uint64_t> culprit, Status status);
  // The oldest entry that is not done, if TCP has accepted at least one FPDU of it as a whole; otherwise no value. If a
  // Terminate of the peer has no headers, it is taken to be about this entry.
  std::optional<std::uint64_t> oldest_sent() const;
  // The entry whose message had the DDP and RDMAP headers in the Terminate, if it is still in the queue (RFC 5040
  // section 4.8).
  std::optional<std::uint64_t> find_terminated(const Terminate& terminate) const;

  // The entry that ended all sending and the reason, if there is one. The entry is still in the queue; the caller calls
  // flush() when it has stopped the receiver from placing anything.
  struct Failure {
    std::uint64_t sequence;
    Status status;
  };
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  using Source = Cursor::Source;
  using Added = mpa::Framer::Result;

  // One DDP segment: its headers, and how many octets of payload follow them.
  struct Segment {
    std::byte* header = nullptr;  // in the memory of the batch
    std::size_t header_size = 0;
    std::uint32_t from = 0;  // where the payload is in the message
    std::uint32_t payload = 0;
    bool last = true;
    MemorySegment response{};  // the payload of a read response
    ddp::Hold source;          // the access to the memory that `response` points to
    // Why the memory of a response may not be used any more; `none` if it may be used. Even with `none` the memory may
    // be unmapped, and thus not accessible.
    ddp::AccessError refused = ddp::AccessError::none;
  };

  std::uint64_t work_end() const { return std::min(queue_.tail(), hold_from_); }
  mpa::PeerKind peer() const { return reads_->peer.load(std::memory_order_relaxed); }
  Progress progress() const { return decode_progress(reads_->progress.load(std::memory_order_acquire)); }

  enum class Choice : std::uint8_t {
    nothing,
    plain_work,  // is_plain(), and no progress report must precede it
    any,         // fill() still has to check work of which nothing has been built
  };

  // ---- choose.cc: what is sent next, in the order of RFC 5040 section 5.5 ----
  // Messages are not interleaved; posted work and responses take turns, and the answer to a probe goes first. `at` is
  // the position where the next FPDU is built. choose() chooses the next message, and leaves a message that has begun
  // as it is. choose_any() returns false if nothing may be sent now. `batch` has the FPDUs before `at`; the room that
  // is left in it decides where probes go.
  [[gnu::always_inline]] Choice choose(Cursor& at, const mpa::Batch* batch = nullptr) const {
    // Most of the time nothing but posted work can be sent, and the next work request, if there is one, is_plain(). So
    // this look is inlined: fill() takes it for each message, and once more after the last one.
    const bool only_work = !terminate_ && !ended_ && !hold_ && at.rtr_sent && at.source == Source::none &&
                           at.response == reads_->inbound.pushed() && at.reports == reports_.end() &&
                           !reports_progress_ && !tracker_.may_probe(at);
    if (only_work && at.sequence >= work_end()) return Choice::nothing;
    if (!only_work || !is_plain(queue_.at(at.sequence))) return choose_any(at, batch) ? Choice::any : Choice::nothing;
    at.source = Source::work;
    at.offset = 0;
    return Choice::plain_work;
  }
  // All that this function and fill() check before they let work be sent, choose() and is_plain() have to exclude.
  bool choose_any(Cursor& at, const mpa::Batch* batch) const;
  // Whether the work fails locally, before anything of it is sent.
  bool fails(const SendWork& work) const;
  // Whether a progress report must precede the work at the cursor: the work uses a receive of the peer, and work of the
  // peer has been placed that nothing sent before confirms. Never between a Write and its Immediate Data.
  bool report_due(const Cursor& at) const;
  // Advances the cursor over a segment of `payload` octets; `last` says whether it ends its message.
  void advance(Cursor& at, std::uint32_t payload, bool last) const;
  void advance_work(Cursor& at) const;
  void advance_response(Cursor& at) const;
  bool is_impossible(const SendWork& work) const;
  bool local_work_next(const Cursor& at) const;
  bool may_begin(const Cursor& at) const;
  bool fits(const SendWork& work, const mpa::Batch& batch) const;
  bool probe_due(const Cursor& at, const mpa::Batch* batch) const;

  // ---- build_segment.cc: the next segment of the message at the cursor ----
  // Adds the segment to the batch: DDP and RDMAP headers (RFC 5041 section 4, RFC 5040 section 4, RFC 7306 sections
  // 5.2.1, 5.2.2 and 6.2), and payload from registered memory, which is looked up again for each segment. bad_address:
  // the memory of the payload is not registered any more or not accessible; nothing was added.
  Added append(const Cursor& at, Segment& segment, mpa::Batch& batch);
  void set_mulpdu(std::size_t mulpdu);
  // Makes FPDUs longer once the peer is known to be uiw. Not to be called while an FPDU that was sent in part has to be
  // built again.
  void follow_peer() {
    if (mulpdu_ != rules_->mulpdu_to_uiw && peer() == mpa::PeerKind::uiw) set_mulpdu(rules_->mulpdu_to_uiw);
  }
  bool build(const Cursor& at, Segment& segment);
  void build_empty_read(const Cursor& at, Segment& segment, Stag source, std::uint64_t offset);
  bool build_response(const Cursor& at, Segment& segment);
  bool carry_out(const AtomicRequest& request, std::byte* memory, std::uint64_t length, std::uint64_t& original);
  void build_work(const Cursor& at, Segment& segment);
  void build_piece(const Cursor& at, Segment& segment, Stag target);
  void build_tagged(Segment& segment, Opcode opcode, Stag stag, std::uint64_t offset, std::uint32_t left);
  void build_untagged(Segment& segment, Opcode opcode, std::uint32_t queue, Msn msn, std::uint32_t word,
                      std::uint32_t offset, std::uint32_t left);
  std::uint32_t payload_of(std::size_t header, std::uint32_t left) const;
  // Returns the number of `pieces`, or kUnavailable (rdmap/scatter_gather.h).
  std::size_t payload(const Cursor& at, Segment& segment, MemorySegment* pieces);

  // ---- terminated_work.cc ----
  std::optional<std::uint64_t> find_write(const ddp::TaggedHeader& header, std::uint64_t payload) const;
  std::optional<std::uint64_t> find_request(Msn msn, const Terminate& terminate) const;
  std::optional<std::uint64_t> find_send(Msn msn) const;
  template <typename IsIt>
  std::optional<std::uint64_t> find_unanswered(IsIt is_it) const;

  // ---- transmitter.cc ----
  void push_own_request(const Cursor& at);
  void carry_out(Cursor& at);
  Fill fail_message(const Cursor& at, Status status, ddp::AccessError refused = ddp::AccessError::none);
  Fill break_off(const Cursor& at);
  void keep_rest();
  void keep_rest_of(const OutgoingBatch& batch, std::size_t index, std::size_t from, std::size_t size);
  void commit(const Cursor& to, std::uint64_t position);
  void complete_in_order();
  void complete_oldest(Status status);

  SendQueue& queue_;
  const ddp::Accessor memory_;
  SendHost& host_;
  const ConnectionRules* rules_ = nullptr;
  SharedReads* reads_ = nullptr;
  Cursor sent_;  // the position up to which TCP has accepted whole FPDUs
  ReadQueue read_queue_;
  PlacementTracker tracker_;
  ReportQueue reports_;
  std::uint64_t accepted_ = 0;          // octets that the byte stream has accepted
  bool reports_progress_ = false;       // progress reports are sent before messages, see enable_reports()
  bool hold_ = false;                   // nothing is sent before the peer's first FPDU
  bool ended_ = false;                  // no more work is sent
  std::uint32_t segment_payload_ = 1;   // the payload that an untagged segment has room for
  std::uint64_t drain_from_ = kNoHold;  // what hold_from() was called with
  std::uint64_t hold_from_ = kNoHold;   // less while delay_from() delays: entries from this one on are not sent
  std::optional<Terminate> terminate_;
  std::uint64_t answer_until_ = 0;  // inbound requests below this number are answered before the Terminate
  std::optional<Failure> failure_;

  mpa::Framer framer_;
  std::size_t mulpdu_ = 0;
  std::size_t batch_limit_ = 0;  // octets, see mpa::Batch::limit()

  bool one_at_a_time_ = false;  // the next fill() builds one FPDU only
  Source gone_ = Source::none;  // if the next FPDU is of this source, its memory is not accessible
  bool broken_ = false;         // an FPDU was sent in part and can never be finished
  std::size_t partial_ = 0;     // octets of the next FPDU that TCP has already accepted
  mpa::FpduRemainder rest_;     // a copy of the octets that are left of an FPDU that was sent in part
  Cursor rest_end_;             // the position after rest_
};

}  // namespace uiw::rdmap
