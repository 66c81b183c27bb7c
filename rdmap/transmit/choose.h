// SPDX-License-Identifier: MIT
// Decides what is sent next, in the order of RFC 5040 section 5.5. The functions change only the cursor. Messages are
// not interleaved; posted work and responses take turns, and the answer to a probe goes first. `at` is the position
// where the sender builds. Called with the sender's lock held.
#pragma once

#include "mpa/framer.h"
#include "rdmap/transmit/sender_state.h"

namespace uiw::rdmap {

// Chooses the next message; leaves a message that has begun as it is. False if nothing may be sent now. `batch` has the
// FPDUs before `at`; it decides where probes go.
bool choose(const SenderState& state, Cursor& at, const mpa::Batch* batch = nullptr);

// Whether the work fails locally, before anything of it is sent.
bool fails(const SenderState& state, const SendWork& work);

// Whether a progress report must precede the message at the cursor: work of the peer has been placed that nothing sent
// before confirms. Never between a Write and its Immediate Data, which stay together (RFC 7306 section 6).
bool report_due(const SenderState& state, const Cursor& at);

// Advances the cursor over a segment of `payload` octets; `last` says whether it ends its message.
void advance(const SenderState& state, Cursor& at, std::uint32_t payload, bool last);

}  // namespace uiw::rdmap
