// SPDX-License-Identifier: MIT
// What is sent next, in the order of RFC 5040 section 5.5: decisions alone, which change nothing but the cursor.
//
// Messages are not interleaved; posted work and read responses take turns, and the answer to a probe goes first. `at`
// is where the sender builds.
#pragma once

#include "mpa/framer.h"
#include "rdmap/transmit/sender_state.h"

namespace uiw::rdmap {

// Settles which message comes next, and leaves one that has begun as it is. False if none may be sent now. `batch` is
// what stands before, so that a probe gets its place in it.
bool choose(const SenderState& state, Cursor& at, const mpa::Batch* batch = nullptr);

// Does the work fail here, before anything of it is sent?
bool fails(const SenderState& state, const SendWork& work);

// Is a progress report due in front of the message at the cursor? The peer has sent something that is placed, and that
// nothing before has confirmed. Not between a Write and its Immediate Data, which stay together (RFC 7306 section 6).
bool report_due(const SenderState& state, const Cursor& at);

// Behind a segment of `payload` octets of the message in progress, which is its `last` one or not.
void advance(const SenderState& state, Cursor& at, std::uint32_t payload, bool last);

}  // namespace uiw::rdmap
