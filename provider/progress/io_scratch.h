// SPDX-License-Identifier: MIT
// The buffers of a thread that moves bytes: they stay in its cache, and an idle queue pair holds none.
#pragma once

#include <cstddef>
#include <memory>

#include "rdmap/transmitter.h"

namespace uiw::provider {

struct IoScratch {
  static constexpr std::size_t kStaging = 256 * 1024;
  rdmap::OutgoingBatch batch;
  std::unique_ptr<std::byte[]> staging = std::make_unique_for_overwrite<std::byte[]>(kStaging);
};

namespace detail {
inline constinit thread_local IoScratch* own_scratch = nullptr;
IoScratch* make_own_scratch() noexcept;
}  // namespace detail

// The calling thread's; null where there is no memory for it, and then the thread of the context, which has its own
// from the start, moves the bytes (Engine::take_over). It is there in the thread's last moments too, when a destructor
// of the program still uses a queue pair.
inline IoScratch* io_scratch() noexcept {
  IoScratch* const own = detail::own_scratch;
  return own != nullptr ? own : detail::make_own_scratch();
}

// For a thread that is about to start, which calls use_io_scratch() then. Null where there is no memory for it.
std::unique_ptr<IoScratch> make_io_scratch() noexcept;
void use_io_scratch(std::unique_ptr<IoScratch> scratch) noexcept;

}  // namespace uiw::provider
