// SPDX-License-Identifier: MIT
// The counters of each device's port in this process, without the traffic of connections that are still open.
//
// Any thread may count, whatever locks it holds. The traffic of a connection is added here when the connection ends or
// its queue pair is destroyed. A child of a fork begins with zeros.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace uiw::provider {

enum class PortCounter : std::uint8_t {
  // Traffic of TCP, UDP and shared memory, without headers of IP, TCP and UDP. A write to, or a read from, shared
  // memory counts as a packet.
  octets_sent,
  octets_received,
  packets_sent,
  packets_received,
  retransmitted,  // TCP segments
  connections,    // queue pairs that were connected
  refused,        // connection requests of rdma_cm that this end or the peer has rejected
  terminates_sent,
  terminates_received,
  answers_dropped,   // octets of payload that peers put into Read Responses to RDMA Reads of no octets
  rnr_waits,         // a message has arrived, and no receive was posted
  rnr_exceeded,      // posted work has failed with IBV_WC_RNR_RETRY_EXC_ERR
  retries_exceeded,  // posted work has failed with IBV_WC_RETRY_EXC_ERR
  datagrams_sent,
  datagrams_received,
  // Datagrams that were dropped, by reason, in the order of DatagramDrop (provider/datagram/datagram_target.h).
  dropped_malformed,
  dropped_source,
  dropped_destination,
  dropped_qkey,
  dropped_no_receive,
};
inline constexpr std::size_t kPortCounters = 20;
using PortCounts = std::array<std::uint64_t, kPortCounters>;

constexpr std::size_t index_of(PortCounter counter) { return static_cast<std::size_t>(counter); }

class PortCounters {
 public:
  explicit PortCounters(std::string_view device) : device_(device) {}
  void add(PortCounter counter, std::uint64_t amount = 1) {
    counts_[index_of(counter)].fetch_add(amount, std::memory_order_relaxed);
  }
  // Adds what is counted here to `counts`.
  void add_to(PortCounts& counts) const {
    for (std::size_t i = 0; i < kPortCounters; ++i) counts[i] += counts_[i].load(std::memory_order_relaxed);
  }
  const std::string& device() const { return device_; }

 private:
  friend PortCounters& port_counters(std::string_view device);
  friend const PortCounters* next_port_counters(const PortCounters* before);
  friend void forget_port_counters();

  const std::string device_;
  std::array<std::atomic<std::uint64_t>, kPortCounters> counts_{};
  PortCounters* next_ = nullptr;
};

// The counters of the device with this name. They are made at the first call and never destroyed. Throws
// std::bad_alloc.
PortCounters& port_counters(std::string_view device);
// The counters after `before` in the list, or the first ones if `before` is null. Null after the last.
const PortCounters* next_port_counters(const PortCounters* before);
// How often the counts of a connection have been added to the counters of a port so far. take_inventory() reads the
// counts of both, and reads them again if this number has changed meanwhile.
inline std::atomic<std::uint64_t> counted_connections{0};
// In the child of a fork: sets all counters to zero.
void forget_port_counters();

}  // namespace uiw::provider
