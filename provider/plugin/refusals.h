// SPDX-License-Identifier: MIT
// Logs the calls of libibverbs that are refused (provider/process/log.h). It is for operations that make, change, ask
// for or destroy something, not for those that are called for each work request or completion.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <type_traits>

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

// call() does what `function` does, and logs a result that means a refusal: a null pointer with errno, or an errno.
template <OperationName name, typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct LoggedOperation<name, function> {
  static Result call(Arguments... arguments) {
    const Result result = function(arguments...);
    int error;
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
};

}  // namespace uiw::plugin
