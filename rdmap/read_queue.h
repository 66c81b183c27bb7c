// SPDX-License-Identifier: MIT
// RDMA Reads and atomic operations that wait for their answers: ours, which the peer is to answer, and the peer's,
// which we are to answer (RFC 5040 section 6.1, RFC 7306 sections 5.2 and 7).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <variant>

#include "rdmap/rdmap_format.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// What the two halves of a stream share, each with a lock of its own: reads and atomic operations requested and not
// answered (the sender pushes, the receiver takes and pops), and those the peer has requested (the receiver pushes, the
// sender takes and pops). Both kinds count against one limit, and are answered in the order of the requests.
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
    Progress progress;  // when it came: its answer confirms so much
  };
  // An RDMA Read of no octets: its answer confirms that the peer's work is placed, and is to go out soon.
  static bool is_probe(const Inbound& inbound) {
    const auto* read = std::get_if<ReadRequest>(&inbound.request);
    return read != nullptr && read->size == 0;
  }
  // Is there an inbound one that the sender has not taken? For the receiver, or with the receiver kept away.
  bool answers_unsent() const { return answering.load(std::memory_order_acquire) < inbound.pushed(); }
  // The sender: the inbound ones below this number are on their way to the socket. The peer may have the last octet of
  // a response, and request more, as soon as the socket has it.
  void note_answering(std::uint64_t below) {
    if (answering.load(std::memory_order_relaxed) < below) answering.store(below, std::memory_order_release);
  }
  SpscRing<Outstanding> outstanding;
  SpscRing<Inbound> inbound;
  const std::uint32_t inbound_limit;        // how many may be open at a time (RFC 5040 section 6.1)
  std::atomic<std::uint64_t> answering{0};  // of the inbound ones, by number: responses below this are on their way
  std::atomic<std::uint64_t> progress{encode(Progress{})};  // of this end; set before the consumer can know of it
};

// The sender's account of SharedReads::outstanding: what it has requested, and whether it may request more. It belongs
// to whoever holds the sender's lock. No errors: there is room for what is pushed.
class ReadQueue {
 public:
  // `shared` must remain live as long as the queue. `ord`: reads and atomic operations at a time, at most; what
  // `shared` has room for beyond it is for probes alone. `first` is the send queue's next entry.
  void start(SharedReads& shared, std::uint32_t ord, std::uint64_t first) {
    ring_ = &shared.outstanding;
    most_ord_ = ord_ = ord;
    pushed_ = answered_pushed_ = first;
  }
  // At most what start() said. Returns what holds from here on; those that are outstanding are answered as before
  // (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return ord_ = std::min(ord, most_ord_); }
  std::uint32_t ord() const { return ord_; }
  std::uint32_t agreed() const { return ring_->capacity() - 1; }  // with those for probes
  std::uint32_t outstanding() const { return outstanding_; }      // without probes

  // For one more read or atomic operation, and for one more probe, where `probes` are outstanding?
  [[gnu::noinline]] bool has_room(std::uint32_t probes) const;  // most work is no Read
  bool has_room_for_probe(std::uint32_t probes) const;

  // The request is built for the first time, and is the entry `sequence` of the send queue. The receiver must know of
  // it before its response can come, hence before the request is sent. Entries come in order, those that are no reads
  // too; one that was passed before is not pushed again.
  void push(SendQueue& queue, std::uint64_t sequence, Msn msn) {
    if (is_passed(sequence)) return;
    pushed_ = sequence + 1;
    SendWork& work = queue.at(sequence);
    if (is_answered(work.kind)) push_answered(queue, work, sequence, msn);
  }
  // The ready-to-receive message is a read (RFC 6581 section 9).
  void push_ready_to_receive();
  void push_probe() { ring_->push({SharedReads::kProbe, Stag{0}, 0, 0, 0, nullptr, 0, false}); }
  // The entry has been built before, and is pushed if it is a read.
  bool is_passed(std::uint64_t sequence) const { return sequence < pushed_; }
  // It, or an entry behind it, is a read that has been pushed.
  bool is_followed(std::uint64_t sequence) const { return sequence < answered_pushed_; }

  // The oldest one has been answered. Returns its sequence, as in SharedReads::Outstanding.
  std::uint64_t pop();

 private:
  [[gnu::noinline]] void push_answered(SendQueue& queue, SendWork& work, std::uint64_t sequence, Msn msn);

  SpscRing<SharedReads::Outstanding>* ring_ = nullptr;
  std::uint32_t ord_ = 0, most_ord_ = 0;
  std::uint32_t outstanding_ = 0;
  bool ready_to_receive_pushed_ = false;
  std::uint64_t pushed_ = 0;           // entries below this are in the ring, if they are reads
  std::uint64_t answered_pushed_ = 0;  // likewise, counted for reads and atomic operations alone
};

}  // namespace uiw::rdmap
