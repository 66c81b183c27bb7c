// SPDX-License-Identifier: MIT
// What a datagram port needs of a queue pair: a function that takes a datagram that has arrived for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "provider/datagram/datagram_format.h"
#include "provider/datagram/ip_fields.h"
#include "provider/process/device.h"
#include "provider/process/shown/port_counters.h"

namespace uiw::provider {

// The network header in front of a received datagram, as an adapter for RoCE v2 would have received it. An IPv6 header
// has 40 octets; an IPv4 header has 20, after 20 zeros.
constexpr std::size_t kGrhSize = 40;
using Grh = std::array<std::byte, kGrhSize>;

struct Arrival {
  DatagramHeader header;
  Octets payload;  // valid during the call
  Gid from, to;    // the addresses of the IP header; `to` is one of this host's
  IpFields ip;
};

// Why datagrams were dropped. The counters of a device's port have them in this order.
enum class DatagramDrop : std::uint8_t {
  malformed,    // the decoder refuses it (datagram_format.h), or it is longer than the active MTU
  source,       // it was not sent from the port of its source queue pair
  destination,  // no such queue pair here, or one that does not receive now, or it was sent to another device's address
  qkey,
  no_receive,  // no receive is posted, or the next one has no room for the datagram
};
constexpr PortCounter counter_of(DatagramDrop why) {
  return static_cast<PortCounter>(index_of(PortCounter::dropped_malformed) + static_cast<std::size_t>(why));
}
static_assert(counter_of(DatagramDrop::no_receive) == PortCounter::dropped_no_receive);

class DatagramTarget {
 public:
  // Places the datagram into a posted receive, or drops it. Called inside a ReadSection.
  virtual void deliver(const Arrival& arrival) noexcept = 0;
  // Called when the socket has room again.
  virtual void may_send() noexcept = 0;

 protected:
  ~DatagramTarget() = default;
};

}  // namespace uiw::provider
