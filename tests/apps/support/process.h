// SPDX-License-Identifier: MIT
// What the processes of a test program say to each other, and what they have open and occupied.
#pragma once

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "tests/apps/support/endpoint.h"

namespace apps {

struct Pipe {
  int ends[2];
  Pipe() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair: %s", std::strerror(errno));
  }
};

inline void put(int fd, const void* octets, std::size_t size) {
  const char* from = static_cast<const char*>(octets);
  while (size > 0) {
    const ssize_t n = send(fd, from, size, MSG_NOSIGNAL);
    if (n <= 0) die("process %d: send: %s", getpid(), std::strerror(errno));
    from += n;
    size -= static_cast<std::size_t>(n);
  }
}
inline void get(int fd, void* octets, std::size_t size, const char* what, std::chrono::milliseconds patience) {
  char* to = static_cast<char*>(octets);
  while (size > 0) {
    pollfd ready{fd, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(patience.count())) <= 0) die("process %d: %s: nothing comes", getpid(), what);
    const ssize_t n = recv(fd, to, size, 0);
    if (n <= 0) die("process %d: %s: the other process has ended", getpid(), what);
    to += n;
    size -= static_cast<std::size_t>(n);
  }
}

// A child that does this and ends in order.
template <typename Life>
pid_t in_child(const Life& life) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) die("fork: %s", std::strerror(errno));
  if (child != 0) return child;
  life();
  std::_Exit(0);
}

// Ended in order, in time.
inline void join(pid_t child, std::chrono::seconds patience = kPatience) {
  const auto end = Clock::now() + patience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (Clock::now() > end) die("process %d does not end", child);
    poll(nullptr, 0, 1);
  }
  if (status != 0) die("process %d ended with %#x", child, static_cast<unsigned>(status));
}

// The descriptors that this process has open.
inline std::set<int> open_numbers() {
  std::set<int> numbers;
  DIR* directory = made("/proc/self/fd", opendir("/proc/self/fd"));
  while (const dirent* entry = readdir(directory))
    if (entry->d_name[0] != '.') numbers.insert(std::atoi(entry->d_name));
  numbers.erase(dirfd(directory));
  closedir(directory);
  return numbers;
}
inline int open_descriptors() { return static_cast<int>(open_numbers().size()); }

// Memory of this process in KiB, by its name in /proc/self/status.
inline long memory_kib(const char* name) {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) die("/proc/self/status: %s", std::strerror(errno));
  char line[256];
  long value = -1;
  const std::size_t length = std::strlen(name);
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::strncmp(line, name, length) == 0 && line[length] == ':')
      value = std::strtol(line + length + 1, nullptr, 10);
  std::fclose(status);
  if (value < 0) die("/proc/self/status has no %s", name);
  return value;
}

}  // namespace apps
