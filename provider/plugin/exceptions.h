// SPDX-License-Identifier: MIT
// No exception passes into libibverbs.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

namespace uiw::plugin {

// What the function returns, or null or 0 with errno.
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

}  // namespace uiw::plugin
