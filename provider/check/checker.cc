// SPDX-License-Identifier: MIT
#include "provider/check/checker.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "base/guarded_copy.h"
#include "provider/check/not_cancelled.h"
#include "provider/check/program_memory.h"
#include "provider/check/text.h"
#include "provider/process/settings.h"

namespace uiw::provider::check {

namespace {

constexpr std::size_t kMostGone = 4096;  // regions that were deregistered, of which the places are known
constexpr std::size_t kMostBuried = 4096;
constexpr int kMostTries = 1000;  // a millisecond each

// Takes a mutex, if that is possible within a second.
bool lock_soon(TableMutex& mutex) UIW_NO_THREAD_SAFETY_ANALYSIS {
  for (int tries = 0; tries < kMostTries; ++tries) {
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

Checker* Checker::begin(const Questions& questions) {
  if (settings().values.check == Check::off) return nullptr;
  static Checker* const made = [&questions] {
    static Immortal<Checker> instance(questions);
    active_.store(&*instance, std::memory_order_release);
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return &*instance;
  }();
  return made;
}

Checker::Checker(const Questions& questions) : questions_(questions) { install_copy_guard(); }

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
  self.refusals_.clear();
  self.words_.clear();
  self.watched_.store(0);
  self.objects_.for_live([](const void*, Object& object) {
    object.calls = 0;
    object.ending = object.raced = false;
  });
  after_fork_in_parent();
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
  // librdmacm keeps the devices that it has opened, and their domains. Looked up now: it may be unloaded later.
  const bool kept = (kind == Kind::context || kind == Kind::domain) && is_made_by_librdmacm(place);
  const Locked lock(*this);
  add_object(kind, handle, context, number, place).kept = kept;
}

void Checker::created(const ibv_cq& cq, int channel, bool ignores_overrun) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(Kind::completion_queue, &cq, cq.context, 0, place);
  CompletionQueue& queue = work_.completion_queues[&cq] = {};
  queue.places = static_cast<std::size_t>(cq.cqe);
  queue.ignores_overrun = ignores_overrun;
  queue.channel = channel;
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
  if (const auto former = work_.queues.find(&qp); former != work_.queues.end()) stop_watching(former->second);
  Queue& queue = work_.queues[&qp] = {};
  queue.number = qp.qp_num;
  queue.signals_all = attributes.sq_sig_all != 0;
  queue.depth = attributes.cap.max_send_wr;
  queue.send_cq = qp.send_cq;
  queue.receive_cq = qp.recv_cq;
  queue.receives_from = qp.srq;
  queue.datagrams = qp.qp_type == IBV_QPT_UD;
}

void Checker::created(const ibv_mr& region, const void* address, std::uint64_t length, std::uint64_t iova,
                      unsigned access) {
  if (off_) return;
  const Place place = Place::here();
  const Locked lock(*this);
  add_object(Kind::region, &region, region.context, region.lkey, place);
  work_.forget_memory(region.lkey);  // of what had this lkey before
  shared_sinks_.erase(region.lkey);
  Region& known = regions_[region.lkey] = {};
  known.handle = &region;
  known.address = reinterpret_cast<std::uintptr_t>(address);
  known.length = length;
  known.iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  known.access = access;
}

void Checker::moved(const ibv_mr& region, const void* address, std::uint64_t length) {
  if (off_) return;
  unsigned access = 0;
  {
    const Locked lock(*this);
    if (const auto known = regions_.find(region.lkey); known != regions_.end()) {
      access = known->second.access;
      forget_words(known->second.address, known->second.length);
    }
  }
  created(region, address, length, reinterpret_cast<std::uintptr_t>(address), access);
}

void Checker::has_rights(const ibv_mr& region, unsigned access) {
  if (off_) return;
  const Locked lock(*this);
  if (const auto known = regions_.find(region.lkey); known != regions_.end()) known->second.access = access;
}

void Checker::forget(const void* handle) {
  if (off_) return;
  const Locked lock(*this);
  objects_.forget(handle);
}

// A call that destroys the object is under way in another thread: waits a moment until it has ended, and notes the
// race.
void Checker::await_end(const void* handle) {
  const NotCancelled not_cancelled;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Locked lock(*this);
    Object* const object = objects_.find(handle);
    if (object == nullptr || !object->ending) return;
    object->raced = true;
  }
}

bool Checker::enter(const void* handle, const char* function, const void* caller, bool polls) {
  if (off_) return true;
  if (const Locked lock(*this); !is_ending(handle)) return enter_now(handle, function, caller, polls);
  await_end(handle);
  const Locked lock(*this);
  return enter_now(handle, function, caller, polls);
}

bool Checker::enter_now(const void* handle, const char* function, const void* caller, bool polls) {
  Object* const object = objects_.find(handle);
  if (object == nullptr) return true;
  if (object->live) ++object->calls;
  if (polls) object->poller = std::this_thread::get_id();
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
  if (object->ending) {  // by another thread, at the same time
    object->raced = true;
    --object->calls;
    return false;
  }
  if (object->kind == Kind::queue_pair) look_at_waits(handle, false);
  if (warns() && object->kind == Kind::queue_pair && object->generation == fork_generation())
    look_at_last_sends(handle, Place::here());
  object->ending = true;
  if (object->calls != 0) --object->calls;
  object->raced = object->calls != 0;
  return true;
}

// The calls of other threads mostly end soon. Until then the object is not destroyed, so that they do not crash, after
// which nothing would be reported.
void Checker::await_calls(const void* handle) {
  if (off_) return;
  const NotCancelled not_cancelled;
  for (int tries = 0; tries < kMostTries; ++tries) {
    {
      const Locked lock(*this);
      const Object* const object = objects_.find(handle);
      if (object == nullptr || object->calls == 0) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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
  const Kind kind = object->kind;
  const std::uint32_t number = object->number;
  objects_.destroyed(handle, place);
  if (kind == Kind::queue_pair || kind == Kind::shared_receives) {
    work_.drop(handle);
    if (const auto queue = work_.queues.find(handle); queue != work_.queues.end()) {
      stop_watching(queue->second);
      work_.queues.erase(queue);
    }
  }
  if (kind == Kind::completion_queue) work_.completion_queues.erase(handle);
  if (kind != Kind::region) return;
  work_.forget_memory(number);
  shared_sinks_.erase(number);
  const auto region = regions_.find(number);
  if (region == regions_.end() || region->second.handle != handle) return;
  forget_words(region->second.address, region->second.length);
  region->second.live = false;
  region->second.destroyed = place;
  region->second.ended = std::chrono::steady_clock::now();
  gone_.push_back(number);
  if (gone_.size() <= kMostGone) return;
  if (const auto oldest = regions_.find(gone_.front()); oldest != regions_.end() && !oldest->second.live)
    regions_.erase(oldest);
  gone_.pop_front();
}

// end_destroy() and begin_destroy() take the lock, so an object that is not ending stays while it is held.
bool Checker::is_ending(const void* handle) {
  const Object* const object = objects_.find(handle);
  return object != nullptr && object->ending;
}

bool Checker::is_there(const void* handle) {
  const Object* const object = objects_.find(handle);
  return object != nullptr && object->live && !object->ending;
}

Place Checker::place_of(const void* handle) {
  const Object* const object = objects_.find(handle);
  return object != nullptr ? object->created : Place();
}

void Checker::deregisters(const ibv_mr& region) {
  if (off_) return;
  Region looked;
  {
    const Locked lock(*this);
    const Object* const object = objects_.find(&region);
    const auto found = regions_.find(region.lkey);
    if (object == nullptr || object->generation != fork_generation()) return;
    if (found != regions_.end() && found->second.live && found->second.is_kept()) looked = found->second;
  }
  const bool unmapped = !is_mapped(looked.address, looked.length);
  const Locked lock(*this);
  const auto known = regions_.find(region.lkey);
  if (unmapped && known != regions_.end()) {
    report(FaultKind::memory_unmapped, {Place::here(), "deregistered"}, {place_of(&region), "registered"}, [&] {
      return text(
          "memory of the region with lkey 0x%08x (%llu octets at 0x%llx) was unmapped before the region is "
          "deregistered",
          region.lkey, static_cast<unsigned long long>(known->second.length),
          static_cast<unsigned long long>(known->second.address));
    });
  }
  const Work* const work = work_.user_of(region.lkey, [&](const ibv_qp& qp) UIW_NO_THREAD_SAFETY_ANALYSIS {
    if (!is_there(&qp)) return false;
    const ibv_qp_state state = questions_.state_of(qp);
    return state != IBV_QPS_RESET && state != IBV_QPS_ERR && state != IBV_QPS_SQE;
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
          "a call that destroys %s waits, since the program has not acknowledged %u of its events that it has taken",
          name_of(*object).c_str(), missing);
    });
  } catch (const std::bad_alloc&) {
  }
}

void Checker::report_leaks(const ibv_context* context) {
  objects_.for_live([&](const void* handle, Object& object) UIW_NO_THREAD_SAFETY_ANALYSIS {
    if (object.generation != fork_generation() || (context != nullptr && object.context != context)) return;
    if (handle == context || std::exchange(object.leaked, true)) return;
    if (object.kept) return;
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

// The process may end in a handler of a signal that has interrupted a thread with the lock: then nothing is reported.
int Checker::finish() UIW_NO_THREAD_SAFETY_ANALYSIS {
  if (off_ || !lock_soon(mutex_)) return 0;
  try {
    look_at_waits(nullptr, true);
    report_leaks(nullptr);
  } catch (const std::bad_alloc&) {
  }
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
