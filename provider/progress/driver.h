// SPDX-License-Identifier: MIT
// The reason why a thread drives a stream, that is, sends and receives for the stream.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class Driver : std::uint8_t {
  // The program polls, and will soon poll again. So progress() does not wait for the receiver's lock, and may leave
  // octets unread.
  poll,
  arrival,  // epoll or a doorbell reports octets or room; no end of the stream is known, so progress() looks for none.
  event,    // Something has happened that is not reported again: the stream's end, or a posted receive.
};

}  // namespace uiw::provider
