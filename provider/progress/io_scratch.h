// SPDX-License-Identifier: MIT
// Buffers of a thread that sends and receives for connections. Each thread has its own, so that they stay in its cache
// and idle connections need none.
#pragma once

#include <cstddef>
#include <memory>

#include "rdmap/transmit/transmitter.h"

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

// The buffers of the calling thread, which owns them until it ends. Null if there is no memory for them; then the
// thread "uiw-progress", which has its own from the start, sends and receives instead (Engine::take_over). If a
// destructor of the program uses a queue pair while the thread ends, the thread gets buffers once more.
inline IoScratch* io_scratch() noexcept {
  IoScratch* const own = detail::own_scratch;
  return own != nullptr ? own : detail::make_own_scratch();
}

// Makes the buffers for a thread that is about to start, and that passes them to use_io_scratch(). Null if there is no
// memory.
std::unique_ptr<IoScratch> make_io_scratch() noexcept;
void use_io_scratch(std::unique_ptr<IoScratch> scratch) noexcept;

}  // namespace uiw::provider
