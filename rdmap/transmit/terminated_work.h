// SPDX-License-Identifier: MIT
// Finds the posted work that a Terminate of the peer is about (RFC 5040 section 4.8). `SenderState::sent` says what TCP
// has taken; `begun`: it has taken a part of the next FPDU, too.
#pragma once

#include <cstdint>
#include <optional>

#include "rdmap/transmit/sender_state.h"

namespace uiw::rdmap {

// The entry whose message had the DDP and RDMAP headers in the Terminate, if it is still in the queue.
std::optional<std::uint64_t> find_terminated(const SenderState& state, const Terminate& terminate, bool begun);

// The oldest entry that TCP has taken at least in part and that is not complete: the best guess for a Terminate without
// headers.
std::optional<std::uint64_t> find_oldest_sent(const SenderState& state);

}  // namespace uiw::rdmap
