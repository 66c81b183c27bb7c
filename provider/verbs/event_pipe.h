// SPDX-License-Identifier: MIT
// The pipe that carries the kernel's event structures to the program: completion channels and async events.
//
// The pipe is small, since what a user may have in pipes is limited; events that find it full wait in memory, in line,
// and follow when the program has read: the thread "uiw-cm" sees to it, and whoever writes or asks for the next event.
// A duplicate of the program's read end is kept, so that a write never meets a pipe without readers (SIGPIPE), and
// events can be taken back without a look at the program's descriptor. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <memory>

#include "provider/process/cm_loop.h"
#include "provider/process/mutex.h"

namespace uiw::provider {

class EventPipe final : public CmLoop::Handler, public std::enable_shared_from_this<EventPipe> {
  struct Event;
  using Line = std::list<Event>;

 public:
  static constexpr std::size_t kMaxEvent = 16;

  // Where the events of one object wait, all of them alike. Made with the object, so that waiting takes no memory.
  class Place {
   public:
    Place();

   private:
    friend class EventPipe;
    Line home_;  // the one node, while nothing waits
    Line::iterator event_;
  };

  // Null with errno. The read end belongs to the program from here on, all else to this object.
  static std::shared_ptr<EventPipe> create();
  ~EventPipe() override;
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  int read_fd() const { return read_fd_; }

  // Nothing is lost, and no memory is needed. The object calls leave() before the place goes.
  void write(const void* event, std::size_t size, Place& place) noexcept;
  void leave(Place& place) noexcept;
  // False where the pipe is full and there is no memory for the event to wait in: then it is lost.
  bool write(const void* event, std::size_t size) noexcept;

  // Events that wait go into the pipe as far as there is room. Costs a load where none does.
  void flush() noexcept;

  // Takes back the events of this size that the program has not read and for which `mine` says so, of `written` ones;
  // returns how many it has read and is to acknowledge. Neither waits nor needs memory or a descriptor.
  unsigned take_back(unsigned written, std::size_t size, bool (*mine)(const void* event, void* argument),
                     void* argument);

  void ready(std::uint32_t epoll_events) override;

 private:
  struct Event {
    std::array<std::byte, kMaxEvent> octets;
    std::size_t size = 0;
    unsigned times = 0;
    Line* home = nullptr;  // where the node belongs; null where it goes when it has been written
  };

  EventPipe(int read_fd, int write_fd, int own_read_fd, std::size_t capacity);
  bool inherited() const { return generation_ != fork_generation(); }
  // The lock is held.
  bool put(const void* event, std::size_t size);
  void unlink(Line::iterator event);
  void send_waiting();

  const int read_fd_, write_fd_, own_read_fd_;
  const std::size_t capacity_;
  const std::unique_ptr<std::byte[]> taken_;  // room for all that is in the pipe
  const unsigned generation_;                 // in a child of this process the pipe is the parent's alone

  Mutex mutex_;
  std::unique_ptr<Line> line_;
  std::atomic<bool> waiting_{false};  // something is in line; written under the lock
  bool watched_ = false;              // for room in the pipe
};

}  // namespace uiw::provider
