// SPDX-License-Identifier: MIT
// The reason why a thread drives a stream, that is, sends and receives for the stream.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class Driver : std::uint8_t {
  poll,     // The program polls, and again soon: so this poll waits for no reading thread, and may leave octets unread.
  arrival,  // epoll or a doorbell reports octets or room; no end of the stream is known, so progress() looks for none.
  event,    // Something has happened that is not reported again: the stream's end, or a posted receive.
};

}  // namespace uiw::provider
