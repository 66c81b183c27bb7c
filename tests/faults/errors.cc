// SPDX-License-Identifier: MIT
#include "tests/faults/errors.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

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

namespace {

// What may become of work on a stream that fails.
constexpr std::array kStatuses{IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR};

// The events by which a connection may fail, and their statuses beside the errno of the fault. librdmacm says EPERM
// where it cannot ask for what has been resolved.
const std::map<std::string, Errors>& events() {
  static const std::map<std::string, Errors> statuses{
      {"RDMA_CM_EVENT_ADDR_ERROR", {ENODEV, EPERM}},          {"RDMA_CM_EVENT_ROUTE_ERROR", {ENODEV, EPERM}},
      {"RDMA_CM_EVENT_CONNECT_ERROR", {ECONNRESET}},          {"RDMA_CM_EVENT_UNREACHABLE", {ETIMEDOUT}},
      {"RDMA_CM_EVENT_REJECTED", {ECONNREFUSED, ECONNRESET}}, {"RDMA_CM_EVENT_DISCONNECTED", {0}},
  };
  return statuses;
}

bool is_in(const Errors& errors, int error) { return std::find(errors.begin(), errors.end(), error) != errors.end(); }

// What calls may say: why they failed, that a resource is missing, or that there is no device.
bool fits_call(const Outcome& outcome) {
  Errors fitting{outcome.error, ENOMEM, ENODEV};
  if (outcome.error == ENOMEM) fitting.push_back(EAGAIN);            // what a thread needs
  if (outcome.what == "ibv_open_device") fitting.push_back(ENOENT);  // libibverbs finds no provider
  if (outcome.what == "rdma_accept") fitting.push_back(ECONNRESET);  // its reply cannot be sent, which ends the stream
  return is_in(fitting, outcome.seen);
}

}  // namespace

std::string objection(const Outcome& outcome) {
  constexpr std::string_view kCompletion = "completion: ", kEvent = "event ";
  if (outcome.worked) return "";
  if (outcome.error == EINTR || outcome.error == EAGAIN || outcome.error == kShort) {
    if (outcome.function != Function::pthread_create && outcome.function != Function::pthread_key_create)
      return "the call was to be repeated";
  }
  const std::string& what = outcome.what;
  if (what.starts_with(kCompletion)) {
    const std::string_view status = std::string_view(what).substr(kCompletion.size());
    const auto fits = [status](ibv_wc_status one) { return status == ibv_wc_status_str(one); };
    return std::any_of(kStatuses.begin(), kStatuses.end(), fits) ? "" : "another status was to come";
  }
  if (what.starts_with(kEvent)) {
    const auto found = events().find(what.substr(kEvent.size()));
    if (found == events().end()) return "another event was to come";
    return is_in(found->second, outcome.seen) || fits_call(outcome) ? "" : "another status was to come";
  }
  if (outcome.seen == 0) return "there is no errno";
  return fits_call(outcome) ? "" : "another errno was to come";
}

}  // namespace faults
