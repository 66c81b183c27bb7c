// SPDX-License-Identifier: MIT
// The RDMA devices of this machine: one for each network interface that has an IP address, whether the interface is up
// or down, or those that UIW_DEVICES lists. A process that has seen a device keeps it even if the interface loses its
// addresses.
//
// A device is named uiw_<interface>, unless UIW_DEVICES gives another name. Its GUID is the EUI-64 of the interface's
// MAC address (RFC 4291, appendix A); an interface without a MAC address, and a second device of one interface, get a
// locally administered GUID derived from the name. The GID table has one entry for each address: IPv6 addresses as they
// are, IPv4 addresses as IPv4-mapped IPv6 addresses (::ffff:a.b.c.d). An address keeps its index as long as it exists.
// When the address is removed, the entry is empty until this address comes back or a new address takes the index.
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "provider/export.h"
#include "provider/process/settings.h"

namespace uiw::provider {

using Gid = std::array<std::uint8_t, 16>;  // network byte order, as union ibv_gid

constexpr Gid kNoGid{};

struct DeviceInfo {
  std::string name;       // "uiw_eth0", or the name that UIW_DEVICES gives it
  std::string interface;  // "eth0"
  unsigned ifindex = 0;
  std::uint64_t guid = 0;   // host byte order
  unsigned mtu = 0;         // of the interface, octets
  unsigned speed_mbps = 0;  // of the interface; 0 if the kernel does not report it
  bool loopback = false;
  bool enabled = true;                     // the interface is up
  bool active = true;                      // the interface and its link are up: the port is active
  Transport transport = Transport::iwarp;  // the kind of adapter that programs see
  std::vector<Gid> gids;                   // in the order of the GID index; kNoGid where an index is empty
};

// The current devices, or those of UIW_DEVICES if it is set, ordered by interface index; devices of one interface are
// in the order of UIW_DEVICES. None if a setting is invalid or the kernel cannot be asked. Thread-safe. Throws
// std::bad_alloc.
UIW_API std::vector<DeviceInfo> enumerate_devices();

// Updates the fields of `device`. Returns false if the device, or its interface, is gone. If the kernel cannot be
// asked, for lack of descriptors for example, returns true and leaves `device` as it was. Throws std::bad_alloc.
bool look_again(DeviceInfo& device);

// The lock for functions of libnl that take locks of libnl itself: those that make and free sockets and caches. It is
// taken before a fork by lock_interfaces() and released after it by unlock_interfaces(): otherwise libnl's own locks
// could stay taken for ever in the child.
TableMutex& libnl_mutex();
void lock_interfaces();
void unlock_interfaces();

// Whether an interface with these flags (IFF_*) is up, and its link too.
bool is_active(unsigned flags);

// The GID of an IP address. `octets` is the address in network byte order; `family` is AF_INET or AF_INET6.
Gid gid_of_address(int family, const void* octets);
// The GID of a socket address; kNoGid for another address family.
Gid gid_of(const sockaddr* address);
// The socket address of a GID and a port (host byte order). A link-local address gets the scope `ifindex`.
sockaddr_storage address_of(const Gid& gid, unsigned ifindex, std::uint16_t port);
constexpr bool is_ipv4(const Gid& gid) {
  for (std::size_t i = 0; i < 10; ++i) {
    if (gid[i] != 0) return false;
  }
  return gid[10] == 0xFF && gid[11] == 0xFF;
}
constexpr bool is_multicast(const Gid& gid) { return is_ipv4(gid) ? (gid[12] & 0xF0) == 0xE0 : gid[0] == 0xFF; }
constexpr bool is_link_local(const Gid& gid) { return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80; }

// The index of the GID of a local address. For an address that is not in the GID table, such as the loopback address
// 127.0.0.2, this is the index of the first GID of the same family, or 0.
std::uint8_t gid_index_of(const DeviceInfo& device, const sockaddr* local);

// The active MTU of a device: the value of UIW_MTU, or the largest IBV_MTU_* that fits the interface's MTU. Datagrams
// that do not fit the interface's MTU are sent in IP fragments.
ibv_mtu path_mtu_of(const DeviceInfo& device);

// The first device with this local address, or a DeviceInfo with an empty name. A wildcard address belongs to no
// device; all of 127/8 belongs to the loopback interface. For an IPv6 link-local address sin6_scope_id, if set, names
// the interface.
DeviceInfo device_of(const sockaddr* local);

// Whether both ends of a connection are on this host: the addresses are equal, or `remote` is an address of a device.
bool is_within_host(const sockaddr_storage& local, const sockaddr_storage& remote);

}  // namespace uiw::provider
