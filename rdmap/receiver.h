// SPDX-License-Identifier: MIT
// The receiving half of an RDMAP stream: checks DDP segments (RFC 5041 section 7, RFC 5040 section 7.2), places their
// payload, and reports complete messages (RFC 5040 section 5.5). Called with the receiver's lock held, unless a comment
// says "any thread". No I/O.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "ddp/stag_table.h"
#include "mpa/deframer.h"
#include "mpa/startup.h"
#include "rdmap/connection_rules.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/scatter_gather.h"
#include "rdmap/terminate.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// Without CRC and markers a ULPDU comes in parts, of which the first one must have all headers.
static_assert(mpa::Deframer::kHeadSize >= kMaxHeaders);

// The posted receive that a message is being placed into. `sges` must remain valid until receive_complete().
struct ReceiveBuffer {
  std::uint64_t id = 0;
  std::uint32_t length = 0;
  std::span<const Sge> sges;
  const void* domain = nullptr;  // the domain of `sges`; a shared receive queue may have another domain than the stream
};

// What a Receiver calls, from inside its own functions, with the receiver's lock held.
class ReceiveHost {
 public:
  // Takes the receive for the next message off its queue; false if none is posted.
  virtual bool next_receive(ReceiveBuffer& buffer) = 0;
  struct Message {
    std::uint32_t length = 0;
    bool solicited = false;
    bool invalidated = false;
    Stag stag{};  // the STag that was invalidated
    bool has_immediate = false;
    bool is_send = true;  // false: Immediate Data, and `length` is that of the RDMA Write right before it, if any
    Immediate immediate{};
    std::size_t ulpdu = 0;  // octets of the ULPDU that ends the message
  };
  virtual void receive_complete(const ReceiveBuffer& buffer, Status status, const Message& message) = 0;
  // The answer to the oldest outstanding Read or atomic operation has been placed.
  virtual void read_complete() = 0;
  // The peer has put octets into the answer to a Read of no octets, and they were dropped.
  virtual void answer_dropped(std::size_t octets) { static_cast<void>(octets); }
  // Called only if ConnectionRules::watched: octets of an RDMA Write are about to be placed: its `first` ones, those of
  // its `last` segment, both or neither.
  struct Part {
    Stag stag{};
    std::uint64_t offset = 0;
    Octets payload{};
    bool first = false, last = false;
  };
  virtual void write_comes(const Part& part) { static_cast<void>(part); }
  // Called only if ConnectionRules::watched: the answer to the Read or atomic operation with this place in the send
  // queue is about to be placed.
  virtual void answer_comes(std::uint64_t sequence) { static_cast<void>(sequence); }
  // A request of the peer has been pushed into SharedReads::inbound. `probe`: see SharedReads::is_probe().
  virtual void read_requested(bool probe) = 0;
  // A progress report or an RNR report of the peer has arrived: the peer has placed this much of our work.
  virtual void progress_reported(const Progress& progress) { static_cast<void>(progress); }
  // It is now known whether the peer is uiw; to be passed on to Transmitter::peer_known(). `answer`: tell the peer that
  // this end is uiw.
  virtual void peer_known(mpa::PeerKind peer, bool answer) { static_cast<void>(peer), static_cast<void>(answer); }
  // The peer wants progress reports (Transmitter::enable_reports()).
  virtual void reports_wanted() {}
  // Called only if ConnectionRules::xrc_target: what the peer sends from now on is for its shared receive queue with
  // this number. Returns the protection domain of that queue; null if there is none with the number.
  virtual const void* choose_queue(std::uint64_t number) { return static_cast<void>(number), nullptr; }
  // Invalidates a local STag for the peer. No value if the STag was invalidated; otherwise the code of the remote
  // protection error (RFC 5040 figure 9).
  virtual std::optional<ErrorCode> invalidate(Stag stag) = 0;

 protected:
  ~ReceiveHost() = default;
};

class Receiver final : public mpa::UlpduSink {
 public:
  // `host` and the arguments of start() must remain live as long as the receiver.
  Receiver(const ddp::Accessor& memory, ReceiveHost& host) : memory_(memory), host_(host) {}

  void start(SharedReads& reads, const ConnectionRules& rules) {
    reads_ = &reads, rules_ = &rules;
    learns_ = rules.peer == mpa::PeerKind::not_known;
    if (rules.watched) write_target_ = Target::watched_write, response_target_ = Target::watched_response;
    if (rules.xrc_target) choose_domain(nullptr);
  }

  // Denies rights to the peer whatever the registration of the target allows (Verbs draft section 8.1.2.2). Any thread,
  // at any time.
  void deny(std::uint32_t rights) { denied_.store(rights, std::memory_order_relaxed); }

  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override;
  // Returns memory only for Sends and responses, which the caller may fill by a system call: the program does not look
  // at this memory before the completion, as ibv_query_qp_data_in_order() says. An RDMA Write has to be placed in
  // ascending order (base/guarded_copy.h), and no system call promises an order.
  MutableOctets destination(std::size_t most) override;
  Verdict placed(std::size_t octets, std::size_t offset, std::size_t total) override;

  // Tells the receiver whether the peer is uiw, if that is not known yet. Without this call the peer's first message
  // shows it.
  void learn(mpa::PeerKind peer);

  // Whether any message has arrived, at least in part. A message without octets counts, too.
  bool heard() const { return heard_; }

  // After Verdict::stop: the Terminate that is to be sent, or the one that has arrived.
  const std::optional<Terminate>& error() const { return error_; }
  const std::optional<Terminate>& peer_terminate() const { return peer_terminate_; }

  // If error() is about the sink memory of our own Read or atomic operation, which could not be used: the send queue
  // entry of this operation. Otherwise no value.
  const std::optional<std::uint64_t>& failed_read() const { return failed_read_; }

  // The shared receive queue that the peer has named is there no more (ConnectionRules::xrc_target). If a Send for it
  // has arrived in part, error() says so.
  void leave_queue();

  // Whether a Send has arrived in part.
  bool in_message() const { return message_.begun; }

  // How much of the peer's work is placed: all messages before the one in progress.
  Progress progress() const { return {send_msn_, writes_}; }
  // Whether the peer has reported that it has no receive posted (an RNR report), and has sent no answer or other report
  // since. Any thread may call this.
  bool peer_waits() const { return peer_waits_.load(std::memory_order_relaxed); }

  // Ends receiving, since the stream is over: the receive in progress, if any, completes with `status`.
  void abandon(Status status);
  // Ends receiving like abandon(), but the message in progress counts as never begun: its receive, if any, is returned
  // and does not complete.
  std::optional<ReceiveBuffer> forget_message();

 private:
  bool peer_is_uiw() const { return reads_->peer.load(std::memory_order_relaxed) == mpa::PeerKind::uiw; }
  // Publishes progress(). Must be called before the program can learn of a message and answer it.
  void note_progress() { reads_->progress.store(encode(progress()), std::memory_order_release); }
  bool takes(std::uint32_t rights) const {
    return !rules_->denied_are_unexpected() || (denied_.load(std::memory_order_relaxed) & rights) == 0;
  }
  ddp::Hold hold(Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights);
  ddp::Access find(Stag stag, std::uint64_t offset, std::uint64_t length, std::uint32_t rights);
  Verdict begin(Octets ulpdu, std::size_t total);
  Verdict begin_tagged(Octets ulpdu, std::size_t total);
  bool take_own(const ddp::TaggedHeader& header);
  // Without a domain no memory can be accessed, and no message be received.
  void choose_domain(const void* domain) { memory_ = memory_.of(domain != nullptr ? domain : this); }
  bool has_queue() const { return !rules_->xrc_target || memory_.domain() != this; }
  Verdict begin_untagged(Octets ulpdu, std::size_t total);
  Verdict begin_send(const ddp::UntaggedHeader& header, Control control, Octets ulpdu, std::size_t total);
  Verdict read_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  Verdict immediate(const ddp::UntaggedHeader& header, Opcode opcode, Octets ulpdu, std::size_t total);
  Verdict atomic_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  Verdict atomic_response(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  bool has_room_for_request() const;
  Verdict take_request(Octets ulpdu, std::size_t total,
                       const std::variant<ReadRequest, SharedReads::AtomicInbound>& request, bool ready_to_receive);
  bool place(Octets payload);
  ScatterPosition& position() { return segment_.target == Target::send ? message_.at : read_at_; }
  bool place_write(Octets payload);
  bool place_watched(Octets payload);
  bool memory_error();
  Verdict end_segment();

  Verdict fail(Octets ulpdu, std::size_t total, TerminateError why, bool with_read_request = false);
  Verdict fail_cut_short();

  // Where the payload of a segment goes. none: no segment is in progress; nothing: an RDMA Write without payload;
  // own_response: the response to a request that uiw has added itself, whose payload is dropped; lost_send: a Send
  // without a receive, whose payload is dropped. watched_*: as write and read_response, after the host
  // was told.
  enum class Target : std::uint8_t {
    none,
    nothing,
    write,
    read_response,
    own_response,
    send,
    lost_send,
    watched_write,
    watched_response
  };
  // The segment that is being placed.
  struct Segment {
    Target target = Target::none;
    bool last = false;
    // write, send: the header and the length of the segment, for a Terminate about the segment
    std::array<std::byte, ddp::kUntaggedHeaderSize> header{};
    std::size_t total = 0;
    Stag write_stag{};  // write: the STag is looked up again for each part of the segment
    std::uint64_t write_offset = 0;
    std::span<const Sge> sges;  // read_response, send: the scatter/gather elements for the whole message
    const void* sge_domain = nullptr;
  };
  // The Send that is being received.
  struct Message {
    bool begun = false;
    bool lost = false;  // no receive was posted for it, so it has no buffer
    Control control;
    std::uint32_t word = 0;  // the STag to invalidate, or the immediate data
    std::uint32_t received = 0;
    ScatterPosition at;
    ReceiveBuffer buffer;
  };
  // The last RDMA Write. Immediate Data that directly follows reports its length.
  struct Write {
    bool begun = false;
    std::uint32_t length = 0;  // 0 after a Send or Immediate Data
  };

  ddp::Accessor memory_;  // of an XRC target: for the domain of the shared receive queue that the peer has named
  ddp::KnownSlot known_;
  ReceiveHost& host_;
  SharedReads* reads_ = nullptr;
  std::atomic<std::uint32_t> denied_{0};
  const ConnectionRules* rules_ = nullptr;
  bool learns_ = false;  // it is not known yet whether the peer is uiw; its first message shows it
  bool heard_ = false;
  bool rtr_read_ = false;  // the first message was a Read as ready-to-receive message
  std::atomic<bool> peer_waits_{false};
  Target write_target_ = Target::write, response_target_ = Target::read_response;
  Segment segment_;
  // The position in the sink of our oldest Read. It is not the position in message_, since a Send may arrive between
  // two segments of the response.
  ScatterPosition read_at_;
  Message message_;
  Write write_;
  std::uint32_t writes_ = 0;  // Writes that are complete, modulo 2^32
  Msn send_msn_{1};
  Msn read_msn_{1};
  Msn atomic_msn_{1};
  std::optional<Terminate> error_, peer_terminate_;
  std::optional<std::uint64_t> failed_read_;
};

}  // namespace uiw::rdmap
