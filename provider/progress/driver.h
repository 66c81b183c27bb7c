// SPDX-License-Identifier: MIT
// What makes a thread drive a stream, that is, send and receive for it.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class Driver : std::uint8_t {
  poll,     // The program polls. It polls again soon, so this poll waits for no lock and may leave octets unread.
  arrival,  // The socket has reported octets or room, but no end of the stream so far, so no end is looked for.
  event,    // Something has happened that is not reported again: an end, a receive that was posted.
};

}  // namespace uiw::provider
