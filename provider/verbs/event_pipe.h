// SPDX-License-Identifier: MIT
// A pipe that carries the kernel's event structures to the program: for completion channels and async events.
//
// The pipe is small, since the memory of a user's pipes is limited. Events that find the pipe full wait in memory. They
// are written after the program has read, by the thread "uiw-cm", by the next write(), or by flush(). The object
// keeps a duplicate of the program's read end. So a write never fails with SIGPIPE, and events can be taken back
// without using the program's descriptor. Thread-safe.
//
// A thread that waits in ibv_get_cq_event and meanwhile receives for the queue pairs itself (Engine::wait) often makes
// the event for which it waits. Such an event need not go through the pipe: it is kept in memory for the thread.
//
// Parent and child of a fork share the pipe. It is the parent's as long as the parent lives: events of the child wait
// until the pipe is the child's (process/inheritance.h). If the pipe never becomes the child's, these events are lost.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <memory>

#include "base/mutex.h"
#include "provider/process/cm_loop.h"
#include "provider/process/inheritance.h"

namespace uiw::provider {

class EventPipe final : public CmLoop::Handler, public std::enable_shared_from_this<EventPipe> {
  struct Event;
  using Line = std::list<Event>;

 public:
  static constexpr std::size_t kMaxEvent = 16;

  // The slot in which the events of one object, a completion queue for example, wait for room in the pipe. The events
  // of an object are all equal, so a slot stores one event and a count. The slot is made together with the object, so
  // that waiting needs no memory, and must remain live until leave() has returned.
  class Slot {
   public:
    Slot();

   private:
    friend class EventPipe;
    Line home_;  // contains the slot's node while no event waits
    Line::iterator event_;
  };

  // Null with errno. The program owns the read end; all else belongs to this object.
  static std::shared_ptr<EventPipe> create();
  ~EventPipe() override;
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  int read_fd() const { return read_fd_; }
  // This object's duplicate of the program's read end `fd`, to wait for events and read them in the program's place. -1
  // if `fd` is another file by now, or the pipe is not this process's.
  int own_read_fd(int fd) const;
  // Reads from a pipe without blocking, although its read end is shared with the program and may be in blocking mode.
  // The number of octets, or -1 with errno. No cancellation point.
  static ssize_t read_without_waiting(int fd, void* to, std::size_t size) noexcept;

  // Writes the event, or lets it wait in its slot, which needs no memory. The event is lost only if the pipe belongs to
  // another process for good. The owner of the slot calls leave() before the slot is destroyed.
  void write(const void* event, std::size_t size, Slot& slot) noexcept;
  void leave(Slot& slot) noexcept;
  // For events without a slot. False if the event is lost: it would have to wait and there is no memory, or the pipe
  // belongs to another process for good.
  bool write(const void* event, std::size_t size) noexcept;

  // Until the calling thread calls take_kept(), the first event of this size that it writes with a slot is kept in
  // memory for it; but if events wait for room in the pipe, its event waits after them. Does nothing if another thread
  // has called keep_for_caller() and has not called take_kept() yet.
  void keep_for_caller(std::size_t size) noexcept;
  // True if an event was kept; it is copied to `to`. If `to` is not accessible, false, and the event goes to the pipe.
  bool take_kept(void* to) noexcept;

  // Writes waiting events as far as the pipe has room. Costs one load if none wait.
  void flush() noexcept;

  // Removes the events of this size for which `mine` returns true and that the program has not read. `written`: how
  // many events of that kind were written. Returns how many the program has read and must acknowledge: 0 if the program
  // has closed the descriptors of this object, or the pipe is not this process's. Does not block, and needs no memory
  // and no descriptor.
  unsigned take_back(unsigned written, std::size_t size, bool (*mine)(const void* event, void* argument),
                     void* argument);

  void ready(std::uint32_t epoll_events) override;

  // Hold the locks of all pipes over a fork, so that the child finds whole lists of events.
  static void lock_for_fork();
  static void unlock_after_fork();
  static void inherit_in_child();
  // Whether the pipe belongs to this process, which has created it or has already inherited it.
  bool is_own() const { return generation_.load(std::memory_order_relaxed) == fork_generation(); }
  // Whether there is a pipe that a child would inherit. Called between lock_for_fork() and unlock_after_fork().
  static bool any();

 private:
  struct Event {
    std::array<std::byte, kMaxEvent> octets;
    std::size_t size = 0;
    unsigned times = 0;
    Line* home = nullptr;  // the list of the slot to which the node returns; null: it is freed after the write
  };

  EventPipe(int read_fd, int write_fd, int own_read_fd, std::size_t capacity);
  bool is_intact() const UIW_REQUIRES(mutex_);
  Owner owner() UIW_REQUIRES(mutex_);
  bool keep(const void* event, std::size_t size) UIW_REQUIRES(mutex_);
  bool add(const void* event, std::size_t size) noexcept UIW_REQUIRES(mutex_);
  bool put(const void* event, std::size_t size) UIW_REQUIRES(mutex_);
  void unlink(Line::iterator event) UIW_REQUIRES(mutex_);
  void send_waiting() UIW_REQUIRES(mutex_);

  const int read_fd_;
  int write_fd_ UIW_GUARDED_BY(mutex_);
  int own_read_fd_;
  const std::size_t capacity_;
  const ino_t pipe_;
  const std::unique_ptr<std::byte[]> taken_ UIW_GUARDED_BY(mutex_);  // room for everything in the pipe, for take_back()
  std::atomic<unsigned> generation_;               // the fork generation in which the pipe became this process's
  EventPipe *before_ = nullptr, *next_ = nullptr;  // in the list of all pipes

  Mutex mutex_;
  // The thread for which an event is to be kept, the event's size, and the event itself if `keeps_`.
  std::atomic<pthread_t> reader_{};
  std::size_t kept_size_ UIW_GUARDED_BY(mutex_) = 0;
  std::array<std::byte, kMaxEvent> kept_ UIW_GUARDED_BY(mutex_);
  bool keeps_ UIW_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Line> line_ UIW_GUARDED_BY(mutex_);
  std::atomic<bool> waiting_{false};                   // line_ is not empty; written under the lock
  bool watched_ UIW_GUARDED_BY(mutex_) = false;        // CmLoop waits for room in the pipe
  bool awaits_parent_ UIW_GUARDED_BY(mutex_) = false;  // events wait until the pipe is this process's
};

}  // namespace uiw::provider
