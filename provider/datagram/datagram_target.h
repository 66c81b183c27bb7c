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
  Octets payload;  // valid during deliver()
  Gid from, to;    // the addresses of the IP header; `to` is one of this host, or a multicast group
  IpFields ip;
};

// Why datagrams were dropped. The counters of a device's port are in the same order (PortCounter).
enum class DatagramDrop : std::uint8_t {
  malformed,    // the decoder (datagram_format.h) refuses the datagram, or its payload exceeds the active MTU
  source,       // the UDP source port is not that of the source queue pair
  destination,  // the queue pair does not exist or does not receive now, or the address is another device's
  qkey,
  no_receive,  // no receive is posted, or the next one (not of a shared receive queue) is too short
};
constexpr PortCounter counter_of(DatagramDrop why) {
  return static_cast<PortCounter>(index_of(PortCounter::dropped_malformed) + static_cast<std::size_t>(why));
}
static_assert(counter_of(DatagramDrop::no_receive) == PortCounter::dropped_no_receive);

class DatagramTarget {
 public:
  // Places the datagram into a posted receive, or drops it. Called inside a ReadSection.
  virtual void deliver(const Arrival& arrival) noexcept = 0;
  // Sends posted work that waits for room in the socket, or for a thread that has memory for its buffers
  // (DatagramPort::take_over()). Called when the socket may have room again, or by that thread.
  virtual void may_send() noexcept = 0;

 protected:
  ~DatagramTarget() = default;
};

}  // namespace uiw::provider
