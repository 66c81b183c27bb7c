// SPDX-License-Identifier: MIT
// Wrappers of operations that log each refused call (provider/process/log.h), or make calls fail by injected faults
// (provider/process/faults/faults.h), or both. Most operations that create, change, query or destroy something are
// always wrapped. The operations that post work requests, poll, or request events are wrapped only in a process with
// injected faults of calls.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <type_traits>

#include "provider/process/faults/faults.h"
#include "provider/process/log.h"

namespace uiw::plugin {

// The name of an operation as an argument of a template.
template <std::size_t size>
struct OperationName {
  char text[size];
  constexpr OperationName(const char (&name)[size]) { std::copy_n(name, size, text); }
};

template <OperationName name, auto function>
struct LoggedOperation;

// call() calls `function`, unless an injected fault makes the call fail. It logs each result that reports an error: a
// null pointer or a negative number, for which errno has the error, or a positive number, which is itself the errno.
template <OperationName name, typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct LoggedOperation<name, function> {
  static Result call(Arguments... arguments) {
    int error = provider::fault_of_call(name.text);
    const Result result = error == 0 ? function(arguments...) : refusal(error);
    if constexpr (std::is_pointer_v<Result>) {
      error = result == nullptr ? errno : 0;
    } else {
      error = result < 0 ? errno : result;
    }
    if (error != 0) {
      provider::log_event(provider::LogLevel::info, "ibv_%s() is refused: %s", name.text,
                          provider::text_of_errno(error));
    }
    return result;
  }

 private:
  static Result refusal(int error) {
    errno = error;
    if constexpr (std::is_pointer_v<Result>)
      return nullptr;
    else
      return error;
  }
};

// For an operation that posts a list of requests: call() calls `function`, unless an injected fault makes the call
// fail. In that case the first request is the bad one. Nothing is logged. libibverbs gets call() only in a process with
// injected faults of calls (calls_may_fail() of faults.h).
template <OperationName name, auto function>
struct FaultyPosting;

template <OperationName name, typename Queue, typename Request, int (*function)(Queue*, Request*, Request**)>
struct FaultyPosting<name, function> {
  static int call(Queue* queue, Request* requests, Request** bad) {
    const int error = provider::fault_of_call(name.text);
    if (error == 0) return function(queue, requests, bad);
    if (bad != nullptr) *bad = requests;
    errno = error;
    return error;
  }
};

}  // namespace uiw::plugin
