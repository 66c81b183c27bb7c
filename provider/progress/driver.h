// SPDX-License-Identifier: MIT
// What makes a thread drive a stream.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class Driver : std::uint8_t {
  poll,     // The program polls. It comes back soon by itself, so it waits for no lock and may leave octets unread.
  arrival,  // The socket has reported octets or room, and no end of the peer so far: none is looked for.
  event,    // Something has happened that is not reported again: an end, a receive that was posted.
};

}  // namespace uiw::provider
