// SPDX-License-Identifier: MIT
#include "provider/progress/io_scratch.h"

#include <new>
#include <utility>

#include "base/thread_exit.h"
#include "mpa/fpdu_buffer.h"

namespace uiw::provider {

namespace {

const ThreadExit at_exit([](void* scratch) {
  detail::own_scratch = nullptr;
  mpa::keep_spare_fpdu_buffers(false);
  delete static_cast<IoScratch*>(scratch);
});

}  // namespace

std::unique_ptr<IoScratch> make_io_scratch() noexcept {
  try {
    // make_unique() would clear the buffers.
    return std::unique_ptr<IoScratch>(new IoScratch);  // NOLINT(modernize-make-unique)
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void use_io_scratch(std::unique_ptr<IoScratch> scratch) noexcept {
  // If note() fails, `at_exit` is not called when the thread ends, and nothing would free spare FPDU buffers then.
  if (at_exit.note(scratch.get())) mpa::keep_spare_fpdu_buffers(true);
  detail::own_scratch = scratch.release();
}

IoScratch* detail::make_own_scratch() noexcept {
  if (std::unique_ptr<IoScratch> made = make_io_scratch()) use_io_scratch(std::move(made));
  return own_scratch;
}

}  // namespace uiw::provider
