// SPDX-License-Identifier: MIT
#include "provider/check/checker.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "base/guarded_copy.h"
#include "mpa/crc32c.h"
#include "provider/process/limits.h"
#include "provider/process/settings.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostGone = 4096;  // regions that were deregistered, of which the places are known
constexpr std::size_t kMostBuried = 4096;
constexpr std::size_t kMostAtOnce = 4 * kMaxSrqWr;

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char line[400];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

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

std::string octets_of(const Span& span) { return text("%u octets at 0x%" PRIxPTR, span.length, span.address); }

// "a queue pair (0x000102)"
std::string name_of(const Object& object) {
  const std::string name = std::string("a ") + name_of(object.kind);
  return object.number != 0 ? name + text(" (0x%06x)", object.number) : name;
}

std::string text_of(const Work& work) {
  return text("a %s (wr_id 0x%" PRIx64 ") of %s 0x%06x", work.what, work.wr_id,
              work.shared ? "shared receive queue" : "queue pair", work.queue_number);
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

// Takes a mutex, if that is possible within a second.
bool lock_soon(TableMutex& mutex) UIW_NO_THREAD_SAFETY_ANALYSIS {
  for (int tries = 0; tries < 1000; ++tries) {
    if (mutex.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

struct Buried {
  TableMutex mutex;
  std::deque<void*> memory;
};
Buried& buried() {
  static Immortal<Buried> instance;
  return *instance;
}

// Runs after the program's own handlers and destructors.
__attribute__((destructor)) void end_of_process() {
  Checker* const checker = Checker::active();
  const int status = checker != nullptr ? checker->finish() : 0;
  // Within exit(3) this goes on where that is, with another status.
  if (status != 0) std::exit(status);
}

}  // namespace

std::atomic<Checker*> Checker::active_{nullptr};

Checker* Checker::begin() {
  if (!settings().values.check) return nullptr;
  static Checker* const made = [] {
    static Immortal<Checker> instance;
    active_.store(&*instance, std::memory_order_release);
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return &*instance;
  }();
  return made;
}

Checker::Checker() { install_copy_guard(); }

// A thread may hold the lock and wait for one that a handler of the program has taken for this fork. So the lock is not
// waited for without end; without it the child checks nothing.
void Checker::before_fork() UIW_NO_THREAD_SAFETY_ANALYSIS {
  Checker& self = *active();
  self.locked_for_fork_ = lock_soon(self.mutex_);
  if (!self.locked_for_fork_) return;
  self.reports_.mutex().lock();
  buried().mutex.lock();
}

void Checker::after_fork_in_parent() UIW_NO_THREAD_SAFETY_ANALYSIS {
  Checker& self = *active();
  if (!self.locked_for_fork_) return;
  buried().mutex.unlock();
  self.reports_.mutex().unlock();
  self.mutex_.unlock();
}

void Checker::after_fork_in_child() UIW_NO_THREAD_SAFETY_ANALYSIS {
  Checker& self = *active();
  if (!self.locked_for_fork_) return self.off_.store(true);
  self.reports_.forget();
  self.work_.leave_to_parent();
  self.findings_.clear();
  self.objects_.for_live([](const void*, Object& object) { object.calls = 0; });
  after_fork_in_parent();
}

template <typename Text>
void Checker::report(FaultKind kind, const Reports::At& at, const Reports::At& other, Text text) {
  if (reports_.is_new(kind, at, other)) reports_.add(kind, at, other, text());
}

template <typename Text>
void Checker::find(const Work& work, FaultKind kind, const Reports::At& at, const Reports::At& other, Text text) {
  findings_.push_back({work.number, kind, at, other, reports_.knows(kind, at, other) ? std::string() : text()});
}

// ---- Objects ---------------------------------------------------------------------------------------------------

Object& Checker::add_object(Kind kind, const void* handle, const void* context, std::uint32_t number,
                            const Place& place) {
  Object object;
  object.kind = kind;
  object.context = context;
  object.number = number;
  object.created = place;
  object.generation = fork_generation();
  return objects_.add(handle, object);
}

void Checker::created(Kind kind, const void* handle, const void* context, std::uint32_t number) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(kind, handle, context, number, place);
}

void Checker::created(const ibv_cq& cq, bool ignores_overrun) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(Kind::completion_queue, &cq, cq.context, 0, place);
  work_.completion_queues[&cq] = {static_cast<std::size_t>(cq.cqe), 0, ignores_overrun};
}

void Checker::resized(const ibv_cq& cq) {
  if (off_) return;
  const Locked lock(*this);
  if (const auto known = work_.completion_queues.find(&cq); known != work_.completion_queues.end())
    known->second.places = static_cast<std::size_t>(cq.cqe);
}

void Checker::created(const ibv_qp& qp, const ibv_qp_init_attr& attributes) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(Kind::queue_pair, &qp, qp.context, qp.qp_num, place);
  work_.drop(&qp);
  Queue& queue = work_.queues[&qp] = {};
  queue.number = qp.qp_num;
  queue.signals_all = attributes.sq_sig_all != 0;
  queue.depth = attributes.cap.max_send_wr;
  queue.send_cq = qp.send_cq;
  queue.receive_cq = qp.recv_cq;
}

void Checker::created(const ibv_mr& region, const void* address, std::uint64_t length, std::uint64_t iova) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(Kind::region, &region, region.context, region.lkey, place);
  work_.forget_memory(region.lkey);  // of what had this lkey before
  regions_[region.lkey] = {&region, reinterpret_cast<std::uintptr_t>(address), length, iova};
}

void Checker::forget(const void* handle) {
  if (off_) return;
  const Locked lock(*this);
  objects_.forget(handle);
}

bool Checker::enter(const void* handle, const char* function, const void* caller) {
  if (off_) return true;
  const Locked lock(*this);
  Object* const object = objects_.find(handle);
  if (object == nullptr) return true;
  if (object->live) ++object->calls;
  if (object->live && object->generation == fork_generation()) return true;
  const Reports::At at{caller != nullptr ? Place::of_call(caller) : Place::here(), "used"};
  if (!object->live) {
    report(FaultKind::use_after_destroy, at, {object->destroyed, "destroyed"},
           [&] { return text("%s uses %s that was destroyed", function, name_of(*object).c_str()); });
  } else {
    report(FaultKind::child_of_fork, at, {object->created, "created"},
           [&] { return text("%s in the child of a fork uses %s of its parent", function, name_of(*object).c_str()); });
  }
  return object->live;
}

void Checker::leave(const void* handle) {
  if (off_) return;
  const Locked lock(*this);
  if (Object* const object = objects_.find(handle); object != nullptr && object->calls != 0) --object->calls;
}

bool Checker::begin_destroy(const void* handle, const char* function) {
  if (off_) return true;
  if (!enter(handle, function, nullptr)) return false;
  const Locked lock(*this);
  Object* const object = objects_.find(handle);
  if (object == nullptr) return true;
  object->ending = true;
  if (object->calls != 0) --object->calls;
  object->raced = object->calls != 0;
  return true;
}

void Checker::end_destroy(const void* handle, bool destroyed) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  Object* const object = objects_.find(handle);
  if (object == nullptr) return;
  object->ending = false;
  if (!destroyed) return;
  if (object->raced) {
    report(FaultKind::destroyed_in_use, {place, "destroyed"}, {object->created, "created"}, [&] {
      return text("%s was destroyed while another thread was inside a call that uses it", name_of(*object).c_str());
    });
  }
  objects_.destroyed(handle, place);
  if (object->kind == Kind::queue_pair || object->kind == Kind::shared_receives) {
    work_.drop(handle);
    work_.queues.erase(handle);
  }
  if (object->kind == Kind::completion_queue) work_.completion_queues.erase(handle);
  if (object->kind != Kind::region) return;
  work_.forget_memory(object->number);
  const auto region = regions_.find(object->number);
  if (region == regions_.end() || region->second.handle != handle) return;
  region->second.live = false;
  region->second.destroyed = place;
  gone_.push_back(object->number);
  if (gone_.size() <= kMostGone) return;
  if (const auto oldest = regions_.find(gone_.front()); oldest != regions_.end() && !oldest->second.live)
    regions_.erase(oldest);
  gone_.pop_front();
}

void Checker::deregisters(const ibv_mr& region, bool (*uses_memory)(const ibv_qp& qp)) {
  if (off_) return;
  const Locked lock(*this);
  const Work* const work = work_.user_of(region.lkey, [&](const ibv_qp& qp) UIW_NO_THREAD_SAFETY_ANALYSIS {
    // end_destroy() and begin_destroy() take the lock, so a queue pair that is not ending stays while it is held.
    const Object* const object = objects_.find(&qp);
    return object != nullptr && object->live && !object->ending && uses_memory(qp);
  });
  if (work == nullptr) return;
  report(FaultKind::region_in_use, {Place::here(), "deregistered"}, {work->caller, "posted"}, [&] {
    return text("the region with lkey 0x%08x is deregistered while ", region.lkey) + text_of(*work) + " uses it";
  });
}

void Checker::waits_for_acknowledgements(const void* handle, unsigned missing) noexcept {
  if (off_) return;
  try {
    const Locked lock(*this);
    const Object* const object = objects_.find(handle);
    if (object == nullptr) return;
    report(FaultKind::event_not_acknowledged, {Place::here(), "waits"}, {object->created, "created"}, [&] {
      return text(
          "a call that destroys %s waits, since the program has taken %u of its events and has not "
          "acknowledged them",
          name_of(*object).c_str(), missing);
    });
  } catch (const std::bad_alloc&) {
  }
}

void Checker::report_leaks(const ibv_context* context) {
  objects_.for_live([&](const void* handle, Object& object) UIW_NO_THREAD_SAFETY_ANALYSIS {
    if (object.generation != fork_generation() || (context != nullptr && object.context != context)) return;
    if (handle == context || std::exchange(object.leaked, true)) return;
    // librdmacm keeps the devices that it has opened, and their domains, until the process ends.
    const bool shared = object.kind == Kind::context || object.kind == Kind::domain;
    if (shared && is_made_by_librdmacm(object.created)) return;
    report(FaultKind::leak, {object.created, "created"}, {}, [&] {
      return text("%s was not destroyed before %s", name_of(object).c_str(),
                  context != nullptr ? "its device was closed" : "the process ended");
    });
  });
}

void Checker::closes(const ibv_context* context) {
  if (off_) return;
  const Locked lock(*this);
  report_leaks(context);
}

// ---- Work ------------------------------------------------------------------------------------------------------

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

// The process may end in a handler of a signal that has interrupted a thread with the lock: then nothing is reported.
int Checker::finish() UIW_NO_THREAD_SAFETY_ANALYSIS {
  if (off_ || !lock_soon(mutex_)) return 0;
  report_leaks(nullptr);
  mutex_.unlock();
  if (!lock_soon(reports_.mutex())) return 0;
  reports_.mutex().unlock();
  return reports_.finish() != 0 ? static_cast<int>(settings().values.check_exit) : 0;
}

void bury(void* memory) noexcept {
  if (Checker::active() == nullptr) return ::operator delete(memory);
  Buried& graves = buried();
  const LockGuard lock(graves.mutex);
  try {
    graves.memory.push_back(memory);
  } catch (const std::bad_alloc&) {
    return ::operator delete(memory);
  }
  if (graves.memory.size() <= kMostBuried) return;
  ::operator delete(graves.memory.front());
  graves.memory.pop_front();
}

}  // namespace uiw::provider::check
