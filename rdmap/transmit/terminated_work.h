// SPDX-License-Identifier: MIT
// Which posted work is meant by a Terminate that the peer sent (RFC 5040 section 4.8)? Where TCP has got to is `sent`;
// `begun`: it has taken a part of the FPDU behind that.
#pragma once

#include <cstdint>
#include <optional>

#include "rdmap/transmit/sender_state.h"

namespace uiw::rdmap {

// The entry behind the DDP and RDMAP headers that came back, if it is still in the queue.
std::optional<std::uint64_t> find_terminated(const SenderState& state, const Terminate& terminate, bool begun);

// The oldest entry that has been handed to TCP at least in part and is not complete, if any: the best guess at what a
// Terminate without headers is about.
std::optional<std::uint64_t> find_oldest_sent(const SenderState& state);

}  // namespace uiw::rdmap
