// SPDX-License-Identifier: MIT
// Work that the program has posted and whose completion it has not polled: what memory it uses, what that memory held
// when it was posted, and which completions are still to come. Not thread-safe: Checker has the lock.
//
// Each request is posted with a number of ours in place of its wr_id, by which its completion is recognized, whatever
// the program's wr_id is. Work without a completion of its own counts as complete when the program polls the completion
// of later work of its queue, since only then does it know.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "provider/check/place.h"
#include "rdmap/rdmap_format.h"

namespace uiw::provider::check {

// Octets of the program's memory that work uses.
struct Span {
  std::uintptr_t address = 0;  // 0: unknown, since the key names no memory of the program
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
  // Of a source, or of the first octets of a sink, when it was posted; of a sink again once it is filled.
  std::optional<std::uint32_t> checksum;
  bool entered = false;  // in Memory
  // What the memory of a receive held before it was covered (program_memory.h), until it is filled. If that does not
  // come, PostedWork stores it back when the work, or its region, goes.
  std::vector<std::byte> before{};
};

enum class Role : std::uint8_t { source, sink, neither };

struct Work {
  std::uint64_t number = 0;
  std::uint64_t wr_id = 0;
  const void* queue = nullptr;  // the ibv_qp or ibv_srq
  std::uint32_t queue_number = 0;
  bool shared = false;         // an ibv_srq
  const ibv_cq* cq = nullptr;  // where its completion is to come; null: unknown, or it has none
  Place caller;
  const char* what = "";  // "Send"
  Role role = Role::neither;
  bool sends = false;             // of a send queue
  bool signaled = false;          // has a completion of its own
  bool filled = false;            // a sink with its message or answer
  bool written = false;           // a sink whose memory had changed before that came
  std::thread::id variable_of{};  // the thread on whose stack wr_id points to a variable, if it does
  std::uint32_t remote_key = 0;
  std::uint64_t remote_address = 0;
  std::vector<Span> spans;
};

// Which octets of memory posted work uses. Sinks do not overlap each other; sources may be the same octets.
class Memory {
 public:
  // Work that uses some of the octets of the span already; 0 if there is none. `sinks`: only as a sink.
  std::uint64_t user_of(const Span& span, Role role) const;
  // The latest source with exactly these octets; null if there is none.
  struct Source {
    std::uintptr_t end = 0;
    std::uint64_t latest = 0;  // number of the latest work
    std::optional<std::uint32_t> checksum;
    unsigned users = 0;
  };
  const Source* same_source(const Span& span) const;
  // Enters the span, unless it overlaps other octets than those of the same source.
  void enter(Span& span, Role role, std::uint64_t number);
  void leave(const Span& span, Role role);

 private:
  struct Sink {
    std::uintptr_t end = 0;
    std::uint64_t number = 0;
  };
  std::map<std::uintptr_t, Sink> sinks_;  // by the first octet
  std::map<std::uintptr_t, Source> sources_;
};

// A send queue with its receive queue, or a shared receive queue.
struct Queue {
  std::uint32_t number = 0;
  bool shared = false;
  bool signals_all = false;
  std::uint32_t depth = 0;  // of the send queue
  const ibv_cq* send_cq = nullptr;
  const ibv_cq* receive_cq = nullptr;
  std::deque<std::uint64_t> sends;  // numbers of work, in the order of posting
  std::size_t signaled = 0;         // how many of `sends` have a completion of their own
  std::unordered_set<std::uint64_t> receives;

  // Receives that the program has posted, here or to the shared queue:
  bool datagrams = false;
  const void* receives_from = nullptr;  // null: this queue
  std::uint64_t posted = 0;             // how many since it was created, or the last RESET
  Place last_post{};
  // The last RESET, the receives that it has dropped or that were flushed before it, and where one was posted.
  Place reset{}, lost_post{};
  std::size_t lost = 0;
  bool has_sent = false;    // work was posted to the send queue
  std::uint64_t heard = 0;  // the number of the latest work when a receive was found complete last

  std::optional<rdmap::Terminate> refusal{};  // what the peer has said when it refused a request

  // A message of the peer waits for a receive: since when, and how many had been posted then.
  std::optional<std::chrono::steady_clock::time_point> waits_since{};
  std::uint64_t posted_then = 0;
  std::optional<std::chrono::microseconds> patience{};  // how long an adapter lets it wait; nothing: for ever
  bool overdue = false;                                 // reported already

  // A request was refused by ENOMEM, and nothing was posted since: where and when.
  Place refused{};
  std::optional<std::chrono::steady_clock::time_point> refused_at{};
};

struct CompletionQueue {
  std::size_t places = 0;
  std::size_t owed = 0;  // completions that are to come, or were not polled
  bool ignores_overrun = false;
  int channel = -1;  // its descriptor; -1: none
  // The last request for an event: where, by which thread, and how many completions had been pushed before.
  Place request{};
  std::thread::id requester{};
  std::uint64_t requests = 0;  // its number among the requests of the process; 0: there was none
  std::uint64_t pushed_before = 0;
};

class PostedWork {
 public:
  Memory memory;
  std::unordered_map<const void*, Queue> queues;
  std::unordered_map<const void*, CompletionQueue> completion_queues;
  std::unordered_map<std::uint32_t, unsigned> users_of_key;  // how many spans of posted work have this lkey

  // The number for the next request, one more than that of the last.
  std::uint64_t take_number() { return next_++; }
  std::uint64_t latest_number() const { return next_ - 1; }
  // Adds work, which is the latest of its queue. All its spans that have an address have been looked at already.
  void add(Work work);
  const Work* find(std::uint64_t number) const;
  Work* find(std::uint64_t number);
  // Work of a queue pair for which `counts` is true, not of a shared receive queue, that uses this lkey; else null.
  // Slow if there is any.
  template <typename Counts>
  const Work* user_of(std::uint32_t lkey, Counts counts) const {
    if (!users_of_key.contains(lkey)) return nullptr;
    for (const auto& [number, work] : all_) {
      if (!work.shared && uses(work, lkey) && counts(*static_cast<const ibv_qp*>(work.queue))) return &work;
    }
    return nullptr;
  }
  // The completion of this work was polled: removes the work and the work without completions before it, and appends
  // all of it to `done`. Returns the program's wr_id; nothing if the number is not one of ours.
  std::optional<std::uint64_t> complete(std::uint64_t number, std::vector<Work>& done);
  // The work has succeeded: what its memory holds now stays.
  void keep_memory(std::uint64_t number);
  // Removes the work, which was not posted after all.
  void withdraw(std::uint64_t number);
  // Removes all work of the queue: its completions will not come, except for those that a thread is polling.
  void drop(const void* queue);
  // From now on the work does not use the memory of this lkey.
  void forget_memory(std::uint32_t lkey);
  // In the child of a fork: the work is the parent's. Completions that the child polls still have its wr_ids.
  void leave_to_parent();

 private:
  static constexpr std::uint64_t kFirstNumber = 0x7569'7763'0000'0000;  // "uiwc", to be recognized in a dump
  static constexpr std::size_t kMostPassed = 64 * 1024;

  static bool uses(const Work& work, std::uint32_t lkey);

  void remove(std::unordered_map<std::uint64_t, Work>::iterator at, std::vector<Work>* done);
  void pass(const Work& work);

  std::uint64_t next_ = kFirstNumber;
  std::unordered_map<std::uint64_t, Work> all_;
  // Work that is not in `all_` any more and whose completion may be polled nevertheless: it had none of its own and has
  // failed, or another thread polls it while its queue is reset.
  std::unordered_map<std::uint64_t, std::uint64_t> passed_;  // number -> wr_id
  std::deque<std::uint64_t> passed_order_;
};

}  // namespace uiw::provider::check
