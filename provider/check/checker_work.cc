// SPDX-License-Identifier: MIT
// What Checker does when the program posts work and polls completions.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/mixed.h"
#include "provider/check/checker.h"
#include "provider/check/program_memory.h"
#include "provider/check/text.h"
#include "provider/process/limits.h"
#include "provider/process/settings.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostAtOnce = 4 * kMaxSrqWr;

struct Opcode {
  const char* what;
  Role role;
  bool reaches_peer;  // uses memory of the peer
};

Opcode meaning_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV: return {"Send", Role::source, false};
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return {"Write", Role::source, true};
    case IBV_WR_RDMA_READ: return {"Read", Role::sink, true};
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return {"atomic", Role::sink, true};
    default: return {"request", Role::neither, false};
  }
}

// The thread that posts, if the program's wr_id is the address of one of its variables.
std::thread::id owner_of_variable(std::uint64_t wr_id) {
  if (wr_id < reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))) return {};
  return is_on_stack(reinterpret_cast<const void*>(wr_id)) ? std::this_thread::get_id() : std::thread::id();
}

}  // namespace

Work Checker::work_of(const ibv_qp& qp, const ibv_send_wr& request, const Place& caller) {
  const Opcode opcode = meaning_of(request.opcode);
  const Queue& queue = work_.queues[&qp];
  Work work;
  work.number = work_.take_number();
  work.wr_id = request.wr_id;
  work.variable_of = owner_of_variable(work.wr_id);
  work.queue = &qp;
  work.queue_number = queue.number;
  work.caller = caller;
  work.what = opcode.what;
  work.role = (request.send_flags & IBV_SEND_INLINE) != 0 ? Role::neither : opcode.role;
  work.sends = true;
  work.signaled = queue.signals_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  work.cq = work.signaled ? queue.send_cq : nullptr;
  const bool atomic = work.role == Role::sink && request.opcode != IBV_WR_RDMA_READ;
  if (opcode.reaches_peer) {
    work.remote_key = atomic ? request.wr.atomic.rkey : request.wr.rdma.rkey;
    work.remote_address = atomic ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr;
  }
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
           [&]() UIW_NO_THREAD_SAFETY_ANALYSIS {
             return text_of(work) + text(" names lkey 0x%08x; ", sge.lkey) + end_of(found->second, sge.addr);
           });
    } else if (found != regions_.end() && found->second.address != 0) {
      const Region& region = found->second;
      if (region.contains(sge.addr, sge.length)) span.address = region.address + (sge.addr - region.iova);
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
    if (role == Role::sink) {
      shared_sinks_.insert(span.lkey);
      for (const Span& other : before->spans) shared_sinks_.insert(other.lkey);
    }
    find(work, FaultKind::memory_overlap, {work.caller, "posted"}, {before->caller, "posted before"}, [&] {
      return text_of(work) + " has " + octets_of(span) + ", of which some are in use by earlier work, " +
             text_of(*before) + ", which has not completed";
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
  if (work.sends && queue.depth != 0 && queue.sends.size() >= queue.depth && queue.signaled == 0) {
    find(work, FaultKind::send_queue_stuck, {work.caller, "posted"}, {place_of(work.queue), "created"}, [&] {
      return text(
          "the send queue of queue pair 0x%06x has %u places, and none of the last %zu requests "
          "is signaled; on an adapter nothing can be posted to it any more",
          queue.number, queue.depth, queue.sends.size());
    });
  }
  const auto cq = work_.completion_queues.find(work.cq);
  if (cq == work_.completion_queues.end() || cq->second.ignores_overrun || cq->second.owed < cq->second.places) return;
  find(work, FaultKind::cq_overrun, {work.caller, "posted"}, {place_of(work.cq), "created"}, [&] {
    return text_of(work) + text(
                               " makes it possible that a completion queue of %zu places overruns: %zu "
                               "completions are to come, or were not polled",
                               cq->second.places, cq->second.owed + 1);
  });
}

// Memory that the work has and that is gone, although its region is registered.
void Checker::look_at_memory(const Work& work, const Span& span) {
  const auto found = regions_.find(span.lkey);
  if (found == regions_.end() || !found->second.live || !found->second.is_kept()) return;
  const bool readable = span.checksum || is_mapped(span.address, span.length);
  if (readable && (work.role != Role::sink || is_writable(span.address, span.length))) return;
  find(work, FaultKind::memory_unmapped, {work.caller, "posted"}, {place_of(found->second.handle), "registered"}, [&] {
    return text_of(work) + " has " + octets_of(span) + ", which are registered, and are " +
           (readable ? "read-only by now" : "not mapped any more");
  });
}

// Memory into which a peer may write is not covered: it may have been written already. Datagrams are placed without a
// word to the Checker.
bool Checker::may_cover(const Work& work, const Span& span) {
  if (work.sends || work_.queues[work.queue].datagrams) return false;
  const auto region = regions_.find(span.lkey);
  return span.address != 0 && region != regions_.end() &&
         (region->second.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) == 0;
}

// A program that reads its last message where it has posted the receive again already is to notice.
void Checker::cover_receives(std::vector<Work>& works) {
  const Locked lock(*this);
  for (Work& work : works) {
    for (Span& span : work.spans) {
      if (may_cover(work, span) && work_.memory.user_of(span, Role::sink) == 0) cover(span);
    }
  }
}

// Computes the checksums of memory, then adds the work to what is known.
void Checker::enter_work(std::vector<Work>& works) {
  if (settings().values.check == Check::order) cover_receives(works);
  for (Work& work : works) {
    for (Span& span : work.spans) {
      if (span.address != 0) span.checksum = checksum_of(work, span);
    }
  }
  const Locked lock(*this);
  for (Work& work : works) {
    for (const Span& span : work.spans) {
      if (span.address == 0) continue;
      look_for_overlap(work, span);
      look_at_memory(work, span);
    }
    look_at_queues(work);
    work_.add(std::move(work));
  }
}

bool Checker::delays_next() {
  if (off_ || settings().values.check != Check::order) return false;
  constexpr unsigned kOneIn = 4;
  const std::uint64_t number = asked_to_delay_.fetch_add(1, std::memory_order_relaxed);
  return mixed(mixed(settings().values.check_seed) + number) % kOneIn == 0;
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
      if (warns()) look_at_portability(works.back(), qp, *one);
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
    known.last_post = caller;
    if (const Object* const object = objects_.find(queue)) {
      known.shared = object->kind == Kind::shared_receives;
      known.number = object->number;
    }
    for (const ibv_recv_wr* one = requests; one != nullptr && works.size() < kMostAtOnce; one = one->next) {
      copies.push_back(*one);
      Work work;
      work.number = work_.take_number();
      work.wr_id = one->wr_id;
      work.variable_of = owner_of_variable(work.wr_id);
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
    if (warns()) look_at_portability(works.back(), qp, request);
  }
  const std::uint64_t number = works.back().number;
  enter_work(works);
  request.wr_id = number;
}

void Checker::posted(const void* queue_handle, bool sends, std::uint64_t first, std::size_t count, std::size_t accepted,
                     int error) {
  if (off_) return;
  const Locked lock(*this);
  if (const auto known = work_.queues.find(queue_handle); known != work_.queues.end()) {
    Queue& queue = known->second;
    if (!sends) queue.posted += accepted;
    if (sends && queue.refused_at) --watched_, queue.refused_at.reset();
    // Only for a request that has a completion the program may wait.
    const Work* const refused = sends && accepted < count ? work_.find(first + accepted) : nullptr;
    if (refused != nullptr && error == ENOMEM && refused->signaled) {
      queue.refused = refused->caller;
      queue.refused_at = std::chrono::steady_clock::now();
      ++watched_;
    }
  }
  for (std::size_t i = count; i > accepted; --i) work_.withdraw(first + i - 1);
  for (Finding& finding : findings_) {
    if (finding.number < first || finding.number >= first + count) continue;
    // To a queue that is stuck nothing can be posted.
    const bool stuck = finding.kind == FaultKind::send_queue_stuck && error == ENOMEM;
    if (finding.number < first + accepted || (stuck && finding.number == first + accepted))
      report(finding.kind, finding.at, finding.other, [&] { return std::move(finding.text); });
    finding.number = 0;
  }
  std::erase_if(findings_, [](const Finding& finding) { return finding.number == 0; });
}

void Checker::polled(const ibv_cq& cq, ibv_wc* completions, int count, const void* caller, const void* frame) {
  if (off_) return;
  if (count <= 0) {
    if (watched_.load(std::memory_order_relaxed) == 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_.load(std::memory_order_relaxed)) return;
    next_look_.store(now + kPatience / 10, std::memory_order_relaxed);
    const Locked lock(*this);
    look_at_waits(nullptr, false);
    look_at_refused(cq);
    return;
  }
  std::vector<Refused> refused;
  {
    std::vector<Work> done;
    // With the lock: a call that deregisters the memory meanwhile takes it, too, before it returns.
    const Locked lock(*this);
    for (int i = 0; i < count; ++i) {
      const std::size_t before = done.size();
      if (completions[i].status == IBV_WC_SUCCESS) work_.keep_memory(completions[i].wr_id);
      if (const auto wr_id = work_.complete(completions[i].wr_id, done)) completions[i].wr_id = *wr_id;
      if (done.size() > before) look_at_completion(done.back(), completions[i].status, refused);
    }
    const Place place = done.empty() ? Place() : Place::of_call(caller);
    for (const Work& work : done) {
      if (work.role == Role::source || work.filled) look_for_change(work, place);
      look_at_wr_id(work, place, frame);
    }
  }
  for (const Refused& one : refused) report_refused(one);
}

void Checker::look_at_completion(const Work& work, ibv_wc_status status, std::vector<Refused>& refused) {
  Queue& queue = work_.queues[work.queue];
  const bool good = status == IBV_WC_SUCCESS;
  if (queue.refused_at && good) queue.refused_at = std::chrono::steady_clock::now();
  if (queue.refused_at && !good) --watched_, queue.refused_at.reset();
  if (!work.sends && good) queue.heard = work_.latest_number();
  if (!work.sends && !work.shared) {
    queue.lost = status == IBV_WC_WR_FLUSH_ERR ? queue.lost + 1 : 0;
    queue.lost_post = work.caller;
  }
  // Without an answer of the peer it is a fault that was asked for.
  if (status == IBV_WC_REM_ACCESS_ERR && queue.refusal) refused.push_back({work, *queue.refusal});
}

// The stack ends at the frame, so what lies below it was a variable of a function that has returned.
void Checker::look_at_wr_id(const Work& work, const Place& polled, const void* frame) {
  if (work.variable_of != std::this_thread::get_id()) return;
  if (work.wr_id >= reinterpret_cast<std::uintptr_t>(frame) || !is_on_stack(frame)) return;
  report(FaultKind::wr_id_gone, {polled, "its completion was polled"}, {work.caller, "posted"}, [&] {
    return "the wr_id of " + text_of(work) + " is the address of a variable of a function that has returned";
  });
}

// Looks for memory that has changed between the post of work and its completion.
void Checker::look_for_change(const Work& work, const Place& polled) {
  const Reports::At at{polled, "its completion was polled"}, posted{work.caller, "posted"};
  for (const Span& span : work.spans) {
    if (!span.checksum || (work.filled && shared_sinks_.contains(span.lkey))) continue;
    const auto now = checksum_of(work, span);
    const bool changed = now && now != span.checksum;
    if (work.role == Role::source && changed) {
      report(FaultKind::source_changed, at, posted, [&] {
        return "the " + octets_of(span) + " of " + text_of(work) + " have changed between its post and its completion";
      });
    } else if (changed || work.written) {
      report(FaultKind::sink_written, at, posted, [&] {
        return "the " + octets_of(span) + " of " + text_of(work) + " were written by something else than its " +
               (work.sends ? "answer, " : "message, ") + (work.written ? "before that came" : "after that had come");
      });
    }
  }
}

void Checker::begin_reset(const ibv_qp& qp) {
  if (off_) return;
  const Locked lock(*this);
  look_at_waits(&qp, false);
}

void Checker::reset(const ibv_qp& qp) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  if (const auto found = work_.queues.find(&qp); found != work_.queues.end()) {
    Queue& queue = found->second;
    queue.lost += queue.receives.size();
    if (const Work* const one = queue.receives.empty() ? nullptr : work_.find(*queue.receives.begin()))
      queue.lost_post = one->caller;
    queue.reset = place;
    queue.posted = 0;
    queue.refusal.reset();
    stop_watching(queue);
  }
  work_.drop(&qp);
}

}  // namespace uiw::provider::check
