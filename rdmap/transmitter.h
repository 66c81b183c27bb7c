// SPDX-License-Identifier: MIT
// The sending half of an RDMAP stream: makes FPDUs of posted work, responses to Reads and atomic operations, and a
// Terminate, in the order of RFC 5040 section 5.5, and completes work.
//
// fill() chooses what is sent next (transmit/choose.h) and builds a batch of whole FPDUs (transmit/segment_builder.h).
// The caller writes the batch to the socket, and sent() commits the number of octets that the socket took. What it did
// not take is built again by the next fill(). With CRC on, an FPDU that was sent in part is kept as a copy, since its
// octets may not change. PlacementTracker decides when work that the peer does not answer is complete, by the local or
// the remote rule.
//
// Called with the sender's lock held. No I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ddp/stag_table.h"
#include "mpa/fpdu_remainder.h"
#include "mpa/framer.h"
#include "mpa/startup.h"
#include "rdmap/connection_rules.h"
#include "rdmap/cursor.h"
#include "rdmap/placement_tracker.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/transmit/segment_builder.h"
#include "rdmap/transmit/sender_state.h"
#include "rdmap/transmit/terminated_work.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// What a Transmitter calls, with the sender's lock held.
class SendHost {
 public:
  // Called once for each entry, in the order of posting; the entry is popped right after.
  virtual void send_complete(const SendWork& work, Status status) = 0;
  // Carries out local work once, in its turn: TCP has taken all earlier work. `binding` is that of a bind.
  virtual Status carry_out(const SendWork& work, const ddp::Binding& binding) {
    static_cast<void>(work), static_cast<void>(binding);
    return Status::local_operation;
  }

 protected:
  ~SendHost() = default;
};

// A batch of FPDUs and, for each FPDU, the position after it and the message that it belongs to, so that a part of the
// batch can be taken back. It belongs to the thread that sends.
struct OutgoingBatch {
  mpa::Batch fpdus;
  bool complete = false;  // nothing more could be sent behind these FPDUs when they were built
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

  // All arguments, and those of start(), must remain live as long as the transmitter. `stream` identifies the
  // stream for windows of type 2.
  Transmitter(SendQueue& queue, const ddp::StagTable& stags, const void* domain, SendHost& host,
              const void* stream = nullptr)
      : state_(queue), builder_(state_, stags, domain, stream), host_(host) {}
  // The members refer to each other.
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  void start(const ConnectionRules& rules, SharedReads& reads);
  Completion completion() const { return state_.tracker.remote() ? Completion::remote : Completion::local; }
  void release_hold() { state_.hold = false; }
  // The peer is now known to be uiw or not; one that is treated as `other` since it is silent may turn out to be `uiw`
  // later. Called with the receiver's lock held, too. `answer`: if it is uiw, the next message tells it that this end
  // is, too.
  void peer_known(mpa::PeerKind peer, bool answer);
  // Queues a report of what has been placed, for a peer that takes reports. kRnrReport: no receive is posted here;
  // kProgressReport: this end disconnects. Does nothing while another report waits to be sent.
  void report(Stag occasion, const Progress& progress) {
    if (state_.sent.reports == state_.reports.end()) state_.reports.push({occasion, progress}, state_.sent.reports);
  }
  // From here on a progress report precedes each message, unless an answer has confirmed as much of the peer's work:
  // the message may be the reply to that work.
  void enable_reports() { state_.reports_progress = true; }
  // Takes a report of the peer. False if it confirms no more than earlier ones.
  bool take_report(const Progress& progress);
  // While the stream waits for a posted receive, it reads nothing, so no confirmation can arrive. A consumer that waits
  // for a completion before it posts the receive would wait for ever. So the local rule applies during this time.
  void set_receive_stalled(bool stalled);
  // Sets ORD, to at most the negotiated value, and returns the new value; requests that are outstanding are answered as
  // before (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return state_.read_queue.limit_ord(ord); }
  std::uint32_t ord() const { return state_.read_queue.ord(); }

  enum class Fill {
    ready,        // the batch has something to send
    idle,         // nothing can be sent now
    local_error,  // work could not be sent, see failure(); a Terminate follows if the rules say so
    broken,       // an FPDU was sent in part and cannot be finished: the connection must be reset
  };
  Fill fill(OutgoingBatch& batch);
  // If there is no memory to keep the rest of an FPDU, the next fill() returns `broken`.
  // True if nothing is left to send, so that fill() would return `idle`; false if that is not known.
  bool sent(const OutgoingBatch& batch, std::size_t octets);

  // See PlacementTracker.
  void set_probe_policy(ProbePolicy policy) { state_.tracker.set_probe_policy(policy); }
  bool wants_probe() const { return state_.tracker.wants_probe(state_.sent); }
  void note_waiting() { state_.tracker.note_waiting(state_.sent); }

  // Entries from this one on are not sent. By default all entries are sent.
  void hold_from(std::uint64_t sequence) { state_.hold_from = sequence; }

  // The socket took nothing since some memory of the batch is not accessible. To find out which, the next fill() builds
  // a batch of one FPDU; if this batch was of one FPDU already, its work fails in the next fill(). False if a part of
  // that FPDU was sent before.
  bool source_gone(const OutgoingBatch& batch);

  // Whether anything could be sent if the socket took it.
  bool pending() const;

  // The receiver has placed the whole answer to the oldest outstanding Read or atomic operation.
  void read_complete();

  // Sends a Terminate behind the FPDU in progress, and nothing else. The first Terminate counts (RFC 5040 section 7.1).
  // With `answer_first` the peer's earlier requests are answered before it: they were valid, and a valid request is
  // answered (RFC 5040 section 5.2.1, RFC 7306 section 5.2.1).
  void terminate(const Terminate& terminate, bool answer_first = false);
  bool terminating() const { return state_.terminate.has_value(); }
  bool terminate_sent() const { return state_.sent.terminate_sent; }

  // Whether there is work that TCP has not taken as a whole.
  bool unsent() const { return state_.sent.sequence < state_.queue.tail(); }
  // Whether there is such work, or a request that the peer has not answered.
  bool unfinished() const { return unsent() || state_.read_queue.outstanding() > 0; }
  // Completes unsignaled work at the head of the queue that only waits for confirmation: room in the queue, or the end
  // of the stream, is more important than knowing which work an error is about.
  void release_unsignaled();
  // Remote rule: the peer has placed all work before the entry `sequence`.
  void placed_before(std::uint64_t sequence);

  // Completes everything in the queue: the entry `culprit`, if given, with `status`, entries that are done with
  // success, all others as flushed. After the FPDU in progress only a Terminate is sent.
  void flush(std::optional<std::uint64_t> culprit, Status status);
  // See transmit/terminated_work.h.
  std::optional<std::uint64_t> oldest_sent() const { return find_oldest_sent(state_); }
  std::optional<std::uint64_t> find_terminated(const Terminate& terminate) const {
    return rdmap::find_terminated(state_, terminate, partial_ > 0 || !rest_.empty());
  }

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

  void push_own_request(const Cursor& at);
  void carry_out(Cursor& at);
  Fill fail_message(const Cursor& at, Status status, ddp::AccessError refused = ddp::AccessError::none);
  Fill break_off(const Cursor& at);
  void keep_rest();
  void keep_rest_of(const OutgoingBatch& batch, std::size_t index, std::size_t from, std::size_t size);
  void commit(const Cursor& to);
  void complete_in_order();

  SenderState state_;
  SegmentBuilder builder_;
  SendHost& host_;
  bool source_gone_ = false;    // the memory of the next FPDU is not accessible
  bool one_at_a_time_ = false;  // the next fill() builds one FPDU only
  bool broken_ = false;         // an FPDU was sent in part and can never be finished
  std::size_t partial_ = 0;     // octets of the next FPDU that TCP has already taken
  mpa::FpduRemainder rest_;     // CRC on: the octets of that FPDU that are left
  Cursor rest_end_;             // the position behind rest_
  std::optional<Failure> failure_;
};

}  // namespace uiw::rdmap
