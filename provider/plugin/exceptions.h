// SPDX-License-Identifier: MIT
// No exception passes into libibverbs.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

namespace uiw::plugin {

// What makes an object: what the function returns, or null with errno.
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

// What returns 0 or an errno.
template <typename Function>
int errno_of(Function function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::exception&) {
    return EAGAIN;
  }
}

}  // namespace uiw::plugin
