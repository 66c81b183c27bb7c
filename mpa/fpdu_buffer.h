// SPDX-License-Identifier: MIT
// Buffers for the largest FPDU. Of many connections only few are in the middle of an FPDU, so a connection has a buffer
// only then. A thread that sends and receives for connections keeps two spare buffers; otherwise each FPDU that is
// received or sent in parts might allocate one.
#pragma once

#include <cstddef>
#include <memory>

#include "mpa/markers.h"

namespace uiw::mpa {

constexpr std::size_t kFpduBufferSize = marked_size(0, fpdu_size(kMaxUlpdu));
using FpduBuffer = std::unique_ptr<std::byte[]>;  // kFpduBufferSize octets

// A spare buffer of the calling thread, or a new one; null if there is no memory.
FpduBuffer take_fpdu_buffer();
// Any thread may give back a buffer that another thread has taken.
void give_back_fpdu_buffer(FpduBuffer buffer);

// Sets whether the calling thread keeps spare buffers: one for a stream that receives, and one for a stream that sends.
// A thread that has turned this on must turn it off before it ends.
void keep_spare_fpdu_buffers(bool on);

}  // namespace uiw::mpa
