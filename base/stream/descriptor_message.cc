// SPDX-License-Identifier: MIT
#include "base/stream/descriptor_message.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace uiw {

namespace {

// Calls sendmsg() or recvmsg() of the kernel, since those of libc are cancellation points.
long call(long number, int socket, msghdr& header, int flags) {
  long n;
  do {
    n = ::syscall(number, socket, &header, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

struct Parts {
  Parts(const void* octets, std::size_t size) : vector{const_cast<void*>(octets), size} {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  iovec vector;
  msghdr header{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
};

}  // namespace

bool send_message(int socket, Octets octets, std::span<const int> fds) {
  Parts parts(octets.data(), octets.size());
  if (fds.empty()) {
    parts.header.msg_control = nullptr;
  } else {
    parts.header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const at = CMSG_FIRSTHDR(&parts.header);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(at), fds.data(), fds.size_bytes());
  }
  return call(SYS_sendmsg, socket, parts.header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<long>(octets.size());
}

bool receive_message(const DescriptorChange& change, int socket, MutableOctets octets, std::span<int> fds) {
  std::ranges::fill(fds, -1);
  Parts parts(octets.data(), octets.size());
  parts.header.msg_controllen = parts.control.size();
  long size = call(SYS_recvmsg, socket, parts.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && errno != EAGAIN) {
    // A sandbox may refuse recvmsg(), since it can receive descriptors. recvfrom() then receives the octets alone.
    size = ::syscall(SYS_recvfrom, socket, octets.data(), octets.size(), MSG_DONTWAIT, nullptr, nullptr);
    parts.header.msg_controllen = 0;
  }
  const bool whole = size == static_cast<long>(octets.size());
  std::size_t count = 0;
  for (cmsghdr* at = CMSG_FIRSTHDR(&parts.header); size >= 0 && at != nullptr; at = CMSG_NXTHDR(&parts.header, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
      if (whole && count < fds.size()) {
        fds[count++] = fd;
      } else {
        change.drop(fd);
      }
    }
  }
  return whole;
}

}  // namespace uiw
