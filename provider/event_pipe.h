// SPDX-License-Identifier: MIT
// The pipe that carries the kernel's event structures to the program: completion channels and async events.
// Events are smaller than PIPE_BUF, so each write and read is whole. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>

namespace uiw::provider {

class EventPipe {
 public:
  // Null with errno set. The read end belongs to the program from here on, the write end to this object.
  static std::shared_ptr<EventPipe> create();
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  int read_fd() const { return read_fd_; }

  // False if the pipe is full.
  bool write(const void* event, std::size_t size);

  // Takes out the unread events of this size for which `drop` says so; returns how many.
  unsigned purge(std::size_t size, bool (*drop)(const void* event, void* argument), void* argument);

 private:
  EventPipe(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  int read_fd_, write_fd_;
};

// The channel behind a program's descriptor; null if it is none.
std::shared_ptr<EventPipe> completion_channel(int fd);

}  // namespace uiw::provider
