// SPDX-License-Identifier: MIT
// One end of a connected pair of Unix stream sockets, by which two processes wake each other. It carries octets without
// a meaning. Nothing blocks, whatever the peer does. Thread-safe.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <utility>

namespace uiw::mpa {

class Doorbell {
 public:
  Doorbell() = default;
  explicit Doorbell(int fd) : fd_(fd) {}  // owns it
  ~Doorbell();
  Doorbell(Doorbell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Doorbell& operator=(Doorbell&&) = delete;

  // The events for an epoll set: each octet is reported, though earlier ones have not been read. A report that waits in
  // the set would be dropped if another thread read the octet, as note_sleep() does; but there is always room to send.
  static constexpr unsigned kWatched = EPOLLIN | EPOLLOUT | EPOLLET;

  int fd() const { return fd_; }
  // Wakes the peer. If the socket is full the peer has been woken often enough.
  void ring() const;
  // To be called each time that this end goes to sleep: keeps the socket from becoming full.
  void note_sleep();

 private:
  // An octet takes up to a kilobyte of the kernel's memory, and sockets have room for some tens of them at least.
  static constexpr unsigned kDrainEvery = 16;
  // For an octet that the system has no memory for: some 5 ms (ShortWait).
  static constexpr unsigned kMostTries = 300;

  int fd_ = -1;
  std::atomic<unsigned> sleeps_{0};
};

}  // namespace uiw::mpa
