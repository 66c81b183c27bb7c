// SPDX-License-Identifier: MIT
#include "mpa/fpdu_buffer.h"

#include <array>
#include <new>
#include <utility>

namespace uiw::mpa {

namespace {
constinit thread_local bool keeps_spares = false;
constinit thread_local std::array<std::byte*, 2> spares{};
}  // namespace

FpduBuffer take_fpdu_buffer() {
  for (std::byte*& spare : spares)
    if (spare != nullptr) return FpduBuffer(std::exchange(spare, nullptr));
  return FpduBuffer(new (std::nothrow) std::byte[kFpduBufferSize]);
}

void give_back_fpdu_buffer(FpduBuffer buffer) {
  if (!keeps_spares) return;
  for (std::byte*& spare : spares) {
    if (spare == nullptr) {
      spare = buffer.release();
      return;
    }
  }
}

void keep_spare_fpdu_buffers(bool on) {
  keeps_spares = on;
  if (on) return;
  for (std::byte*& spare : spares) delete[] std::exchange(spare, nullptr);
}

}  // namespace uiw::mpa
