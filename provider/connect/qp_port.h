// SPDX-License-Identifier: MIT
// TCP ports that queue pair numbers name. The number of a queue pair is the port on which its process would listen for
// it, times 256, plus a slot: a peer that was told number and GID knows where to call.
//
// A port is reserved when its first queue pair is made, listens on no address until one of its queue pairs is connected
// without rdma_cm, and is let go of with its last queue pair. All functions are thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "provider/connect/listener.h"
#include "provider/process/device.h"

namespace uiw::provider {

constexpr std::uint32_t kSlotsPerPort = 256;
constexpr std::uint16_t kFirstPort = 1024;
constexpr std::uint32_t kFirstQpNumber = std::uint32_t{kFirstPort} << 8;

constexpr std::uint16_t port_of(std::uint32_t qp_number) { return static_cast<std::uint16_t>(qp_number >> 8); }

// A port that no other process of this network namespace uses as such, within UIW_PORT_RANGE; 0 with errno where there
// is none. The caller may not hold locks that a fork waits for.
std::uint16_t reserve_port();
// This one, which was reserved before; false where somebody else has it.
bool reserve_again(std::uint16_t port);

// The user whose this port is, of which no other user has a socket; empty where the calling process has not reserved
// it.
std::optional<uid_t> holder_of(std::uint16_t port);

// Nobody listens there from here on.
void release_port(std::uint16_t port);

// Listens for calls to queue pairs of this port, on every address of the device and on no other. 0 or an errno if it
// cannot listen on `own`, the address that the queue pair goes by: EADDRINUSE where somebody else listens there,
// EADDRNOTAVAIL where it is not there any more.
int listen_on(std::uint16_t port, const DeviceInfo& device, const Gid& own,
              const std::shared_ptr<ListenObserver>& observer);

// Around a fork: no port is reserved or let go of meanwhile. In the child they are the parent's.
void hold_ports();
void go_on_with_ports();
void forget_ports();

}  // namespace uiw::provider
