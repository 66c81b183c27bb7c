// SPDX-License-Identifier: MIT
// The sending half of an RDMAP stream: turns posted work, read responses and a Terminate into FPDUs, in the order
// of RFC 5040 section 5.5, and says when work is complete.
//
// fill() chooses what goes next (transmit/choose.h) and builds a batch of whole FPDUs (transmit/segment_builder.h), the
// caller gives it to the socket, and sent() commits to how many octets that took. What was not taken is built again by
// the next fill(); with CRC on, an FPDU of which a part went out is kept, since its octets may not change. When work
// that the peer does not answer is complete, by the local or by the remote rule, PlacementTracker says. One caller at a
// time (the sender's lock). No I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ddp/stag_table.h"
#include "mpa/fpdu_remainder.h"
#include "mpa/framer.h"
#include "mpa/startup.h"
#include "rdmap/cursor.h"
#include "rdmap/placement_tracker.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/transmit/segment_builder.h"
#include "rdmap/transmit/sender_state.h"
#include "rdmap/transmit/terminated_work.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

class SendHost {
 public:
  // In the order of posting, each once; the entry is popped right after.
  virtual void send_complete(const SendWork& work, Status status) = 0;
  // Carries out local work, once, in its turn: all earlier work is with TCP. `binding` is that of a bind.
  virtual Status carry_out(const SendWork& work, const ddp::Binding& binding) {
    static_cast<void>(work), static_cast<void>(binding);
    return Status::local_operation;
  }

 protected:
  ~SendHost() = default;
};

// When work that is not answered completes: once TCP has its last octet (RFC 5040 section 5.5), or once the peer has
// placed it, as on InfiniBand.
enum class Completion : std::uint8_t { local, remote };

// A batch with what is needed to take it back in part. Belongs to the thread that sends.
struct OutgoingBatch {
  mpa::Batch fpdus;
  std::array<Cursor, mpa::Batch::kMaxFpdus> start, end;
};

class Transmitter {
 public:
  struct Parameters {
    bool crc = true;
    std::size_t mulpdu = 1440;
    std::uint32_t ord = 0;                                // what `reads` has room for beyond it is for probes alone
    mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;  // to be sent first
    bool hold = false;                                    // the responder: nothing before the first FPDU of the peer
    bool send_immediate = false;                          // the peer takes it
    bool terminates_local_errors = true;                  // a Terminate tells the peer of work that fails here
    Reports reports = Reports::none;
    Completion completion = Completion::local;  // remote falls back to it where the peer takes no reads
  };

  using ProbePolicy = PlacementTracker::ProbePolicy;

  // All of them must remain live as long as the transmitter. `stream` is what windows are bound by.
  Transmitter(SendQueue& queue, const ddp::StagTable& stags, const void* domain, SendHost& host,
              const void* stream = nullptr)
      : state_(queue), builder_(state_, stags, domain, stream), host_(host) {}
  // Its parts refer to each other.
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  void start(const Parameters& parameters, SharedReads* reads);
  Completion completion() const { return state_.tracker.remote() ? Completion::remote : Completion::local; }
  void release_hold() { state_.hold = false; }
  // Sends an RNR report: no receive is posted, and so much of the peer's work has been placed. Not where another report
  // is not on its way yet.
  void report_rnr(const Progress& progress) {
    if (state_.sent.reports == state_.reports.end()) state_.reports.push({kRnrReport, progress}, state_.sent.reports);
  }
  // From here on a progress report goes out in front of a message, where no answer has confirmed as much of the peer's
  // work: the message may be the answer to that work.
  void enable_reports() { state_.reports_progress = true; }
  // A report of the peer. False if it confirms no more than those before it.
  bool take_report(const Progress& progress);
  // While the stream waits for a receive of its consumer's, nothing that the peer sends behind that message is heard,
  // and a consumer that waits for a completion before it posts the receive would wait for ever: meanwhile the local
  // rule holds.
  void set_receive_stalled(bool stalled);
  // Reads and atomic operations outstanding at a time, at most what was agreed on. Returns what holds from here on;
  // those that are under way are answered as before (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return state_.read_queue.limit_ord(ord); }

  enum class Fill {
    ready,        // the batch has something to send
    idle,         // nothing can be sent now
    local_error,  // failure() says which work could not be sent; a Terminate is to be sent, if the parameters say so
    broken,       // an FPDU that was begun cannot be finished: the connection has to be reset
  };
  Fill fill(OutgoingBatch& batch);
  // Where there is no memory to keep the rest of an FPDU, the stream is broken.
  void sent(const OutgoingBatch& batch, std::size_t octets);

  // PlacementTracker::ProbePolicy and wants_probe() say what these are about.
  void set_probe_policy(ProbePolicy policy) { state_.tracker.set_probe_policy(policy); }
  bool wants_probe() const { return state_.tracker.wants_probe(state_.sent); }
  void note_waiting() { state_.tracker.note_waiting(state_.sent); }

  // Entries from this one on wait; where not said otherwise, none does.
  void hold_from(std::uint64_t sequence) { state_.hold_from = sequence; }

  // The socket found that some memory of the batch is not there, and took nothing. Whose it is shows when FPDUs are
  // sent one by one: the next fill() is of one. Where the batch was of one already, its work fails in the next fill().
  // False if a part of that FPDU went out before.
  bool source_gone(const OutgoingBatch& batch);

  // Anything left to send, were the socket able to take it?
  bool pending() const;

  // The receiver has the whole answer to the oldest outstanding read or atomic operation.
  void read_complete();

  // After the FPDU in progress nothing but this is sent. The first one counts (RFC 5040 section 7.1). With
  // `answer_first` the answers to what the peer asked before go out ahead of it: those requests were valid, and a valid
  // request is answered (RFC 5040 section 5.2.1, RFC 7306 section 5.2.1).
  void terminate(const Terminate& terminate, bool answer_first = false);
  bool terminating() const { return state_.terminate.has_value(); }
  bool terminate_sent() const { return state_.sent.terminate_sent; }

  // Is there work that is not with TCP as a whole?
  bool unsent() const { return state_.sent.sequence < state_.queue.tail(); }
  // Or that the peer owes its answer to?
  bool unfinished() const { return unsent() || state_.read_queue.outstanding() > 0; }
  // Unsignaled work at the head of the queue that waits for nothing but to be confirmed is let go of: a slot in the
  // queue, or the end of the stream, counts for more than to know which work an error was about.
  void release_unsignaled();
  // Remote rule: the peer has placed all work before the entry `sequence`.
  void placed_before(std::uint64_t sequence);

  // Completes everything in the queue: the entry `culprit` (if there) with `status`, entries that were done as they
  // are, the others flushed. After the FPDU in progress nothing but a Terminate is sent.
  void flush(std::optional<std::uint64_t> culprit, Status status);
  // As transmit/terminated_work.h says.
  std::optional<std::uint64_t> oldest_sent() const { return find_oldest_sent(state_); }
  std::optional<std::uint64_t> find_terminated(const Terminate& terminate) const {
    return rdmap::find_terminated(state_, terminate, partial_ > 0 || !rest_.empty());
  }

  // The entry that ended all sending, and why; nothing where none did. It is still in the queue: whoever keeps the
  // receiver from placing anything flushes it.
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
  Fill fail_message(const Cursor& at, Status status);
  Fill break_off(const Cursor& at);
  void keep_rest();
  void keep_rest_of(const OutgoingBatch& batch, std::size_t index, std::size_t from, std::size_t size);
  void commit(const Cursor& to);
  void pop(const SendWork& work);
  void complete_in_order();

  SenderState state_;
  SegmentBuilder builder_;
  SendHost& host_;
  bool terminates_local_errors_ = true;
  bool source_gone_ = false;    // that of the next FPDU
  bool one_at_a_time_ = false;  // for the next fill()
  bool broken_ = false;         // the FPDU that was begun can never be finished
  std::size_t partial_ = 0;     // octets of the next FPDU that TCP has taken too
  mpa::FpduRemainder rest_;     // CRC on: the other octets of that FPDU
  Cursor rest_end_;             // where it leads
  std::optional<Failure> failure_;
};

}  // namespace uiw::rdmap
