// SPDX-License-Identifier: MIT
// `uiw run --check`: finds what a program does wrong with verbs. The plugin calls this at the edge of verbs: before and
// after each call that creates, uses or destroys an object, posts work or polls completions. The rest of the library
// does not know it. Without UIW_CHECK there is no Checker, and the plugin's operations are others, which do not ask.
//
// Thread-safe. One lock protects all that is known; while it is held, only reports are written. Functions that
// allocate may throw std::bad_alloc, in which case the program's call goes on unchecked.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/immortal.h"
#include "base/lock_annotations.h"
#include "base/mutex.h"
#include "provider/check/objects.h"
#include "provider/check/place.h"
#include "provider/check/posted_work.h"
#include "provider/check/reports.h"
#include "provider/export.h"

namespace uiw::provider::check {

class Checker {
 public:
  // Null if UIW_CHECK is off, or until begin().
  UIW_API static Checker* active() { return active_.load(std::memory_order_acquire); }
  // Makes the Checker if UIW_CHECK is on. To be called before a device is opened.
  UIW_API static Checker* begin();

  // ---- Objects ----
  UIW_API void created(Kind kind, const void* handle, const void* context, std::uint32_t number = 0);
  UIW_API void created(const ibv_cq& cq, bool ignores_overrun);
  UIW_API void resized(const ibv_cq& cq);
  UIW_API void created(const ibv_qp& qp, const ibv_qp_init_attr& attributes);
  // `address` is null if the region is not memory of the program. Also for a region that was registered anew.
  UIW_API void created(const ibv_mr& region, const void* address, std::uint64_t length, std::uint64_t iova);

  // A call of the program that uses an object. False if the object was destroyed, which is reported: the call must not
  // reach it. The call ends with leave(), if enter() was true. `caller`: the address that a call which the program has
  // made directly returns to (Place::of_call()); null for other calls.
  UIW_API bool enter(const void* handle, const char* function, const void* caller);
  UIW_API void leave(const void* handle);
  // Before and after a call that destroys the object; false if it was destroyed before.
  UIW_API bool begin_destroy(const void* handle, const char* function);
  UIW_API void end_destroy(const void* handle, bool destroyed);
  // A region is about to be deregistered. `uses_memory` says of a queue pair whether its posted work may still use
  // memory; it is called for queue pairs that no other thread destroys meanwhile.
  UIW_API void deregisters(const ibv_mr& region, bool (*uses_memory)(const ibv_qp& qp));
  // Nothing is known any more of the object with this handle: one that is not checked has its place.
  UIW_API void forget(const void* handle);
  // The device is about to be closed: reports what the program has created and not destroyed.
  UIW_API void closes(const ibv_context* context);
  // A call that destroys an object waits for events to be acknowledged, for longer than it should.
  UIW_API void waits_for_acknowledgements(const void* handle, unsigned missing) noexcept;

  // ---- Work ----
  // A list of requests to post: copies with numbers of ours in place of wr_id, one after the other. posted() says how
  // many were accepted; what is wrong with those is reported then.
  UIW_API void begin_post(const ibv_qp& qp, const ibv_send_wr* requests, const Place& caller,
                          std::vector<ibv_send_wr>& copies);
  UIW_API void begin_post(const void* queue, const ibv_recv_wr* requests, const Place& caller,
                          std::vector<ibv_recv_wr>& copies);
  UIW_API void posted(std::uint64_t first, std::size_t count, std::size_t accepted);
  // As begin_post(), for one request, whose wr_id is changed.
  UIW_API void add(const ibv_qp& qp, ibv_send_wr& request, const Place& caller);
  // A completion was polled: puts the program's wr_id back in its place.
  UIW_API void polled(ibv_wc* completions, int count, const void* caller);
  // The queue pair was reset.
  UIW_API void reset(const ibv_qp& qp);

  // The process ends. Returns the exit status that it is to have because of faults, or 0.
  int finish();

 private:
  friend class Immortal<Checker>;
  struct Region {
    const void* handle = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t length = 0, iova = 0;
    Place destroyed{};
    bool live = true;
  };

  // Something wrong with work, to be reported if the work is accepted.
  struct Finding {
    std::uint64_t number;
    FaultKind kind;
    Reports::At at, other;
    std::string text;
  };
  // Holds the lock, and then shows what was reported meanwhile.
  class UIW_SCOPED_CAPABILITY Locked {
   public:
    explicit Locked(Checker& checker) UIW_ACQUIRE(checker.mutex_) : checker_(checker) { checker_.mutex_.lock(); }
    ~Locked() UIW_RELEASE() {
      checker_.mutex_.unlock();
      checker_.reports_.show_new();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    Checker& checker_;
  };

  Checker();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  Object& add_object(Kind kind, const void* handle, const void* context, std::uint32_t number, const Place& place)
      UIW_REQUIRES(mutex_);
  // `text` makes the sentence, if the fault is new.
  template <typename Text>
  void report(FaultKind kind, const Reports::At& at, const Reports::At& other, Text text) UIW_REQUIRES(mutex_) {
    if (reports_.is_new(kind, at, other)) reports_.add(kind, at, other, text());
  }
  template <typename Text>
  void find(const Work& work, FaultKind kind, const Reports::At& at, const Reports::At& other, Text text)
      UIW_REQUIRES(mutex_);
  Work work_of(const ibv_qp& qp, const ibv_send_wr& request, const Place& caller) UIW_REQUIRES(mutex_);
  void name_memory(Work& work, const ibv_sge* list, int count) UIW_REQUIRES(mutex_);
  void enter_work(std::vector<Work>& works);
  void look_for_overlap(const Work& work, const Span& span) UIW_REQUIRES(mutex_);
  void look_at_queues(const Work& work) UIW_REQUIRES(mutex_);
  void report_leaks(const ibv_context* context) UIW_REQUIRES(mutex_);

  UIW_API static std::atomic<Checker*> active_;

  Reports reports_;
  TableMutex mutex_;
  Objects objects_ UIW_GUARDED_BY(mutex_);
  PostedWork work_ UIW_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, Region> regions_ UIW_GUARDED_BY(mutex_);  // by lkey; also some that have gone
  std::deque<std::uint32_t> gone_ UIW_GUARDED_BY(mutex_);                     // their lkeys, oldest first
  std::vector<Finding> findings_ UIW_GUARDED_BY(mutex_);                      // about work that is just being posted
  bool locked_for_fork_ = false;
  // In the child of a fork, if the lock could not be had before it: nothing is checked any more.
  std::atomic<bool> off_{false};
};

// Keeps the memory of an object that the plugin has destroyed for a while, if the program is checked, so that a call
// that uses it after that finds no other object there. Else frees it at once.
UIW_API void bury(void* memory) noexcept;

}  // namespace uiw::provider::check
