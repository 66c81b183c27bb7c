// SPDX-License-Identifier: MIT
// Work requests in the form that the stream uses, and their queues.
//
// A work request names memory by STag and tagged offset, as the program has posted it, and the memory is looked up in
// the STag table at each use. A SendQueue is used with the sender's lock held, except that its poster may fill in
// entries without the lock. A ReceiveQueue has one poster and one taker at a time, which need no common lock. The
// queues allocate memory for the greatest number of entries that they have had so far (queue_memory.h). Constructors
// throw std::bad_alloc; later, if memory is short, the queue has no room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "ddp/stag_table.h"
#include "mpa/framer.h"
#include "rdmap/queue_memory.h"
#include "rdmap/rdmap_format.h"

namespace uiw::rdmap {

using mpa::MemorySegment;

enum class Status : std::uint8_t {
  success,
  local_length,      // the message is longer than the receive
  local_protection,  // local memory is not registered for this use, or not accessible
  local_operation,   // the stream does not support the operation
  flushed,
  remote_access,
  remote_invalid_request,
  remote_operation,
  fatal,           // the connection failed
  window_bind,     // the window could not be bound
  retry_exceeded,  // the peer cannot be reached, or has left before it confirmed the work
  rnr_exceeded,    // the peer has posted no receive for too long
};

// `choice` is uiw's own: no work request, but the message kSharedQueue, which names the shared receive queue of the
// peer that the work behind it is for (XRC). It is never signaled, and completes unseen.
enum class WorkKind : std::uint8_t { send, write, read, atomic, immediate, local_invalidate, bind, choice };

// Whether the peer answers this work; such work counts against ORD.
constexpr bool is_answered(WorkKind kind) { return kind == WorkKind::read || kind == WorkKind::atomic; }

// Whether this work sends nothing. It is carried out in its turn, before later work is sent (Verbs draft section
// 8.2.2.1).
constexpr bool is_local(WorkKind kind) { return kind == WorkKind::local_invalidate || kind == WorkKind::bind; }

// A scatter/gather element. Its memory is used only while the STag names the same registration as when the work was
// posted.
struct Sge {
  Stag stag;
  std::uint32_t length;
  std::uint64_t offset;        // tagged offset of the first octet
  ddp::Registered registered;  // Registration::none: the memory may not be used for this work, which fails
};
static_assert(std::is_trivially_default_constructible_v<Sge>);  // so the queues need not construct elements

// Looks up the memory of the octets [from, from + size) of the element.
inline ddp::Access find(const ddp::Accessor& memory, const Sge& sge, std::uint64_t from, std::uint64_t size,
                        ddp::Right right) {
  return memory.find(sge.registered, sge.offset + from, size, right);
}

struct SendWork {
  std::uint64_t id = 0;
  std::uint64_t remote_offset = 0;
  Stag remote_stag{};
  Stag invalidate{};         // send with Invalidate: the peer's STag; local_invalidate: ours
  std::uint32_t length = 0;  // octets of the message
  std::uint16_t sges = 0;
  WorkKind kind = WorkKind::send;
  Status status = Status::success;  // not success: the work sends nothing, and completes with this status in its turn
  bool signaled = false;
  bool solicited = false;
  bool invalidates = false;
  bool inlined = false;        // the octets are in SendQueue::inline_room()
  bool has_immediate = false;  // write: Immediate Data follows; send: the header has the first four octets
  bool fence = false;          // waits for all earlier Reads and atomics; local work: for all earlier work
  bool done = false;           // completes as soon as all work before it has completed
  AtomicOpcode atomic{};       // operands are in SendQueue::operands(); those of a bind in SendQueue::binding()
  union {
    struct {
      Stag sink_stag;   // read: the STag that the response names
      Msn request_msn;  // read, atomic: the MSN of the request, once it has been built
    };
    std::uint64_t end = 0;  // other work, once sent: where it ends in the byte stream
  };
  union {
    std::uint64_t sink_offset = 0;
    Immediate immediate;  // kind immediate, and write and send with has_immediate
  };
};

// A Send or Write that needs no check before it is sent: it waits for nothing, no check can make it fail (its memory
// may still be gone when it is sent), and it carries no immediate.
constexpr bool is_plain(const SendWork& work) {
  return work.kind <= WorkKind::write && work.status == Status::success && !work.fence && !work.has_immediate;
}
static_assert(WorkKind{0} == WorkKind::send && WorkKind{1} == WorkKind::write);

// Whether the work uses an MSN of `queue`, DDP's queue number 0 (Sends) or 1 (Read Requests).
constexpr bool uses_queue(const SendWork& work, Queue queue) {
  if (queue == kReadRequestQueue) return is_answered(work.kind);
  return queue == kSendQueue && (work.kind == WorkKind::send || work.kind == WorkKind::immediate || work.has_immediate);
}

struct ReceiveWork {
  std::uint64_t id = 0;
  std::uint32_t length = 0;  // octets that the receive has room for
  std::uint16_t sges = 0;
};

// A ring of send work, addressed by sequence numbers that only grow. The entries [head, tail) are in use. The one
// poster may fill in entries from the tail on without a lock, after has_room() has returned true for each.
class SendQueue {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t max_sges, std::uint32_t max_inline);

  std::uint32_t depth() const { return depth_; }
  std::uint32_t max_sges() const { return max_sges_; }
  std::uint32_t max_inline() const { return max_inline_; }
  std::uint64_t head() const { return head_.load(std::memory_order_relaxed); }
  std::uint64_t tail() const { return tail_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(tail_ - head()); }
  bool full() const { return size() == depth_; }
  bool empty() const { return head() == tail_; }
  // Whether there is room for the entry `sequence`, at or after the tail. To be called by the poster. If memory is
  // short, there may be no room in a queue that is not full; an empty queue has room for the entry at its tail.
  bool has_room(std::uint64_t sequence) {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    return sequence - head < depth_ && entries_.provide(sequence, head);
  }
  // As has_room(), for operands() or binding() of the entry, which few entries need.
  bool has_operand_room(std::uint64_t sequence) {
    return operands_.provide(sequence, head_.load(std::memory_order_acquire));
  }

  // `sequence` is an entry that there is room for and that is not popped.
  SendWork& at(std::uint64_t sequence) {
    return reinterpret_cast<SendWork*>(entries_.of(sequence))[QueueMemory::index(sequence)];
  }
  // The entry of the request that `sequence` belongs to, if that is still in use: a choice belongs to the request
  // behind it.
  std::uint64_t request_of(std::uint64_t sequence) {
    const bool used = sequence >= head() && sequence + 1 < tail_;
    return used && at(sequence).kind == WorkKind::choice ? sequence + 1 : sequence;
  }
  std::span<const Sge> sges(std::uint64_t sequence) { return {sge_room(sequence), at(sequence).sges}; }
  // For entries of kind atomic.
  AtomicOperands& operands(std::uint64_t sequence) { return operand_room(sequence).atomic; }
  // For entries of kind bind.
  ddp::Binding& binding(std::uint64_t sequence) { return operand_room(sequence).binding; }
  // Room for max_sges() elements, or else for max_inline() octets.
  Sge* sge_room(std::uint64_t sequence) { return reinterpret_cast<Sge*>(inline_room(sequence)); }
  std::byte* inline_room(std::uint64_t sequence) {
    return entries_.of(sequence) + QueueMemory::kEntries * sizeof(SendWork) + QueueMemory::index(sequence) * room_;
  }

  void push(std::uint32_t count = 1) { tail_ += count; }  // the entries from tail() on have been filled in
  void pop() { head_.store(head() + 1, std::memory_order_release); }

 private:
  union Operands {
    AtomicOperands atomic;
    ddp::Binding binding;
  };
  Operands& operand_room(std::uint64_t sequence) {
    return reinterpret_cast<Operands*>(operands_.of(sequence))[QueueMemory::index(sequence)];
  }

  std::uint32_t depth_, max_sges_, max_inline_;
  std::size_t room_;  // octets of an entry's elements, or of its inline data
  std::atomic<std::uint64_t> head_{0};
  std::uint64_t tail_ = 0;
  QueueMemory entries_;  // in a block: first all SendWork, then the elements or inline data of each
  QueueMemory operands_;
};

// A ring of receives between one poster and one taker.
class ReceiveQueue {
 public:
  ReceiveQueue(std::uint32_t depth, std::uint32_t max_sges);

  std::uint32_t depth() const { return depth_; }
  std::uint32_t max_sges() const { return max_sges_; }

  // The number of receives that are posted and not taken; exact while no thread posts or takes.
  std::uint32_t size() const {
    return static_cast<std::uint32_t>(tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire));
  }

  // For the poster: has_room() says whether slot() may be filled and pushed; reserve() whether `count` receives may be
  // posted one after the other. If memory is short, there may be no room in a queue that is neither full nor empty.
  bool has_room() { return reserve(1); }
  bool reserve(std::uint32_t count) {
    const std::uint64_t head = head_.load(std::memory_order_acquire), tail = tail_.load(std::memory_order_relaxed);
    if (tail - head + count > depth_) return false;
    for (std::uint64_t i = tail; i < tail + count; ++i) {
      if (!entries_.provide(i, head)) return false;
    }
    return true;
  }
  ReceiveWork& slot() { return work(tail_.load(std::memory_order_relaxed)); }
  Sge* slot_sges() { return sge_room(tail_.load(std::memory_order_relaxed)); }
  // push() and empty() are sequentially consistent: after push() the poster may check whether the taker has stopped for
  // lack of a receive, and a taker that has just stopped may call empty() again. At least one of the two sees what the
  // other has done.
  void push() { tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst); }

  // For the taker.
  bool empty() const { return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst); }
  const ReceiveWork& front() const { return work(head_.load(std::memory_order_relaxed)); }
  std::span<const Sge> front_sges() const { return {sge_room(head_.load(std::memory_order_relaxed)), front().sges}; }
  void pop() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  ReceiveWork& work(std::uint64_t number) const {
    return reinterpret_cast<ReceiveWork*>(entries_.of(number))[QueueMemory::index(number)];
  }
  Sge* sge_room(std::uint64_t number) const {
    std::byte* room = entries_.of(number) + QueueMemory::kEntries * sizeof(ReceiveWork);
    return reinterpret_cast<Sge*>(room) + QueueMemory::index(number) * max_sges_;
  }

  std::uint32_t depth_, max_sges_;
  QueueMemory entries_;  // in a block: first all ReceiveWork, then the elements of all of them
  std::atomic<std::uint64_t> head_{0}, tail_{0};
};

// A ring between one pusher and one taker. The constructor throws std::bad_alloc.
template <typename T>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  explicit SpscRing(std::uint32_t capacity) : capacity_(capacity), items_(capacity, sizeof(T)) {
    if (capacity > 0) items_.provide_first();
  }

  std::uint32_t capacity() const { return capacity_; }
  // For the pusher. If memory is short, there may be no room in a ring that is neither full nor empty.
  bool has_room() {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed), head = head_.load(std::memory_order_acquire);
    return tail - head < capacity_ && items_.provide(tail, head);
  }
  bool push(const T& item) {
    if (!has_room()) return false;
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    std::construct_at(&at(tail), item);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  bool empty() const { return size() == 0; }
  std::uint32_t size() const {
    return static_cast<std::uint32_t>(tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire));
  }
  // The total numbers of items pushed and popped.
  std::uint64_t pushed() const { return tail_.load(std::memory_order_acquire); }
  std::uint64_t popped() const { return head_.load(std::memory_order_relaxed); }
  // The item with this number, in [popped(), pushed()).
  T& at(std::uint64_t number) { return reinterpret_cast<T*>(items_.of(number))[QueueMemory::index(number)]; }
  T& front() { return at(popped()); }
  void pop() { head_.store(head_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  std::uint32_t capacity_;
  QueueMemory items_;
  std::atomic<std::uint64_t> head_{0}, tail_{0};
};

}  // namespace uiw::rdmap
