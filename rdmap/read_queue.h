// SPDX-License-Identifier: MIT
// RDMA Reads and atomic operations that wait for their answers, in both directions: our requests, which the peer is to
// answer, and the peer's requests, which this end is to answer (RFC 5040 section 6.1, RFC 7306 sections 5.2 and 7).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <variant>

#include "mpa/startup.h"
#include "rdmap/rdmap_format.h"
#include "rdmap/work.h"

namespace uiw::rdmap {

// The requests that the sender (Transmitter) and the receiver (Receiver) of a stream share; each of the two runs under
// its own lock. `outstanding`: our requests that are not answered; the sender pushes, the receiver reads, and a request
// is popped with both locks held. `inbound`: the peer's requests; the receiver pushes, the sender reads and pops. Reads
// and atomic operations count against one limit, and are answered in the order of the requests. Must remain live as
// long as the sender and the receiver.
struct SharedReads {
  // There is room for one request more than was negotiated: if the ready-to-receive message is a Read (RFC 6581 section
  // 9), a peer may have agreed on no other Reads, or may not count the ready-to-receive message as a Read. A request
  // stays in `inbound` until TCP has accepted its response, so `inbound` has room for a batch of responses as well.
  static constexpr std::uint32_t kMaxResponsesInBatch = 64;
  static constexpr std::uint32_t kMostProbes = 4;  // RDMA Reads of no octets outstanding at a time; a power of two
  SharedReads(std::uint32_t ord, std::uint32_t ird)
      : outstanding(ord + 1), inbound(ird + 1 + kMaxResponsesInBatch), inbound_limit(ird) {}
  static constexpr std::uint64_t kReadyToReceive = ~std::uint64_t{0};
  static constexpr std::uint64_t kProbe = kReadyToReceive - 1;
  struct Outstanding {
    // The number of the request's entry in the send queue; the entry stays there until the request is answered or the
    // queue is flushed. A request that the transmitter makes by itself has no entry: then this is kReadyToReceive (the
    // first message in peer-to-peer mode) or kProbe (the answer says that the peer has placed what was sent before).
    std::uint64_t sequence;
    Stag sink_stag;
    std::uint64_t sink_offset;
    std::uint32_t size;
    std::uint32_t received;
    const Sge* sges;
    std::uint16_t sge_count;
    bool atomic;
    // Whether uiw has added this request itself, as a probe or as ready-to-receive message. Such a request is no posted
    // work and has no sink.
    bool is_own() const { return sequence >= kProbe; }
    // The Request Identifier of an Atomic Request.
    std::uint32_t identifier() const { return static_cast<std::uint32_t>(sequence); }
  };
  struct AtomicInbound {
    AtomicRequest request;
    bool executed = false;  // the sender executes the operation right before it builds the response
    std::uint64_t original = 0;
  };
  struct Inbound {
    std::variant<ReadRequest, AtomicInbound> request;
    Progress progress;  // the peer's work that this end had placed when the request came; the answer confirms it
  };
  // True for an RDMA Read of no octets. Its answer confirms that the peer's work before it is placed, and should be
  // sent soon.
  static bool is_probe(const Inbound& inbound) {
    const auto* read = std::get_if<ReadRequest>(&inbound.request);
    return read != nullptr && read->size == 0;
  }
  // Whether there is an inbound request that the sender has not begun to answer. To be called by the receiver, or while
  // the receiver's lock is held.
  bool answers_unsent() const { return answering.load(std::memory_order_acquire) < inbound.pushed(); }
  // Called by the sender before it gives responses to the socket: the responses to the inbound requests with numbers
  // below `below` may be sent from now on, so these requests do not count against `inbound_limit` any more. As soon as
  // the socket has the last octet of a response, the peer may send another request.
  void note_answering(std::uint64_t below) {
    if (answering.load(std::memory_order_relaxed) < below) answering.store(below, std::memory_order_release);
  }
  SpscRing<Outstanding> outstanding;
  SpscRing<Inbound> inbound;
  const std::uint32_t inbound_limit;        // how many may be unanswered at a time (IRD, RFC 5040 section 6.1)
  std::atomic<std::uint64_t> answering{0};  // inbound requests below this number are answered or being answered
  // How much of the peer's work this end has placed. Stored before the program is told of that work.
  std::atomic<std::uint64_t> progress{encode(Progress{})};
  // The kind of the peer, as far as it is known. Changes with both locks of the stream held; any thread may read it.
  std::atomic<mpa::PeerKind> peer{mpa::PeerKind::other};
};

// The sender's view of SharedReads::outstanding: which requests it has sent, and whether it may send another one.
// Called with the sender's lock held. No errors: the caller asks for room before it pushes.
class ReadQueue {
 public:
  // `shared` must remain live as long as the queue. `ord`: the greatest number of Reads and atomic operations
  // outstanding; the room of `shared` beyond `ord` is for probes and the ready-to-receive message. `first`: the first
  // entry of the send queue.
  void start(SharedReads& shared, std::uint32_t ord, std::uint64_t first) {
    ring_ = &shared.outstanding;
    most_ord_ = ord_ = ord;
    pushed_ = first;
  }
  // Sets ORD, to at most the value of start(), and returns the new value. Requests that are outstanding are answered as
  // before (Verbs draft section 6.5).
  std::uint32_t limit_ord(std::uint32_t ord) { return ord_ = std::min(ord, most_ord_); }
  std::uint32_t ord() const { return ord_; }
  std::uint32_t agreed() const { return ring_->capacity() - 1; }  // the negotiated number of requests, probes included
  // How many posted Reads and atomic operations wait for their answers. Probes and the ready-to-receive message, which
  // are not posted work, do not count.
  std::uint32_t outstanding() const { return outstanding_; }

  // has_room(): whether there is room for one more Read or atomic operation. It is not inlined, since most work is of
  // another kind and does not need it. has_room_for_probe(): whether there is room for one more probe. `probes`: how
  // many probes are outstanding.
  [[gnu::noinline]] bool has_room(std::uint32_t probes) const;
  bool has_room_for_probe(std::uint32_t probes) const;

  // To be called before the message of a Read or an atomic operation is built. The response may arrive as soon as the
  // request is sent, so the receiver must find the request in the ring before that. Entries come in order; an entry
  // whose message is built again is not pushed again.
  void push(SendQueue& queue, std::uint64_t sequence, Msn msn);
  // Pushes the ready-to-receive message, if it is a Read (RFC 6581 section 9). It waits for its answer like any other
  // Read.
  void push_ready_to_receive();
  void push_probe() { ring_->push({SharedReads::kProbe, Stag{0}, 0, 0, 0, nullptr, 0, false}); }
  // Whether this entry or a later one is a request that has been pushed.
  bool is_followed(std::uint64_t sequence) const { return sequence < pushed_; }

  // Removes the oldest request, which has been answered. Returns its `sequence` (SharedReads::Outstanding).
  std::uint64_t pop();

 private:
  SpscRing<SharedReads::Outstanding>* ring_ = nullptr;
  std::uint32_t ord_ = 0, most_ord_ = 0;
  std::uint32_t outstanding_ = 0;
  std::uint32_t ready_to_receive_ = 0;  // 1 while the ready-to-receive message waits for its answer
  bool ready_to_receive_pushed_ = false;
  std::uint64_t pushed_ = 0;  // the entry after the last pushed Read or atomic operation
};

}  // namespace uiw::rdmap
