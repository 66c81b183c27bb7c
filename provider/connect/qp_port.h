// SPDX-License-Identifier: MIT
// The TCP ports of queue pairs, and in the RoCE view the UDP ports of the same numbers. A queue pair number is the port
// on which the process listens for manual connections, times 256, plus a slot. So a peer that knows the number and the
// GID knows which address and port to call.
//
// A port is reserved when its first queue pair is created. It listens on no address until one of its queue pairs is
// connected manually, and is released with its last queue pair. All functions are thread-safe.
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
// The last slot of port 65535 would be the number that stands for multicast (datagram/datagram_format.h).
constexpr std::uint16_t kLastPort = 65534;
constexpr std::uint32_t kFirstQpNumber = std::uint32_t{kFirstPort} << 8;

constexpr std::uint16_t port_of(std::uint32_t qp_number) { return static_cast<std::uint16_t>(qp_number >> 8); }

// Reserves a port, within UIW_PORT_RANGE if that is set, that no other process of this network namespace has reserved.
// 0 with errno if this fails, for example because no port or no descriptor is free. The caller must not hold a lock
// that before_fork() (provider/verbs/fork.cc) takes after lock_ports().
std::uint16_t reserve_port();
// Reserves a port again that this process had released. False if this fails, for example because another process has
// the port now.
bool reserve_again(std::uint16_t port);

// The user for whom this process has reserved the port; no other user can bind a TCP socket to the port. Nothing if
// this process has not reserved the port.
std::optional<uid_t> holder_of(std::uint16_t port);

// A new descriptor for the UDP socket of a reserved port, which the caller owns; or a negative errno, -EAFNOSUPPORT if
// the port has no such socket. Each descriptor can be watched separately.
int datagram_descriptor(std::uint16_t port);

// Closes the listeners of the port and releases it.
void release_port(std::uint16_t port);

// Listens for calls to queue pairs of this port, on every address of the device. 0, or an errno if it cannot listen on
// `own`, the address of the queue pair: EADDRINUSE if another process listens there, EADDRNOTAVAIL if the device does
// not have the address any more, EINVAL if this process has not reserved the port, or another errno. Throws
// std::bad_alloc.
int listen_on(std::uint16_t port, const DeviceInfo& device, const Gid& own,
              const std::shared_ptr<ListenObserver>& observer);

// lock_ports() takes the lock of the table of reserved ports before a fork. In the parent unlock_ports() releases the
// lock after the fork; in the child forget_ports() drops the parent's ports and releases the lock.
void lock_ports();
void unlock_ports();
void forget_ports();

}  // namespace uiw::provider
