// SPDX-License-Identifier: MIT
// The receiving half of an RDMAP stream: checks DDP segments (RFC 5041 section 7, RFC 5040 section 7.2), places their
// payload, and says which messages have come. One caller at a time (the receiver's lock). No I/O.
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
#include "rdmap/rdmap_format.h"
#include "rdmap/read_queue.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// Of a stream without CRC the deframer gives at least the headers of a segment at once.
static_assert(mpa::Deframer::kHeadSize >= kMaxHeaders);

// A receive that a message is being placed into. `sges` stay valid until receive_complete().
struct ReceiveBuffer {
  std::uint64_t id = 0;
  std::uint32_t length = 0;
  std::span<const Sge> sges;
  const void* domain = nullptr;  // of what `sges` name: that of a shared receive queue may be another than the stream's
};

class ReceiveHost {
 public:
  // The receive for the next message, taken off its queue; false if none is posted.
  virtual bool next_receive(ReceiveBuffer& buffer) = 0;
  struct Message {
    std::uint32_t length = 0;
    bool solicited = false;
    bool invalidated = false;
    Stag stag{};  // invalidated
    bool has_immediate = false;
    bool is_send = true;  // else Immediate Data; `length` is that of the RDMA Write right before it, if any
    Immediate immediate{};
  };
  virtual void receive_complete(const ReceiveBuffer& buffer, Status status, const Message& message) = 0;
  // The last octet of the oldest outstanding read, or the result of the oldest atomic operation, is placed.
  virtual void read_complete() = 0;
  // A read or an atomic operation stands in SharedReads::inbound; `probe`: as SharedReads::is_probe().
  virtual void read_requested(bool probe) = 0;
  // A progress report of the peer, or an RNR report: so much of what was sent it has placed.
  virtual void progress_reported(const Progress& progress) { static_cast<void>(progress); }
  // The peer wants progress reports (Transmitter::enable_reports()).
  virtual void reports_wanted() {}
  // Invalidates a local STag for the peer. Empty if that is done, else why not: a code of remote protection errors.
  virtual std::optional<ErrorCode> invalidate(Stag stag) = 0;

 protected:
  ~ReceiveHost() = default;
};

class Receiver final : public mpa::UlpduSink {
 public:
  // `stream` is what windows are bound by.
  Receiver(const ddp::StagTable& stags, const void* domain, ReceiveHost& host, const void* stream = nullptr)
      : stags_(stags), domain_(domain), stream_(stream), host_(host) {}

  struct Parameters {
    // The ready-to-receive message that was agreed on (RFC 6581 section 9). If it is a Send of no octets, it is for
    // this layer alone; if it is a Read of none, it does not count against the limit.
    mpa::ReadyToReceive rtr = mpa::ReadyToReceive::none;
    bool send_immediate = false;         // the peer may send that opcode
    bool denied_are_unexpected = false;  // deny() makes operations unexpected opcodes, and not errors of access
    Reports reports = Reports::none;
  };
  void start(SharedReads* reads, const Parameters& parameters) { reads_ = reads, parameters_ = parameters; }

  // Rights of `rights` are not given to the peer, whatever its target's registration says (Verbs draft section
  // 8.1.2.2). At any time, from any thread.
  void deny(std::uint32_t rights) { denied_.store(rights, std::memory_order_relaxed); }

  Verdict ulpdu(Octets piece, std::size_t offset, std::size_t total) override;

  // Any message has been heard, however short.
  bool heard() const { return heard_; }

  // After Verdict::stop: the Terminate to be sent, or the one that has come.
  const std::optional<Terminate>& error() const { return error_; }
  const std::optional<Terminate>& peer_terminate() const { return peer_terminate_; }

  // With error(): the read or atomic operation of ours whose sink is not there.
  const std::optional<std::uint64_t>& failed_read() const { return failed_read_; }

  // Has a part of a message that takes a receive come, and not all of it?
  bool in_message() const { return message_.begun; }

  // With all that came before the segment in progress.
  Progress progress() const { return {send_msn_, writes_}; }
  // Has an RNR report come, and no answer since? On any thread.
  bool peer_waits() const { return peer_waits_.load(std::memory_order_relaxed); }

  // The stream is over: the receive in progress, if any, completes with `status`.
  void abandon(Status status);
  // The same where the message counts as never begun: the receive in progress, if any, does not complete.
  std::optional<ReceiveBuffer> forget_message();

 private:
  // Before its consumer can know of a message, and answer it.
  void note_progress() { reads_->progress.store(encode(progress()), std::memory_order_release); }
  void note_answer() {
    if (peer_waits()) peer_waits_.store(false, std::memory_order_relaxed);
  }
  bool takes(ddp::Right right) const {
    return !parameters_.denied_are_unexpected || (denied_.load(std::memory_order_relaxed) & right) == 0;
  }
  ddp::Access find(Stag stag, std::uint64_t offset, std::uint64_t length, ddp::Right right) const;
  Verdict begin(Octets ulpdu, std::size_t total);
  Verdict begin_tagged(Octets ulpdu, std::size_t total);
  bool take_report(const ddp::TaggedHeader& header);
  Verdict begin_untagged(Octets ulpdu, std::size_t total);
  Verdict begin_send(const ddp::UntaggedHeader& header, Control control, Octets ulpdu, std::size_t total);
  Verdict read_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  Verdict immediate(const ddp::UntaggedHeader& header, Opcode opcode, Octets ulpdu, std::size_t total);
  Verdict atomic_request(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  Verdict atomic_response(const ddp::UntaggedHeader& header, Octets ulpdu, std::size_t total);
  Verdict take_request(Octets ulpdu, std::size_t total,
                       const std::variant<ReadRequest, SharedReads::AtomicInbound>& request, bool ready_to_receive);
  bool place(Octets payload);
  bool place_write(Octets payload);
  bool fault();
  Verdict end_segment();

  Verdict fail(Octets ulpdu, std::size_t total, Layer layer, std::uint8_t type, std::uint8_t code,
               bool with_read_request = false);
  Verdict fail_cut_short(std::size_t total);
  Verdict fail_rdma(Octets ulpdu, std::size_t total, ErrorType type, ErrorCode code, bool with_read_request = false);
  Verdict fail_tagged(Octets ulpdu, std::size_t total, ddp::TaggedError code);
  Verdict fail_untagged(Octets ulpdu, std::size_t total, ddp::UntaggedError code);

  enum class Target : std::uint8_t { none, nothing, write, read_response, send };
  // The segment that is being placed.
  struct Segment {
    Target target = Target::none;
    bool last = false;
    std::array<std::byte, ddp::kUntaggedHeaderSize> header{};  // write, send: a Terminate brings it back...
    std::size_t total = 0;                                     // ...and its length
    Stag write_stag{};  // write: looked up again for each piece that arrives later
    std::uint64_t write_offset = 0;
    std::span<const Sge> sges;  // read response, send: of the whole message
    const void* sge_domain = nullptr;
  };
  struct Position {
    std::size_t sge = 0;
    std::uint32_t offset = 0;
  };
  // The Send that is being received.
  struct Message {
    bool begun = false;
    Control control;
    std::uint32_t word = 0;  // the STag to invalidate, or the immediate data
    std::uint32_t received = 0;
    Position at;
    ReceiveBuffer buffer;
  };
  // The RDMA Write that Immediate Data right behind it would be about.
  struct Write {
    bool begun = false;
    std::uint32_t length = 0;  // 0 again once another message has come
  };

  const ddp::StagTable& stags_;
  const void* domain_;
  const void* stream_;
  ReceiveHost& host_;
  SharedReads* reads_ = nullptr;
  std::atomic<std::uint32_t> denied_{0};
  Parameters parameters_;
  bool heard_ = false;
  bool rtr_read_ = false;  // the first message was one
  std::atomic<bool> peer_waits_{false};
  Segment segment_;
  Position read_at_;  // of the oldest read of ours; a Send may stand between two Read Responses
  Message message_;
  Write write_;
  std::uint32_t writes_ = 0;  // that are complete, modulo 2^32
  Msn send_msn_{1};
  Msn read_msn_{1};
  Msn atomic_msn_{1};
  std::optional<Terminate> error_, peer_terminate_;
  std::optional<std::uint64_t> failed_read_;
};

}  // namespace uiw::rdmap
