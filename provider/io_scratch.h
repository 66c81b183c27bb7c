// SPDX-License-Identifier: MIT
// The buffers of a thread that moves bytes: they stay in its cache, and an idle queue pair holds none.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "rdmap/transmitter.h"

namespace uiw::provider {

struct IoScratch {
  static constexpr std::size_t kStaging = 256 * 1024;
  rdmap::OutgoingBatch batch;
  std::unique_ptr<std::byte[]> staging = std::make_unique_for_overwrite<std::byte[]>(kStaging);
};

// Also in the thread's last moments, when a destructor of the program still uses a queue pair: the pointer has no
// destructor of its own, and is null once its owner is gone.
inline IoScratch& io_scratch() {
  thread_local IoScratch* scratch = nullptr;
  struct Owner {
    ~Owner() { delete std::exchange(scratch, nullptr); }
  };
  if (scratch == nullptr) {
    thread_local Owner owner;
    static_cast<void>(owner);
    scratch = new IoScratch;
  }
  return *scratch;
}

}  // namespace uiw::provider
