// SPDX-License-Identifier: MIT
// Work requests as the stream knows them, and the two queues that hold them.
//
// Scatter/gather entries are resolved before they are posted: each is an address and a size, checked against the
// STag table. A SendQueue belongs to whoever holds the sender's lock. A ReceiveQueue has one poster and one taker
// at a time, which need no common lock. Neither allocates after construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ddp/stag_table.h"
#include "mpa/framer.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

using mpa::Piece;

enum class Status : std::uint8_t {
  success,
  local_length,       // the message is longer than the receive
  local_protection,   // local memory is not registered so, or not there
  local_operation,    // the stream cannot do it
  flushed,
  remote_access,
  remote_invalid_request,
  remote_operation,
  fatal,              // the connection broke under it
  window_bind,        // a window cannot be bound so
  retry_exceeded,     // the peer cannot be reached, or has left before it confirmed the work
  rnr_exceeded,       // the peer has posted no receive for too long
};

enum class WorkKind : std::uint8_t { send, write, read, atomic, immediate, local_invalidate, bind };

// Work that the peer answers, and that counts against ORD.
constexpr bool is_answered(WorkKind kind) { return kind == WorkKind::read || kind == WorkKind::atomic; }

// Work that sends nothing: it is carried out in its turn, before anything behind it is sent (Verbs draft section
// 8.2.2.1).
constexpr bool is_local(WorkKind kind) { return kind == WorkKind::local_invalidate || kind == WorkKind::bind; }

struct SendWork {
  std::uint64_t id = 0;
  std::uint64_t remote_offset = 0;
  Stag remote_stag{};
  Stag invalidate{};           // send with Invalidate: the peer's STag; local_invalidate: ours
  std::uint32_t length = 0;    // octets of the message
  std::uint16_t pieces = 0;
  WorkKind kind = WorkKind::send;
  Status status = Status::success;  // other than success: posted only to complete so, in its turn
  bool signaled = false;
  bool solicited = false;
  bool invalidates = false;
  bool check_sink = false;     // read, atomic: sink_stag is the one piece's, and is looked up again for the answer
  bool has_immediate = false;  // write: Immediate Data follows it; send: its header has the first four octets
  bool fence = false;          // waits until every earlier read is complete; local work: all earlier work
  bool done = false;           // may complete once everything before it has
  AtomicOpcode atomic{};       // its numbers stand in SendQueue::operands(); what to bind in SendQueue::binding()
  Stag sink_stag{};            // read: what the response names
  Msn request_msn{};           // read, atomic: of the request, once it has been built
  union {
    std::uint64_t sink_offset = 0;
    Immediate immediate;       // immediate; write and send with it
  };
};

// Does it take a message sequence number of the Send Queue, or one of the Read Request Queue?
constexpr bool uses_queue(const SendWork& work, Queue queue) {
  if (queue == kReadRequestQueue) return is_answered(work.kind);
  return queue == kSendQueue && (work.kind == WorkKind::send || work.kind == WorkKind::immediate || work.has_immediate);
}

struct ReceiveWork {
  std::uint64_t id = 0;
  std::uint32_t length = 0;  // octets it can take
  std::uint16_t pieces = 0;
};

// A ring of send work, addressed by sequence numbers that only grow. Entries [head, tail) are in use.
class SendQueue {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t max_pieces, std::uint32_t max_inline);

  std::uint32_t depth() const { return depth_; }
  std::uint32_t max_pieces() const { return max_pieces_; }
  std::uint32_t max_inline() const { return max_inline_; }
  std::uint64_t head() const { return head_; }
  std::uint64_t tail() const { return tail_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head_); }
  bool full() const { return size() == depth_; }
  bool empty() const { return head_ == tail_; }

  SendWork& at(std::uint64_t sequence) { return work_[sequence & mask_]; }
  std::span<Piece> pieces(std::uint64_t sequence) {
    return {pieces_.get() + (sequence & mask_) * piece_slots_, at(sequence).pieces};
  }
  // Of an entry whose kind is atomic.
  AtomicOperands& operands(std::uint64_t sequence) { return operands_[sequence & mask_].atomic; }
  // Of an entry whose kind is bind.
  ddp::Binding& binding(std::uint64_t sequence) { return operands_[sequence & mask_].binding; }
  // Room for max_pieces() entries, and for max_inline() octets, of the entry at tail().
  Piece* piece_room(std::uint64_t sequence) { return pieces_.get() + (sequence & mask_) * piece_slots_; }
  std::byte* inline_room(std::uint64_t sequence) { return inline_.get() + (sequence & mask_) * max_inline_; }

  void push() { ++tail_; }  // the entry at tail() has been filled in
  void pop() { ++head_; }
  // Takes back what was pushed from `tail` on and not yet shown to a transmitter.
  void retract(std::uint64_t tail) { tail_ = tail; }

 private:
  union Operands {
    Operands() {}  // not written to
    AtomicOperands atomic;
    ddp::Binding binding;
  };

  std::uint32_t depth_, max_pieces_, max_inline_, piece_slots_;
  std::uint64_t mask_;
  std::uint64_t head_ = 0, tail_ = 0;
  std::unique_ptr<SendWork[]> work_;
  std::unique_ptr<Piece[]> pieces_;
  std::unique_ptr<std::byte[]> inline_;
  std::unique_ptr<Operands[]> operands_;
};

class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t depth, std::uint32_t max_pieces);

  std::uint32_t depth() const { return depth_; }
  std::uint32_t max_pieces() const { return max_pieces_; }

  // Posted and not taken; exact while nobody posts or takes.
  std::uint32_t size() const {
    return static_cast<std::uint32_t>(tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire));
  }

  // The poster: false from full() means that slot() may be filled and pushed.
  bool full() const { return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_acquire) == depth_; }
  ReceiveWork& slot() { return work_[tail_.load(std::memory_order_relaxed) & mask_]; }
  Piece* slot_pieces() { return pieces_.get() + (tail_.load(std::memory_order_relaxed) & mask_) * max_pieces_; }
  void push() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  // The taker.
  bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire); }
  const ReceiveWork& front() const { return work_[head_.load(std::memory_order_relaxed) & mask_]; }
  std::span<const Piece> front_pieces() const {
    return {pieces_.get() + (head_.load(std::memory_order_relaxed) & mask_) * max_pieces_, front().pieces};
  }
  void pop() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  std::uint32_t depth_, max_pieces_;
  std::uint64_t mask_;
  std::unique_ptr<ReceiveWork[]> work_;
  std::unique_ptr<Piece[]> pieces_;
  std::atomic<std::uint64_t> head_{0}, tail_{0};
};

// A ring between one pusher and one taker.
template <typename T>
class SpscRing {
 public:
  explicit SpscRing(std::uint32_t capacity)
      : capacity_(capacity), items_(std::make_unique<T[]>(capacity == 0 ? 1 : capacity)) {}

  std::uint32_t capacity() const { return capacity_; }
  bool push(const T& item) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == capacity_) return false;
    items_[tail % capacity_] = item;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  bool empty() const { return size() == 0; }
  std::uint32_t size() const {
    return static_cast<std::uint32_t>(tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire));
  }
  // How many were ever pushed, and how many popped.
  std::uint64_t pushed() const { return tail_.load(std::memory_order_acquire); }
  std::uint64_t popped() const { return head_.load(std::memory_order_relaxed); }
  // By number, in [popped(), pushed()).
  T& at(std::uint64_t number) { return items_[number % capacity_]; }
  T& front() { return at(popped()); }
  void pop() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  std::uint32_t capacity_;
  std::unique_ptr<T[]> items_;
  std::atomic<std::uint64_t> head_{0}, tail_{0};
};

}  // namespace uiw::rdmap
