// SPDX-License-Identifier: MIT
// What Checker does when messages of peers come, or a peer and this end refuse each other's requests. The callers hold
// a lock of a queue pair, so what is found is shown by a later call of the program.
#include <algorithm>
#include <cinttypes>
#include <new>
#include <utility>

#include "provider/check/checker.h"
#include "provider/check/not_cancelled.h"
#include "provider/check/program_memory.h"
#include "provider/check/text.h"
#include "rdmap/atomic.h"
#include "rdmap/error_text.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostRefusals = 64;

long long milliseconds_since(std::chrono::steady_clock::time_point time) {
  return static_cast<long long>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - time).count());
}

// What a peer has asked for, as far as a Terminate says it.
struct Request {
  const char* what = "request";
  std::uint32_t key = 0;
  std::uint64_t offset = 0, length = 0;
  unsigned right = 0;  // IBV_ACCESS_*; 0: unknown, and then the rest is, too
};

Request request_of(const rdmap::Terminate& terminate) {
  if (!terminate.has_ddp_header) return {};
  const Octets header = Octets(terminate.ddp_header).first(terminate.ddp_header_size);
  if (header.size() == ddp::kTaggedHeaderSize) {
    const auto tagged = ddp::decode_tagged(header);
    if (!tagged || rdmap::decode_control(tagged->ulp_control).opcode != rdmap::Opcode::write) return {};
    const std::uint64_t length = std::max<std::uint64_t>(terminate.segment_length, header.size()) - header.size();
    return {"Write", static_cast<std::uint32_t>(tagged->stag), tagged->offset, length, IBV_ACCESS_REMOTE_WRITE};
  }
  if (!terminate.has_read_request) return {};
  const auto read = rdmap::decode_read_request(terminate.read_request);
  return read ? Request{"Read", static_cast<std::uint32_t>(read->source_stag), read->source_offset, read->size,
                        IBV_ACCESS_REMOTE_READ}
              : Request{};
}

std::string text_of(const Request& request) {
  if (request.right == 0) return "a request";
  return text("a %s of %llu octets at 0x%llx with key 0x%08x", request.what,
              static_cast<unsigned long long>(request.length), static_cast<unsigned long long>(request.offset),
              request.key);
}

// Whether the receiver found fault with the key or with what it names, not with the stream.
bool is_about_access(const rdmap::Terminate& terminate) {
  if (terminate.layer == rdmap::Layer::ddp) return terminate.type == static_cast<std::uint8_t>(ddp::ErrorType::tagged);
  return terminate.layer == rdmap::Layer::rdma &&
         terminate.type == static_cast<std::uint8_t>(rdmap::ErrorType::remote_protection);
}

template <typename Function>
void quietly(Function function) noexcept {
  try {
    function();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

// ---- Receives and other sinks ----

void Checker::stop_watching(Queue& queue) {
  if (queue.waits_since) --watched_, queue.waits_since.reset();
  if (queue.refused_at) --watched_, queue.refused_at.reset();
}

void Checker::message_waits(const ibv_qp& qp, std::optional<std::chrono::microseconds> patience) noexcept {
  if (off_) return;
  const LockGuard lock(mutex_);
  const auto found = work_.queues.find(&qp);
  if (found == work_.queues.end() || found->second.waits_since) return;
  Queue& queue = found->second;
  queue.posted_then = receives_of(queue).posted;
  // How often the sender tries again is its own attribute. That of this end stands for it, if this end sends, too: who
  // only receives need not have set it to anything.
  const bool known = patience && (patience->count() == 0 || queue.has_sent);
  queue.patience = known ? patience : std::nullopt;
  queue.overdue = false;
  queue.waits_since = std::chrono::steady_clock::now();
  ++watched_;
}

// The queue that the receives of a queue pair are posted to.
const Queue& Checker::receives_of(const Queue& queue) {
  const auto shared = work_.queues.find(queue.receives_from);
  return shared != work_.queues.end() ? shared->second : queue;
}

void Checker::message_goes_on(const ibv_qp& qp, bool has_receive) noexcept {
  if (off_) return;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    const LockGuard lock(mutex_);
    const auto found = work_.queues.find(&qp);
    if (found == work_.queues.end() || !found->second.waits_since) return;
    Queue& queue = found->second;
    const auto since = *std::exchange(queue.waits_since, std::nullopt);
    --watched_;
    if (queue.overdue || !has_receive || !queue.patience) return;
    if (std::chrono::steady_clock::now() - since <= *queue.patience) return;
    const Reports::At late{receives_of(queue).last_post, "the receive was posted"};
    report(FaultKind::receive_missing, late, {place_of(&qp), "created"}, [&] {
      return text("a message for queue pair 0x%06x has waited %lld ms, since no receive was posted; ", queue.number,
                  milliseconds_since(since)) +
             (queue.patience->count() == 0
                  ? "an iWARP adapter ends the connection then"
                  : "with rnr_retry and min_rnr_timer as of this end an adapter would have ended the connection");
    });
  });
}

// Messages that have waited for so long that an adapter would have given up; or for which no receive can be posted any
// more.
void Checker::look_at_waits(const void* ending, bool at_end) {
  if (watched_.load(std::memory_order_relaxed) == 0) return;
  const auto now = std::chrono::steady_clock::now();
  for (auto& [handle, known] : work_.queues) {
    Queue& queue = known;
    const bool ends = at_end || handle == ending;
    if (!queue.waits_since || queue.overdue || now - *queue.waits_since < kPatience) continue;
    if (!ends && (!queue.patience || now - *queue.waits_since <= *queue.patience)) continue;
    if (receives_of(queue).posted > queue.posted_then) continue;
    queue.overdue = true;
    const bool posted = queue.posted != 0 || queue.receives_from != nullptr;
    if (queue.lost != 0 && !posted) {
      report(FaultKind::receives_reset, {queue.reset, "reset"}, {queue.lost_post, "posted before"}, [&] {
        return text(
            "a message for queue pair 0x%06x waits for a receive: with the step to RESET %zu were lost that the "
            "program had posted, and it has posted none since",
            queue.number, queue.lost);
      });
      continue;
    }
    report(FaultKind::receive_missing, {place_of(handle), "created"}, {}, [&] {
      return text("a message for queue pair 0x%06x has waited for a receive for %lld ms, and none is posted",
                  queue.number, milliseconds_since(*queue.waits_since));
    });
  }
}

void Checker::sink_begins(std::uint64_t number) noexcept {
  if (off_) return;
  const LockGuard lock(mutex_);
  Work* const work = work_.find(number);
  if (work == nullptr) return;
  for (const Span& span : work->spans) {
    if (!span.checksum || !span.entered || shared_sinks_.contains(span.lkey)) continue;
    const auto now = checksum_of(*work, span);
    work->written = work->written || (now && now != span.checksum);
  }
}

void Checker::sink_filled(std::uint64_t number, std::uint32_t length) noexcept {
  if (off_) return;
  const LockGuard lock(mutex_);
  Work* const work = work_.find(number);
  if (work == nullptr) return;
  work->filled = true;
  uncover(*work, length);
  for (Span& span : work->spans) {
    if (!span.checksum) continue;
    span.checksum = span.entered ? checksum_of(*work, span) : std::nullopt;
    if (has_words_.load(std::memory_order_relaxed)) forget_words(span.address, span.length);
  }
}

void Checker::sink_returned(std::uint64_t number) noexcept {
  if (off_) return;
  const LockGuard lock(mutex_);
  Work* const work = work_.find(number);
  if (work == nullptr) return;
  uncover(*work, 0);
  for (Span& span : work->spans) span.checksum.reset();
}

// ---- Memory that peers use ---------------------------------------------------------------------------------------

void Checker::look_at_target(const ibv_qp& qp, const std::vector<Placed>& parts) noexcept {
  if (off_) return;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    const LockGuard lock(mutex_);
    const std::uint32_t number = work_.queues[&qp].number;
    for (const Placed& part : parts) {
      const auto found = regions_.find(part.key);
      if (found == regions_.end() || !found->second.live || found->second.address == 0) continue;
      const Region& region = found->second;
      if (!region.contains(part.offset, part.length)) continue;
      const std::uintptr_t address = region.address + (part.offset - region.iova);
      const auto now = checksum_of(address, part.length);
      if (!now || now == part.checksum) continue;
      report(FaultKind::sink_written, {place_of(region.handle), "registered"},
             {place_of(&qp), "the queue pair was created"}, [&] {
               return text(
                   "some of the %u octets at 0x%" PRIxPTR
                   " were written by something else while a peer's Write to queue pair 0x%06x was placing there",
                   part.length, address, number);
             });
      return;
    }
  });
}

// ---- Reads and atomic operations ----

void Checker::compares_reads(const ibv_qp& qp, std::uint32_t own, std::uint32_t peers) noexcept {
  if (off_ || !warns() || own <= peers) return;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    const LockGuard lock(mutex_);
    report(FaultKind::not_portable, {place_of(&qp), "created"}, {}, [&] {
      return text(
          "max_rd_atomic is %u, and the peer's max_dest_rd_atomic is %u; adapters end the connection if more "
          "Reads come at once than the peer has said",
          own, peers);
    });
  });
}

void Checker::forget_words(std::uintptr_t address, std::uint64_t length) {
  constexpr std::uintptr_t kBefore = rdmap::kAtomicSize - 1;
  words_.erase(words_.lower_bound(address - std::min(address, kBefore)), words_.lower_bound(address + length));
}

void Checker::is_written(std::uint32_t key, std::uint64_t offset, std::uint32_t length) noexcept {
  if (off_ || !has_words_.load(std::memory_order_relaxed)) return;
  const LockGuard lock(mutex_);
  const auto found = regions_.find(key);
  if (found == regions_.end() || !found->second.contains(offset, length)) return;
  forget_words(found->second.address + (offset - found->second.iova), length);
}

// With the lock, so that the operations of all threads are seen in their order.
bool Checker::execute(const rdmap::AtomicRequest& request, std::byte* memory, std::uint64_t& original) noexcept {
  const auto carry_out = [&] { return rdmap::execute(request.opcode, request.operands, memory, original); };
  if (off_ || !warns() || !atomics_miss_processors()) return carry_out();
  const LockGuard lock(mutex_);
  if (!carry_out()) return false;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    look_at_word(static_cast<std::uint32_t>(request.stag), reinterpret_cast<std::uintptr_t>(memory), original,
                 rdmap::result_of(request.opcode, request.operands, original));
  });
  return true;
}

void Checker::look_at_word(std::uint32_t key, std::uintptr_t address, std::uint64_t before, std::uint64_t after) {
  constexpr std::size_t kMostWords = 4096;
  const auto region = regions_.find(key);
  if (region == regions_.end() || !region->second.live || region->second.address == 0) return;
  const auto known = words_.find(address);
  if (known == words_.end()) {
    if (words_.size() < kMostWords) words_[address] = after;
    has_words_ = true;
    return;
  }
  const bool changed = std::exchange(known->second, after) != before;
  // Another process may have carried out operations, which are atomic with those of this one.
  if (!changed || is_shared(address)) return;
  report(FaultKind::not_portable, {place_of(region->second.handle), "registered"}, {}, [&] {
    return text("a processor has stored in the 8 octets at 0x%" PRIxPTR
                ", on which peers carry out atomic operations; adapters say IBV_ATOMIC_HCA, so the store may be lost "
                "if an operation comes at the same time",
                address);
  });
}

// ---- Refusals --------------------------------------------------------------------------------------------------

std::string Checker::end_of(const Region& region, std::uint64_t offset) {
  return text("its region was deregistered %lld ms before", milliseconds_since(region.ended)) + nearest_region(offset);
}

// "; the nearest region that is registered now has ..."
std::string Checker::nearest_region(std::uint64_t offset) {
  const Region* nearest = nullptr;
  std::uint32_t key = 0;
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& [lkey, region] : regions_) {
    if (!region.live || region.length == 0) continue;
    const std::uint64_t before = region.iova > offset ? region.iova - offset : 0;
    const std::uint64_t after = offset - region.iova < region.length ? 0 : offset - region.iova - region.length;
    const std::uint64_t distance = before != 0 ? before : after;
    if (nearest != nullptr && distance >= least) continue;
    nearest = &region;
    key = lkey;
    least = distance;
  }
  if (nearest == nullptr) return "; no region is registered now";
  return text("; the nearest region that is registered now has key 0x%08x and %llu octets at 0x%llx", key,
              static_cast<unsigned long long>(nearest->length), static_cast<unsigned long long>(nearest->iova));
}

void Checker::refuses(const ibv_qp& qp, const rdmap::Terminate& terminate) noexcept {
  if (off_ || !is_about_access(terminate)) return;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    const LockGuard lock(mutex_);
    const Request request = request_of(terminate);
    const auto found = regions_.find(request.key);
    const bool known =
        request.right != 0 && found != regions_.end() && (!found->second.live || found->second.length != 0);
    const Region* const region = known ? &found->second : nullptr;
    std::string reason;
    Reports::At at;
    if (region != nullptr && !region->live) {
      reason = end_of(*region, request.offset);
      at = {region->destroyed, "deregistered"};
    } else if (region != nullptr && !region->contains(request.offset, request.length)) {
      reason = text("the region with this key has %llu octets at 0x%llx",
                    static_cast<unsigned long long>(region->length), static_cast<unsigned long long>(region->iova));
      at = {place_of(region->handle), "registered"};
    } else if (region != nullptr && (region->access & request.right) == 0) {
      reason = text("the region with this key is not registered for remote %s",
                    request.right == IBV_ACCESS_REMOTE_WRITE ? "write" : "read");
      at = {place_of(region->handle), "registered"};
    } else if (region != nullptr) {
      reason = std::string(rdmap::text_of(terminate).error) +
               "; its region has the range and the right, so look at the protection domains and at qp_access_flags";
      at = {place_of(region->handle), "registered"};
    } else {
      reason = rdmap::text_of(terminate).error;
      if (request.right != 0) reason += "; no region has this key, perhaps a window" + nearest_region(request.offset);
    }
    const auto queue = work_.queues.find(&qp);
    const std::uint32_t number = queue != work_.queues.end() ? queue->second.number : 0;
    Reports::At other{place_of(&qp), "the queue pair was created"};
    if (at.place == Place()) at = std::exchange(other, {});
    report(FaultKind::peer_refused, at, other, [&] {
      return text_of(request) + text(" that a peer has made to queue pair 0x%06x was refused: ", number) + reason;
    });
    refusals_.push_back({request.key, request.offset, reason});
    if (refusals_.size() > kMostRefusals) refusals_.pop_front();
  });
}

void Checker::is_refused(const ibv_qp& qp, const rdmap::Terminate& terminate) noexcept {
  if (off_) return;
  quietly([&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
    const LockGuard lock(mutex_);
    if (const auto queue = work_.queues.find(&qp); queue != work_.queues.end()) queue->second.refusal = terminate;
  });
}

std::deque<Checker::Refusal> Checker::refusals() {
  if (off_) return {};
  const LockGuard lock(mutex_);
  return refusals_;
}

void Checker::report_refused(const Refused& refused) {
  const Work& work = refused.work;
  std::string reason;
  const Reports::At at{work.caller, "posted"};
  Reports::At other{{}, "the queue pair was created"};
  {
    const LockGuard lock(mutex_);
    other.place = place_of(work.queue);
  }
  if (!reports_.knows(FaultKind::access_refused, at, other)) {
    // This asks other processes, which waits for their answers.
    const NotCancelled not_cancelled;
    const Request request = request_of(refused.answer);
    if (request.right != 0) reason = questions_.reason_at_peer(request.key, request.offset);
  }
  if (reason.empty()) {
    reason = std::string(rdmap::text_of(refused.answer).error) +
             " (to learn more, run the peer on this host, and with --check, too)";
  }
  const Locked lock(*this);
  report(FaultKind::access_refused, at, other, [&] {
    return text_of(work) +
           text(", to 0x%" PRIx64 " with key 0x%08x, was refused by the peer: ", work.remote_address, work.remote_key) +
           reason;
  });
}

}  // namespace uiw::provider::check
