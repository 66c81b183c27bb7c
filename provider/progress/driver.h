// SPDX-License-Identifier: MIT
// The reason why a thread drives a stream, that is, sends and receives for the stream.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class Driver : std::uint8_t {
  poll,     // The program polls. It polls again soon, so this poll waits for no lock and may leave octets unread.
  arrival,  // epoll reports octets or room, and no end of the stream, so progress() looks for none.
  event,    // Something has happened that is not reported again: the stream's end, or a posted receive.
};

}  // namespace uiw::provider
