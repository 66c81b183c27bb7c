// SPDX-License-Identifier: MIT
// The interface of a queue pair that sends and receives datagrams, as a DatagramPort uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "provider/datagram/datagram_format.h"
#include "provider/datagram/ip_fields.h"
#include "provider/process/device.h"
#include "provider/process/shown/port_counters.h"

namespace uiw::provider {

// The 40 octets in front of a received datagram in the receive buffer, as a RoCE v2 adapter writes them: an IPv6
// header, or 20 zeros and an IPv4 header of 20 octets.
constexpr std::size_t kGrhSize = 40;
using Grh = std::array<std::byte, kGrhSize>;

struct Arrival {
  DatagramHeader header;
  Octets payload;  // valid during the call
  Gid from, to;    // the addresses of the IP header; `to` is one of this host's
  IpFields ip;
};

// Why datagrams were dropped. The counters of a device's port are in the same order (PortCounter).
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
