// SPDX-License-Identifier: MIT
// The sending half of an RDMAP stream: turns posted work, read responses and a Terminate into FPDUs, in the order
// of RFC 5040 section 5.5, and says when work is complete.
//
// fill() builds a batch of whole FPDUs, the caller gives it to the socket, sent() learns how many octets it took.
// What was not taken is built again by the next fill(); with CRC on, an FPDU of which a part went out is kept, since
// its octets may not change. Messages are not interleaved; posted work and read responses take turns, and the answer to a
// probe goes first. One caller at a time (the sender's lock). No I/O.
//
// Under the remote completion rule Sends, Writes and Immediate Data wait for the peer. It handles what it is sent in
// order, so that its answer to an RDMA Read or atomic operation says that all work before it has been placed (RFC 5040
// section 5.5). Where none follows signaled work, the transmitter asks for one by itself: a *probe*, an RDMA Read of no
// octets. Each costs the peer a segment of its own, so a stream of work has few: a stride apart, and the stride follows
// from how much the program had under way when it last waited, or from the length of its queue.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "ddp/stag_table.h"
#include "mpa/framer.h"
#include "mpa/startup.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// What the two halves of a stream share: reads and atomic operations asked for and not answered (the sender pushes,
// the receiver takes and pops), and those the peer asked for (the receiver pushes, the sender takes and pops). Both
// kinds count against one limit, and are answered in the order of asking (RFC 7306 sections 5.2 and 7).
struct SharedReads {
  // One more than agreed on: a ready-to-receive message may be a read (RFC 6581 section 9). A request stays in
  // `inbound` until TCP has taken its response, hence the room for a batch of them.
  static constexpr std::uint32_t kMaxResponsesInBatch = 64;
  static constexpr std::uint32_t kMostProbes = 4;  // outstanding at a time; a power of two
  SharedReads(std::uint32_t ord, std::uint32_t ird)
      : outstanding(ord + 1), inbound(ird + 1 + kMaxResponsesInBatch), inbound_limit(ird) {}
  static constexpr std::uint64_t kReadyToReceive = ~std::uint64_t{0};
  static constexpr std::uint64_t kProbe = kReadyToReceive - 1;
  struct Outstanding {
    std::uint64_t sequence;  // in the send queue, whose entry stays until the read completes; or one of those above
    Stag sink_stag;
    std::uint64_t sink_offset;
    std::uint32_t size;
    std::uint32_t received;
    const Sge* sges;
    std::uint16_t sge_count;
    bool atomic;
    std::uint32_t identifier() const { return static_cast<std::uint32_t>(sequence); }  // of an Atomic Request
  };
  struct AtomicInbound {
    AtomicRequest request;
    bool executed = false;  // by the sender, right before the response is built
    std::uint64_t original = 0;
  };
  struct Inbound {
    std::variant<ReadRequest, AtomicInbound> request;
    DealtWith dealt_with;  // when it came, which its answer says too
  };
  // Does the peer want to hear no more than that its work is placed?
  static bool asks_only(const Inbound& inbound) {
    const auto* read = std::get_if<ReadRequest>(&inbound.request);
    return read != nullptr && read->size == 0;
  }
  // Is there an inbound one that the sender has not taken? For the receiver, or with the receiver kept away.
  bool answers_unsent() const { return answering.load(std::memory_order_acquire) < inbound.pushed(); }
  SpscRing<Outstanding> outstanding;
  SpscRing<Inbound> inbound;
  const std::uint32_t inbound_limit;          // how many may be open at a time (RFC 5040 section 6.1)
  std::atomic<std::uint64_t> answering{0};    // of the inbound ones, by number: responses below this are on their way
  std::atomic<std::uint64_t> dealt_with{encode(DealtWith{})};  // encoded; set before the consumer can know of it
};

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

// Where in its work a sender stands.
struct Cursor {
  enum class Source : std::uint8_t { none, work, response, terminate, rtr, probe, notice };
  std::uint64_t sequence = 0;  // the send queue entry in progress, or the next one
  std::uint64_t response = 0;  // the inbound read to answer next, by its number in the ring
  std::uint32_t offset = 0;    // octets of the message in progress that stand before
  Msn send_msn{1};
  Msn read_msn{1};
  Msn terminate_msn{1};
  Msn atomic_msn{1};
  std::uint32_t probes = 0;    // that stand before
  std::uint64_t weight = 0;    // of the work that stands before, in octets
  std::uint64_t asked = 0;     // so much of that a request stands behind...
  std::uint64_t asked_at = 0;  // ...which is the work before this entry
  std::uint32_t writes = 0;    // RDMA Writes that stand before, all of them
  std::uint32_t notices = 0;   // of what is dealt with, that stand before
  DealtWith told;              // so much of it answers and notices before this say
  Source source = Source::none;
  bool second = false;         // of the work in progress the Write is out, and its Immediate Data comes next
  bool response_next = false;  // whose turn it is
  bool rtr_sent = false;
  bool terminate_sent = false;
  bool unasked = false;        // work stands before that no request behind it will confirm
  bool owed = false;           // and a signaled completion waits for it
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
    std::uint32_t ord = 0;  // what `reads` has room for beyond it is for probes alone
    mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;  // to be sent first
    bool hold = false;  // the responder: nothing before the first FPDU of the peer
    bool send_immediate = false;  // the peer takes it
    // Both ends keep to InfiniBand's rules: no Terminate tells the peer of work that fails here, and the peer is
    // acknowledged without being asked; see acknowledge().
    bool infiniband = false;
    bool notices = false;  // the peer knows notices (kNoticeBit), and gives those that it is asked for
    Completion completion = Completion::local;  // remote falls back to it where the peer takes no reads
  };

  // `stream` is what windows are bound by.
  Transmitter(SendQueue& queue, const ddp::StagTable& stags, const void* domain, SendHost& host,
              const void* stream = nullptr)
      : queue_(queue), stags_(stags), domain_(domain), stream_(stream), host_(host) {}

  void start(const Parameters& parameters, SharedReads* reads);
  Completion completion() const { return remote_ ? Completion::remote : Completion::local; }
  void release_hold() { hold_ = false; }
  // Tells the peer that it has to wait, and what of its work is dealt with (kNotReady): once, if it is told again before
  // that is on its way.
  void tell_not_ready(const DealtWith& dealt_with) {
    if (cursor_.notices == notices_due_) notice(notices_due_++) = {kNotReady, dealt_with};
  }
  // From here on the peer is told in front of a message what of its work has been placed, if no answer says so: the message
  // may be the answer to that work.
  void acknowledge() { acknowledges_ = true; }
  // The peer has told so. False if that is no news.
  bool peer_dealt_with(const DealtWith& said);
  // While the stream waits for a receive of its consumer's, nothing that the peer says behind that message is heard, and
  // a consumer that waits for a completion before it posts the receive would wait for ever: meanwhile the local rule
  // holds.
  void set_receive_stalled(bool stalled);
  // Reads and atomic operations outstanding at a time, at most what was agreed on. Returns what holds from here on; those
  // that are under way are answered as before (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return ord_ = std::min(ord, most_ord_); }

  enum class Fill {
    ready,          // the batch has something to send
    idle,           // nothing can be sent now
    local_error,    // failure() says which work could not be sent; a Terminate stands to be sent, unless it is kept here
    broken,         // an FPDU that was begun cannot be finished: the connection has to be reset
  };
  Fill fill(OutgoingBatch& batch);
  // Where there is no memory to keep the rest of an FPDU, the stream is broken.
  void sent(const OutgoingBatch& batch, std::size_t octets);

  // When the peer is asked whether it has placed signaled work behind which no request stands yet, where no other probe is
  // outstanding. wants_probe() says that there is such work.
  enum class ProbePolicy : std::uint8_t {
    at_once,
    if_none_due,  // the caller comes back before it does anything else: where no other completion is due, or after a stride
    by_stride,    // and it did not wait for the last one: after a stride
  };
  void set_probe_policy(ProbePolicy policy) { probe_policy_ = policy; }
  bool wants_probe() const;
  // The caller has nothing left to do but to wait for what wants_probe().
  void note_waiting();

  // Entries from this one on wait; where not said otherwise, none does.
  void hold_from(std::uint64_t sequence) { hold_from_ = sequence; }

  // The socket found that some memory of the batch is not there, and took nothing. Whose it is shows when FPDUs are sent one
  // by one: the next fill() is of one. Where the batch was of one already, its work fails in the next fill(). False if a
  // part of that FPDU went out before.
  bool source_gone(const OutgoingBatch& batch);

  // Anything left to send, were the socket able to take it?
  bool pending() const;

  // The receiver has the whole answer to the oldest outstanding read or atomic operation.
  void read_complete();

  // After the FPDU in progress nothing but this is sent. The first one counts (RFC 5040 section 7.1). With
  // `answer_first` the answers to what the peer asked before go out ahead of it: those requests were valid, and a valid
  // request is answered (RFC 5040 section 5.2.1, RFC 7306 section 5.2.1).
  void terminate(const Terminate& terminate, bool answer_first = false);
  bool terminating() const { return terminate_.has_value(); }
  bool terminate_sent() const { return cursor_.terminate_sent; }

  // Is there work that is not with TCP as a whole?
  bool unsent() const { return cursor_.sequence < queue_.tail(); }
  // Or that the peer owes its answer to?
  bool unfinished() const { return unsent() || reads_outstanding_ > 0; }
  // Unsignaled work at the head of the queue that waits for nothing but to be confirmed is let go of: a slot in the
  // queue, or the end of the stream, counts for more than to know which work an error was about.
  void release_unsignaled();
  // Remote rule: the peer has placed all work before the entry `sequence`.
  void placed_before(std::uint64_t sequence);

  // Completes everything in the queue: the entry `culprit` (if there) with `status`, entries that were done as they
  // are, the others flushed. After the FPDU in progress nothing but a Terminate is sent.
  void flush(std::optional<std::uint64_t> culprit, Status status);
  // The oldest entry that has been handed to TCP at least in part and is not complete, if any: the best guess at what
  // a Terminate without headers is about.
  std::optional<std::uint64_t> oldest_sent() const;
  // The entry behind the DDP and RDMAP headers that a Terminate brought back, if it is still in the queue.
  std::optional<std::uint64_t> find_terminated(const Terminate& terminate) const;

  // The entry that ended all sending, and why; nothing where none did. It is still in the queue: whoever keeps the
  // receiver from placing anything flushes it.
  struct Failure {
    std::uint64_t sequence;
    Status status;
  };
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  using Source = Cursor::Source;

  // One DDP segment: its headers, and which octets of the message follow them.
  struct Segment {
    std::array<std::byte, ddp::kUntaggedHeaderSize + kMaxTerminate> header;
    std::size_t header_size = 0;
    std::uint32_t payload = 0;
    bool last = true;
    MemorySegment response{};               // read response: its piece
    ddp::Hold source;               // and what it is taken from
  };
  struct Notice {
    Stag occasion;
    DealtWith dealt_with;
  };
  static constexpr std::uint32_t kMostNotices = 2;  // that TCP has not taken
  // How far the peer has dealt with work, as its notices say: work before the entry, and what was sent before that.
  struct Dealt {
    std::uint64_t sequence = 0;
    Msn send_msn{1};
    std::uint32_t writes = 0;
  };
  struct Probe {
    std::uint64_t at = 0;      // stands before this entry, and nowhere else once it was pushed
    std::uint64_t weight = 0;  // see Cursor
  };
  static constexpr std::uint64_t kShortestStride = 64, kLongestStride = 1024 * 1024;
  static constexpr std::uint64_t kWeightOfWork = 64;  // beside its octets
  std::uint32_t probes_outstanding() const { return probes_pushed_ - probes_answered_; }
  // Of signaled work with TCP, behind which no request stands.
  bool completion_due() const { return cursor_.owed && queue_.head() < cursor_.sequence; }
  Probe& probe(std::uint32_t number) { return probes_[number % probes_.size()]; }
  const Probe& probe(std::uint32_t number) const { return probes_[number % probes_.size()]; }
  Notice& notice(std::uint32_t number) { return notices_[number % notices_.size()]; }
  DealtWith dealt_with() const { return decode_dealt_with(reads_->dealt_with.load(std::memory_order_acquire)); }
  bool acknowledgement_due(const Cursor& cursor) const;
  void pass(const SendWork& work);
  void pop(const SendWork& work);
  std::uint32_t agreed() const { return reads_->outstanding.capacity() - 1; }  // reads; see SharedReads
  // `batch`: what stands before, so that a probe gets its place in it.
  bool choose(Cursor& cursor, const mpa::Batch* batch = nullptr) const;
  bool may_begin(const Cursor& cursor) const;
  bool fails(const SendWork& work) const;  // here, before anything of it is sent
  bool probe_due(const Cursor& cursor, const mpa::Batch* batch) const;
  [[gnu::noinline]] bool read_has_room() const;  // most work is no Read
  bool probe_has_room() const;
  bool probe_worthwhile(const Cursor& cursor) const;
  bool fits(const SendWork& work, const mpa::Batch& batch) const;
  bool local_work_next(const Cursor& cursor) const;
  bool build(const Cursor& cursor, Segment& segment);
  bool build_response(const Cursor& cursor, Segment& segment);
  void build_work(const Cursor& cursor, Segment& segment);
  void build_tagged(Segment& segment, Opcode opcode, Stag stag, std::uint64_t offset, std::uint32_t left,
                    unsigned bits = 0);
  void build_untagged(Segment& segment, Opcode opcode, std::uint32_t queue, Msn msn, std::uint32_t word,
                      std::uint32_t offset, std::uint32_t left, bool solicited = false);
  bool is_impossible(const SendWork& work) const;
  std::uint32_t payload_of(std::size_t header, std::uint32_t left) const;
  std::optional<std::size_t> payload(const Cursor& cursor, Segment& segment, MemorySegment* pieces);
  std::optional<std::size_t> gather(const Cursor& cursor, std::uint32_t& size, MemorySegment* pieces);
  mpa::Framer::Result append(const Cursor& cursor, Segment& segment, mpa::Batch& batch);
  bool make_rest_room(std::size_t size, std::size_t wanted);
  void keep_rest();
  void advance(Cursor& cursor, const Segment& segment);
  void push_read(const Cursor& cursor);
  [[gnu::noinline]] void push_answered(SendWork& work, const Cursor& cursor);
  void push_ready_to_receive();
  void push_probe(const Cursor& cursor);
  void carry_out(Cursor& cursor);
  Fill fail_message(const Cursor& cursor, Status status);
  Fill break_off(const Cursor& cursor);
  void commit(const Cursor& to);
  std::optional<std::uint64_t> find_send(Msn msn) const;
  void complete_in_order();

  SendQueue& queue_;
  const ddp::StagTable& stags_;
  const void* domain_;
  const void* stream_;
  SendHost& host_;
  SharedReads* reads_ = nullptr;

  mpa::Framer framer_;
  std::size_t mulpdu_ = 0;
  std::uint32_t ord_ = 0, most_ord_ = 0;
  mpa::ReadyToReceive rtr_ = mpa::ReadyToReceive::none;
  bool hold_ = false;
  std::uint64_t hold_from_ = ~std::uint64_t{0};
  bool send_immediate_ = false;
  bool infiniband_ = false;
  bool acknowledges_ = false;
  std::uint32_t notices_due_ = 0;
  std::array<Notice, kMostNotices> notices_;
  Dealt dealt_;
  bool rtr_pushed_ = false;
  bool source_gone_ = false;          // that of the next FPDU
  bool one_at_a_time_ = false;        // for the next fill()
  bool flushed_ = false;
  bool broken_ = false;               // the FPDU that was begun can never be finished

  Cursor cursor_;                     // what TCP has taken, up to an FPDU boundary
  std::size_t partial_ = 0;           // octets of the next FPDU that TCP has taken too
  std::unique_ptr<std::byte[]> rest_; // CRC on: the other octets of that FPDU
  std::size_t rest_size_ = 0, rest_at_ = 0, rest_capacity_ = 0;
  Cursor rest_end_;                   // where it leads

  std::uint64_t reads_pushed_ = 0;    // queue entries below this are in SharedReads, if they are reads
  std::uint64_t answered_pushed_ = 0;    // likewise, counted for reads and atomic operations alone
  std::uint32_t reads_outstanding_ = 0;  // without probes
  bool remote_ = false;               // the completion rule
  bool receive_stalled_ = false;
  std::array<Probe, SharedReads::kMostProbes> probes_;  // by number
  std::uint32_t probes_pushed_ = 0;   // into SharedReads
  std::uint32_t probes_answered_ = 0;
  std::uint64_t answered_weight_ = 0;
  std::uint64_t stride_ = kLongestStride;
  ProbePolicy probe_policy_ = ProbePolicy::at_once;
  std::uint64_t placed_ = 0;          // remote rule: all work before this entry, as the peer has said
  std::optional<Terminate> terminate_;
  std::uint64_t answer_until_ = 0;    // of the inbound requests: below this they are answered before the Terminate
  std::optional<Failure> failure_;
};

}  // namespace uiw::rdmap
