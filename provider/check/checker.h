// SPDX-License-Identifier: MIT
// `uiw run --check`: finds what a program does wrong with verbs. The plugin calls this at the edge of verbs: before and
// after each call that creates, uses or destroys an object, posts work or polls completions. The rest of the library
// does not know it. Without UIW_CHECK there is no Checker, and the plugin's operations are others, which do not ask.
//
// Thread-safe. One lock protects all that is known; while it is held, only reports are written and questions are asked.
// Functions that allocate may throw std::bad_alloc, in which case the program's call goes on unchecked.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/immortal.h"
#include "base/lock_annotations.h"
#include "base/mutex.h"
#include "provider/check/objects.h"
#include "provider/check/place.h"
#include "provider/check/posted_work.h"
#include "provider/check/reports.h"
#include "provider/export.h"
#include "rdmap/rdmap_format.h"

namespace uiw::provider::check {

// What the Checker asks about objects that are there. look_at() takes the completion queue's producer's lock; who holds
// that must not call the Checker.
struct Questions {
  ibv_qp_state (*state_of)(const ibv_qp& qp);
  struct Completions {
    std::uint64_t pushed = 0, taken = 0;  // how many since the queue was created
    bool requested = false;               // an event is to be given for the next one,
    bool solicited_only = false;          // if that is solicited
    bool gave_events = false;
  };
  Completions (*look_at)(const ibv_cq& cq);
  // Why another process of this host has refused what this one has asked for; empty: none says. Called without locks.
  std::string (*reason_at_peer)(std::uint32_t key, std::uint64_t offset);
};

class Checker {
 public:
  // Null if UIW_CHECK is off, or until begin().
  UIW_API static Checker* active() { return active_.load(std::memory_order_acquire); }
  // Makes the Checker if UIW_CHECK is on. To be called before a device is opened.
  UIW_API static Checker* begin(const Questions& questions);

  // ---- Objects ----
  UIW_API void created(Kind kind, const void* handle, const void* context, std::uint32_t number = 0);
  // `channel`: its descriptor, or -1.
  UIW_API void created(const ibv_cq& cq, int channel, bool ignores_overrun);
  UIW_API void resized(const ibv_cq& cq);
  UIW_API void created(const ibv_qp& qp, const ibv_qp_init_attr& attributes);
  // `address` is null if the region is not memory of the program.
  UIW_API void created(const ibv_mr& region, const void* address, std::uint64_t length, std::uint64_t iova,
                       unsigned access);
  // The region was registered anew: it has other memory, and the same rights; or other rights.
  UIW_API void moved(const ibv_mr& region, const void* address, std::uint64_t length);
  UIW_API void has_rights(const ibv_mr& region, unsigned access);

  // A call of the program that uses an object. False if the object was destroyed, which is reported: the call must not
  // reach it. The call ends with leave(), if enter() was true. `caller`: the address that a call which the program has
  // made directly returns to (Place::of_call()); null for other calls. `polls`: it looks for completions.
  UIW_API bool enter(const void* handle, const char* function, const void* caller, bool polls = false);
  UIW_API void leave(const void* handle);
  // Before and after a call that destroys the object; false if it was destroyed before.
  UIW_API bool begin_destroy(const void* handle, const char* function);
  // Between them: waits a moment until no other thread is inside a call that uses the object.
  UIW_API void await_calls(const void* handle);
  UIW_API void end_destroy(const void* handle, bool destroyed);
  // A region is about to be deregistered.
  UIW_API void deregisters(const ibv_mr& region);
  // Nothing is known any more of the object with this handle: one that is not checked has its place.
  UIW_API void forget(const void* handle);
  // The device is about to be closed: reports what the program has created and not destroyed.
  UIW_API void closes(const ibv_context* context);
  // A call that destroys an object waits for events to be acknowledged, for longer than it should.
  UIW_API void waits_for_acknowledgements(const void* handle, unsigned missing) noexcept;

  // ---- Events ----
  // Before the program requests an event of a completion queue.
  UIW_API void requests_event(const ibv_cq& cq, const void* caller);
  // A thread that waits for the events of a channel. It is looked at after kPatience, and then again and again.
  struct Sleep {
    struct Seen {
      const ibv_cq* cq;
      std::uint64_t pushed;
    };
    int channel = -1;
    bool reads = false;        // it waits for this channel alone
    std::vector<Seen> seen{};  // what the channel's queues had at the last look
  };
  static constexpr std::chrono::seconds kPatience{1};
  Sleep begin_sleep(int channel, bool reads) noexcept;
  void sleeps(Sleep& sleep) noexcept;

  // ---- Work ----
  // A list of requests to post: copies with numbers of ours in place of wr_id, one after the other. posted() says how
  // many were accepted, and with which errno others were refused; what is wrong with those is reported then.
  UIW_API void begin_post(const ibv_qp& qp, const ibv_send_wr* requests, const Place& caller,
                          std::vector<ibv_send_wr>& copies);
  UIW_API void begin_post(const void* queue, const ibv_recv_wr* requests, const Place& caller,
                          std::vector<ibv_recv_wr>& copies);
  // `sends`: to the send queue of the queue pair `queue`; else receives.
  UIW_API void posted(const void* queue, bool sends, std::uint64_t first, std::size_t count, std::size_t accepted,
                      int error);
  // As begin_post(), for one request, whose wr_id is changed.
  UIW_API void add(const ibv_qp& qp, ibv_send_wr& request, const Place& caller);
  // Completions were polled: puts the program's wr_ids back in their place. If there are none, looks now and then for
  // what will never come. `frame`: that of the function that the program has called.
  UIW_API void polled(const ibv_cq& cq, ibv_wc* completions, int count, const void* caller, const void* frame);
  // Whether what is posted next is to be sent a moment later than it could be (`--check=order`).
  UIW_API bool delays_next();
  // The queue pair is about to be reset; it was.
  UIW_API void begin_reset(const ibv_qp& qp);
  UIW_API void reset(const ibv_qp& qp);

  // ---- What not every adapter has (`--check=all`) ----
  // The program has asked for a queue pair; `wanted` is what it has asked for, not what it was given.
  UIW_API void asks_for_qp(const ibv_qp_cap& wanted, ibv_qp_type type, bool shared, bool batches);
  UIW_API void asks_for_cq(int entries);
  enum class Feature : std::uint8_t { shared_receives, windows, resize, on_demand };
  UIW_API void asks_for(Feature feature);
  UIW_API void asks_for_step(const ibv_qp_attr& attributes, int mask);

  // ---- Messages of peers ----
  // Called with the receiver's lock of the queue pair held, or the sender's, or both.
  //
  // A message finds no receive posted; then it has one, or is lost. An adapter would wait for `patience`, for ever if
  // there is none.
  void message_waits(const ibv_qp& qp, std::optional<std::chrono::microseconds> patience) noexcept;
  void message_goes_on(const ibv_qp& qp, bool has_receive) noexcept;
  // A message, or an answer, is about to be placed into the memory of the receive, Read or atomic with this number, or
  // has been: its first octets. Or a part of one was placed there, which never came as a whole.
  void sink_begins(std::uint64_t number) noexcept;
  void sink_filled(std::uint64_t number, std::uint32_t length) noexcept;
  void sink_returned(std::uint64_t number) noexcept;
  // A peer's RDMA Write comes to these octets.
  void is_written(std::uint32_t key, std::uint64_t offset, std::uint32_t length) noexcept;
  // Its last segment is about to be placed: whether the parts before are as they were placed.
  struct Placed {
    std::uint32_t key = 0;
    std::uint64_t offset = 0;
    std::uint32_t length = 0, checksum = 0;
  };
  void look_at_target(const ibv_qp& qp, const std::vector<Placed>& parts) noexcept;
  // Carries out an atomic operation of a peer (rdmap::execute()).
  bool execute(const rdmap::AtomicRequest& request, std::byte* memory, std::uint64_t& original) noexcept;
  // The program wants `own` RDMA Reads at once, and the peer takes `peers`.
  void compares_reads(const ibv_qp& qp, std::uint32_t own, std::uint32_t peers) noexcept;
  // This end refuses what the peer has sent, or the peer has refused what this end has sent.
  void refuses(const ibv_qp& qp, const rdmap::Terminate& terminate) noexcept;
  void is_refused(const ibv_qp& qp, const rdmap::Terminate& terminate) noexcept;
  // The latest requests of peers that this process has refused, for the reports of those who have made them.
  struct Refusal {
    std::uint32_t key;
    std::uint64_t offset;
    std::string reason;
  };
  std::deque<Refusal> refusals();

  // The process ends. Returns the exit status that it is to have because of faults, or 0.
  int finish();

 private:
  friend class Immortal<Checker>;
  struct Region {
    const void* handle = nullptr;
    std::uintptr_t address = 0;
    std::uint64_t length = 0, iova = 0;
    unsigned access = 0;
    Place destroyed{};
    std::chrono::steady_clock::time_point ended{};
    bool live = true;

    bool contains(std::uint64_t offset, std::uint64_t size) const {
      return offset - iova <= length && size <= length - (offset - iova);
    }
    // Whether it has to be there as long as it is registered.
    bool is_kept() const { return address != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0; }
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

  explicit Checker(const Questions& questions);
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
  // As report(), once the work is accepted.
  template <typename Text>
  void find(const Work& work, FaultKind kind, const Reports::At& at, const Reports::At& other, Text text)
      UIW_REQUIRES(mutex_) {
    findings_.push_back({work.number, kind, at, other, reports_.knows(kind, at, other) ? std::string() : text()});
  }
  Work work_of(const ibv_qp& qp, const ibv_send_wr& request, const Place& caller) UIW_REQUIRES(mutex_);
  void name_memory(Work& work, const ibv_sge* list, int count) UIW_REQUIRES(mutex_);
  void enter_work(std::vector<Work>& works);
  void look_for_overlap(const Work& work, const Span& span) UIW_REQUIRES(mutex_);
  void look_at_queues(const Work& work) UIW_REQUIRES(mutex_);
  static bool warns();
  static bool atomics_miss_processors();  // the device says IBV_ATOMIC_HCA
  void look_at_word(std::uint32_t key, std::uintptr_t address, std::uint64_t before, std::uint64_t after)
      UIW_REQUIRES(mutex_);
  void forget_words(std::uintptr_t address, std::uint64_t length) UIW_REQUIRES(mutex_);
  void warn(const char* function, const std::string& complaints);
  void look_at_portability(const Work& work, const ibv_qp& qp, const ibv_send_wr& request) UIW_REQUIRES(mutex_);
  void look_at_last_sends(const void* handle, const Place& place) UIW_REQUIRES(mutex_);
  bool enter_now(const void* handle, const char* function, const void* caller, bool polls) UIW_REQUIRES(mutex_);
  void await_end(const void* handle);
  bool is_ending(const void* handle) UIW_REQUIRES(mutex_);
  bool is_there(const void* handle) UIW_REQUIRES(mutex_);
  Place place_of(const void* handle) UIW_REQUIRES(mutex_);
  // Of a region that has gone: since when, and which one is there that may be meant by this offset.
  std::string end_of(const Region& region, std::uint64_t offset) UIW_REQUIRES(mutex_);
  std::string nearest_region(std::uint64_t offset) UIW_REQUIRES(mutex_);
  void look_at_memory(const Work& work, const Span& span) UIW_REQUIRES(mutex_);
  // Work of which the peer says that it refuses it, and what the peer has said.
  struct Refused {
    Work work;
    rdmap::Terminate answer;
  };
  void look_at_completion(const Work& work, ibv_wc_status status, std::vector<Refused>& refused) UIW_REQUIRES(mutex_);
  void look_at_wr_id(const Work& work, const Place& polled, const void* frame) UIW_REQUIRES(mutex_);
  void look_for_change(const Work& work, const Place& polled) UIW_REQUIRES(mutex_);
  void report_refused(const Refused& refused);
  // `ending`: a queue pair that is about to go; null: none. `at_end`: the process ends.
  void look_at_waits(const void* ending, bool at_end) UIW_REQUIRES(mutex_);
  bool may_cover(const Work& work, const Span& span) UIW_REQUIRES(mutex_);
  void cover_receives(std::vector<Work>& works);
  const Queue& receives_of(const Queue& queue) UIW_REQUIRES(mutex_);
  bool has_receives_beyond(const ibv_cq* cq, std::uint64_t completions) UIW_REQUIRES(mutex_);
  void look_at_refused(const ibv_cq& cq) UIW_REQUIRES(mutex_);
  void stop_watching(Queue& queue) UIW_REQUIRES(mutex_);
  void report_leaks(const ibv_context* context) UIW_REQUIRES(mutex_);

  UIW_API static std::atomic<Checker*> active_;

  const Questions questions_;
  Reports reports_;
  TableMutex mutex_;
  Objects objects_ UIW_GUARDED_BY(mutex_);
  PostedWork work_ UIW_GUARDED_BY(mutex_);
  std::unordered_map<std::uint32_t, Region> regions_ UIW_GUARDED_BY(mutex_);  // by lkey; also some that have gone
  std::deque<std::uint32_t> gone_ UIW_GUARDED_BY(mutex_);                     // their lkeys, oldest first
  std::vector<Finding> findings_ UIW_GUARDED_BY(mutex_);                      // about work that is just being posted
  std::unordered_set<std::uint32_t> shared_sinks_ UIW_GUARDED_BY(mutex_);     // lkeys in which receives overlap
  std::deque<Refusal> refusals_ UIW_GUARDED_BY(mutex_);                       // the latest ones
  // What the latest atomic operation of a peer has left in a word, by the word's address.
  std::map<std::uintptr_t, std::uint64_t> words_ UIW_GUARDED_BY(mutex_);
  std::uint64_t requests_ UIW_GUARDED_BY(mutex_) = 0;  // for events
  // How many messages wait for a receive, and how many refused requests were not posted again; and when what lasts too
  // long is looked for next.
  std::atomic<unsigned> watched_{0};
  std::atomic<std::chrono::steady_clock::time_point> next_look_{};
  std::atomic<std::uint64_t> asked_to_delay_{0};
  std::atomic<bool> has_words_{false};
  bool locked_for_fork_ = false;
  // In the child of a fork, if the lock could not be had before it: nothing is checked any more.
  std::atomic<bool> off_{false};
};

// Keeps the memory of an object that the plugin has destroyed for a while, if the program is checked, so that a call
// that uses it after that finds no other object there. Else frees it at once.
UIW_API void bury(void* memory) noexcept;

}  // namespace uiw::provider::check
