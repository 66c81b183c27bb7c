// SPDX-License-Identifier: MIT
#include "tests/faults/errors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

namespace faults {
namespace {

using Errors = std::vector<int>;

const Errors kDescriptor{EMFILE, ENOMEM};
const Errors kPath{EMFILE, ENOMEM, EACCES};
const Errors kNames{ENOSPC, EACCES};
const Errors kReceive{EINTR, EAGAIN, ECONNRESET, ENOMEM, kShort};
const Errors kSend{EINTR, EAGAIN, ECONNRESET, ENOBUFS, ENOMEM, kShort};

const std::map<Function, Errors>& table() {
  using enum Function;
  static const std::map<Function, Errors> errors{
      {memory, {ENOMEM}},
      {accept4, {EMFILE, ECONNABORTED, EINTR, ENOBUFS, EPERM}},
      {access, {EACCES, ENOMEM}},
      {bind, {EADDRINUSE, ENOMEM, EACCES}},
      {close, {EINTR, EIO}},
      {connect, {ECONNREFUSED, EADDRNOTAVAIL, ENETUNREACH, ENOBUFS}},
      {epoll_create1, kDescriptor},
      {epoll_ctl, {ENOMEM, ENOSPC}},
      {epoll_wait, {EINTR}},
      {eventfd, kDescriptor},
      {fallocate, {ENOSPC, EINTR, EOPNOTSUPP}},
      {fcntl, {EMFILE, EBUSY}},
      {fdopendir, {ENOMEM}},
      {fopen, kPath},
      {fstatat, {ENOMEM, EACCES}},
      {ftruncate, {EINTR, ENOSPC}},
      {getpeername, {ENOBUFS, ENOTCONN}},
      {getsockname, {ENOBUFS}},
      {getsockopt, {ENOBUFS}},
      {listen, {EADDRINUSE}},
      {madvise, {ENOMEM, EAGAIN}},
      {memfd_create, kDescriptor},
      {mkdirat, kNames},
      {mkdtemp, kNames},
      {mmap, {ENOMEM}},
      {open, kPath},
      {openat, kPath},
      {opendir, kPath},
      {pipe2, kDescriptor},
      {poll, {EINTR, ENOMEM}},
      {pread, {EINTR, EIO, kShort}},
      {preadv2, {EAGAIN}},
      {process_vm_readv, {ENOMEM, EPERM}},
      {process_vm_writev, {ENOMEM, EPERM}},
      {pthread_create, {EAGAIN}},
      {pthread_key_create, {EAGAIN}},
      {read, kReceive},
      {readlinkat, {ENOMEM}},
      {recv, kReceive},
      {recvmsg, {EINTR, EAGAIN, ECONNRESET, ENOMEM, ENOBUFS, kShort}},
      {renameat, kNames},
      {send, kSend},
      {sendmsg, kSend},
      {sendto, kSend},
      {setsockopt, {ENOBUFS, ENOMEM}},
      {socket, {EMFILE, ENOBUFS, EAFNOSUPPORT}},
      {symlinkat, kNames},
      {timerfd_create, kDescriptor},
      {unlinkat, {EBUSY}},
      {vmsplice, {ENOMEM}},  // EAGAIN would say that the pipe is empty
      {write, {EINTR, EAGAIN, ECONNRESET, kShort}},
  };
  return errors;
}

}  // namespace

const char* name_of(Function function) {
  static constexpr std::array kNames{
#define FAULT_NAME(name) #name,
      FAULT_FUNCTIONS(FAULT_NAME)
#undef FAULT_NAME
  };
  return kNames[static_cast<std::size_t>(function)];
}

const std::vector<int>& errors_of(Function function) {
  static const Errors none;
  const auto found = table().find(function);
  return found != table().end() ? found->second : none;
}

std::string objection(const Outcome& outcome) {
  if (outcome.worked) return "";
  if (outcome.error == EINTR || outcome.error == EAGAIN || outcome.error == kShort) {
    if (outcome.function != Function::pthread_create && outcome.function != Function::pthread_key_create)
      return "the call was to be repeated";
  }
  return "";
}

}  // namespace faults
