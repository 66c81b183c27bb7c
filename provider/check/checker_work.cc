// SPDX-License-Identifier: MIT
// What Checker does when the program posts work and polls completions.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <utility>

#include "base/guarded_copy.h"
#include "mpa/crc32c.h"
#include "provider/check/checker.h"
#include "provider/check/text.h"
#include "provider/process/limits.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostAtOnce = 4 * kMaxSrqWr;

// The checksum of memory that may not be accessible any more: then nothing.
std::optional<std::uint32_t> checksum_of(const Span& span) {
  std::array<std::byte, 4096> copy;
  mpa::Crc32c crc;
  for (std::size_t at = 0; at < span.length; at += copy.size()) {
    const std::size_t size = std::min<std::size_t>(copy.size(), span.length - at);
    if (!guarded_copy_unordered(copy.data(), reinterpret_cast<const void*>(span.address + at), size)) return {};
    crc.add(copy.data(), size);
  }
  return crc.value();
}

struct Opcode {
  const char* what;
  Role role;
};

Opcode meaning_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV: return {"Send", Role::source};
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return {"Write", Role::source};
    case IBV_WR_RDMA_READ: return {"Read", Role::sink};
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return {"atomic", Role::sink};
    default: return {"request", Role::neither};
  }
}

}  // namespace

template <typename Text>
void Checker::find(const Work& work, FaultKind kind, const Reports::At& at, const Reports::At& other, Text text) {
  findings_.push_back({work.number, kind, at, other, reports_.knows(kind, at, other) ? std::string() : text()});
}

Work Checker::work_of(const ibv_qp& qp, const ibv_send_wr& request, const Place& caller) {
  const Opcode opcode = meaning_of(request.opcode);
  const Queue& queue = work_.queues[&qp];
  Work work;
  work.number = work_.take_number();
  work.wr_id = request.wr_id;
  work.queue = &qp;
  work.queue_number = queue.number;
  work.caller = caller;
  work.what = opcode.what;
  work.role = (request.send_flags & IBV_SEND_INLINE) != 0 ? Role::neither : opcode.role;
  work.sends = true;
  work.signaled = queue.signals_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  work.cq = work.signaled ? queue.send_cq : nullptr;
  return work;
}

// Finds the memory that the elements of a request name. The elements are checked by the call itself, so here only what
// lies in a region counts.
void Checker::name_memory(Work& work, const ibv_sge* list, int count) {
  if (work.role == Role::neither || list == nullptr) return;
  for (int i = 0; i < std::min(count, kMaxSge); ++i) {
    const ibv_sge& sge = list[i];
    if (sge.length == 0) continue;
    Span span;
    span.length = sge.length;
    span.lkey = sge.lkey;
    const auto found = regions_.find(sge.lkey);
    if (found != regions_.end() && !found->second.live) {
      find(work, FaultKind::key_gone, {work.caller, "posted"}, {found->second.destroyed, "deregistered"},
           [&] { return text_of(work) + text(" names lkey 0x%08x, whose region was deregistered", sge.lkey); });
    } else if (found != regions_.end() && found->second.address != 0) {
      const Region& region = found->second;
      const std::uint64_t offset = sge.addr - region.iova;
      if (offset <= region.length && sge.length <= region.length - offset) span.address = region.address + offset;
    }
    work.spans.push_back(span);
  }
}

// Whether memory of the work is in use by earlier work. Two sources may have the same memory; then it must not have
// changed in between.
void Checker::look_for_overlap(const Work& work, const Span& span) {
  for (const Role role : {Role::sink, Role::source}) {
    if (role == Role::source && work.role == Role::source) continue;
    const Work* const before = work_.find(work_.memory.user_of(span, role));
    if (before == nullptr) continue;
    find(work, FaultKind::memory_overlap, {work.caller, "posted"}, {before->caller, "posted before"}, [&] {
      return text_of(work) + " has " + octets_of(span) + ", of which some are in use by " + text_of(*before) +
             ", which has not completed";
    });
  }
  if (work.role != Role::source) return;
  const Memory::Source* const same = work_.memory.same_source(span);
  if (same == nullptr || !same->checksum || same->checksum == span.checksum) return;
  const Work* const before = work_.find(same->latest);
  if (before == nullptr) return;
  find(work, FaultKind::source_changed, {work.caller, "posted again"}, {before->caller, "posted before"}, [&] {
    return "the " + octets_of(span) + " of " + text_of(*before) +
           " have changed before it has completed, and are posted again";
  });
}

void Checker::look_at_queues(const Work& work) {
  const Queue& queue = work_.queues[work.queue];
  if (work.sends && !work.signaled && queue.depth != 0 && queue.sends.size() >= queue.depth && queue.signaled == 0) {
    const Object* const owner = objects_.find(work.queue);
    find(work, FaultKind::send_queue_stuck, {work.caller, "posted"},
         {owner != nullptr ? owner->created : Place(), "created"}, [&] {
           return text(
               "the send queue of queue pair 0x%06x has %u places, and none of the last %zu requests "
               "is signaled; on an adapter nothing can be posted to it any more",
               queue.number, queue.depth, queue.sends.size());
         });
  }
  const auto cq = work_.completion_queues.find(work.cq);
  if (cq == work_.completion_queues.end() || cq->second.ignores_overrun || cq->second.owed < cq->second.places) return;
  const Object* const object = objects_.find(work.cq);
  find(work, FaultKind::cq_overrun, {work.caller, "posted"}, {object != nullptr ? object->created : Place(), "created"},
       [&] {
         return text_of(work) + text(
                                    " makes it possible that a completion queue of %zu places overruns: %zu "
                                    "completions are to come, or were not polled",
                                    cq->second.places, cq->second.owed + 1);
       });
}

// Computes the checksums of sources, then adds the work to what is known.
void Checker::enter_work(std::vector<Work>& works) {
  for (Work& work : works) {
    for (Span& span : work.spans) {
      if (work.role == Role::source && span.address != 0) span.checksum = checksum_of(span);
    }
  }
  const Locked lock(*this);
  for (Work& work : works) {
    for (const Span& span : work.spans) {
      if (span.address != 0) look_for_overlap(work, span);
    }
    look_at_queues(work);
    work_.add(std::move(work));
  }
}

void Checker::begin_post(const ibv_qp& qp, const ibv_send_wr* requests, const Place& caller,
                         std::vector<ibv_send_wr>& copies) {
  if (off_) return;
  std::vector<Work> works;
  {
    const Locked lock(*this);
    // Many more than the queue has places for are not posted, so a list without end is not followed either.
    for (const ibv_send_wr* one = requests; one != nullptr && works.size() < kMostAtOnce; one = one->next) {
      copies.push_back(*one);
      works.push_back(work_of(qp, *one, caller));
      name_memory(works.back(), one->sg_list, one->num_sge);
      copies.back().wr_id = works.back().number;
    }
  }
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].next = i + 1 < copies.size() ? &copies[i + 1] : nullptr;
  enter_work(works);
}

void Checker::begin_post(const void* queue, const ibv_recv_wr* requests, const Place& caller,
                         std::vector<ibv_recv_wr>& copies) {
  if (off_) return;
  std::vector<Work> works;
  {
    const Locked lock(*this);
    Queue& known = work_.queues[queue];
    if (const Object* const object = objects_.find(queue)) {
      known.shared = object->kind == Kind::shared_receives;
      known.number = object->number;
    }
    for (const ibv_recv_wr* one = requests; one != nullptr && works.size() < kMostAtOnce; one = one->next) {
      copies.push_back(*one);
      Work work;
      work.number = work_.take_number();
      work.wr_id = one->wr_id;
      work.queue = queue;
      work.queue_number = known.number;
      work.shared = known.shared;
      work.cq = known.receive_cq;
      work.caller = caller;
      work.what = "receive";
      work.role = Role::sink;
      work.signaled = true;
      works.push_back(std::move(work));
      name_memory(works.back(), one->sg_list, one->num_sge);
      copies.back().wr_id = works.back().number;
    }
  }
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].next = i + 1 < copies.size() ? &copies[i + 1] : nullptr;
  enter_work(works);
}

void Checker::add(const ibv_qp& qp, ibv_send_wr& request, const Place& caller) {
  if (off_) return;
  std::vector<Work> works;
  {
    const Locked lock(*this);
    works.push_back(work_of(qp, request, caller));
    name_memory(works.back(), request.sg_list, request.num_sge);
  }
  const std::uint64_t number = works.back().number;
  enter_work(works);
  request.wr_id = number;
}

void Checker::posted(std::uint64_t first, std::size_t count, std::size_t accepted) {
  if (off_) return;
  const Locked lock(*this);
  for (std::size_t i = count; i > accepted; --i) work_.withdraw(first + i - 1);
  for (Finding& finding : findings_) {
    if (finding.number < first || finding.number >= first + count) continue;
    if (finding.number < first + accepted)
      report(finding.kind, finding.at, finding.other, [&] { return std::move(finding.text); });
    finding.number = 0;
  }
  std::erase_if(findings_, [](const Finding& finding) { return finding.number == 0; });
}

void Checker::polled(ibv_wc* completions, int count, const void* caller) {
  if (off_) return;
  std::vector<Work> done;
  // With the lock: a call that deregisters the memory meanwhile takes it, too, before it returns.
  const Locked lock(*this);
  for (int i = 0; i < count; ++i) {
    if (const auto wr_id = work_.complete(completions[i].wr_id, done)) completions[i].wr_id = *wr_id;
  }
  for (const Work& work : done) {
    for (const Span& span : work.spans) {
      if (!span.checksum) continue;
      const auto now = checksum_of(span);
      if (!now || now == span.checksum) continue;
      const Reports::At at{Place::of_call(caller), "its completion was polled"};
      report(FaultKind::source_changed, at, {work.caller, "posted"}, [&] {
        return "the " + octets_of(span) + " of " + text_of(work) + " have changed between its post and its completion";
      });
    }
  }
}

void Checker::reset(const ibv_qp& qp) {
  if (off_) return;
  const Locked lock(*this);
  work_.drop(&qp);
}

}  // namespace uiw::provider::check
