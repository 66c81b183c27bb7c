// SPDX-License-Identifier: MIT
// Turns exceptions into errno values, since none may pass into libibverbs.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

namespace uiw::plugin {

// For functions that create an object: the function's result, or null with errno.
template <typename Function>
auto without_exceptions(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return {};
  } catch (const std::exception&) {
    errno = EAGAIN;
    return {};
  }
}

// For functions that return 0 or an errno: programs also look at errno itself, which adapters set too.
inline int with_errno(int error) {
  if (error != 0) errno = error;
  return error;
}

// As with_errno(), for functions that may throw.
template <typename Function>
int errno_of(Function function) {
  try {
    return with_errno(function());
  } catch (const std::bad_alloc&) {
    return with_errno(ENOMEM);
  } catch (const std::exception&) {
    return with_errno(EAGAIN);
  }
}

}  // namespace uiw::plugin
