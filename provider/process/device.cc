// SPDX-License-Identifier: MIT
#include "provider/process/device.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/immortal.h"
#include "base/mutex.h"
#include "base/text_file.h"
#include "provider/process/netlink/netlink_socket.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

constexpr unsigned kLowerUp = 1U << 16;  // IFF_LOWER_UP of <linux/if.h>, which <net/if.h> lacks

struct SocketFree {
  void operator()(nl_sock* socket) const { free_netlink_socket(socket); }
};
struct CacheFree {
  void operator()(nl_cache* cache) const { nl_cache_free(cache); }
};
using Cache = std::unique_ptr<nl_cache, CacheFree>;

// Returns a GUID for a device: the modified EUI-64 of the MAC address (RFC 4291, appendix A), as RDMA drivers form it,
// or a number made from `name` if there is no MAC address.
std::uint64_t guid_of(const nl_addr* mac, const std::string& name) {
  const auto* octets = mac == nullptr ? nullptr : static_cast<const std::uint8_t*>(nl_addr_get_binary_addr(mac));
  const bool usable = octets != nullptr && nl_addr_get_len(mac) == 6 &&
                      std::any_of(octets, octets + 6, [](std::uint8_t octet) { return octet != 0; });
  std::uint8_t eui[8];
  if (usable) {
    const std::uint8_t from_mac[8] = {
        static_cast<std::uint8_t>(octets[0] ^ 2), octets[1], octets[2], 0xFF, 0xFE, octets[3], octets[4], octets[5]};
    std::memcpy(eui, from_mac, sizeof eui);
  } else {
    // Without a MAC address: FNV-1a of the name, marked as locally administered.
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char letter : name) hash = (hash ^ static_cast<std::uint8_t>(letter)) * 0x100000001B3ULL;
    std::memcpy(eui, &hash, sizeof eui);
    eui[0] = static_cast<std::uint8_t>(eui[0] & 0xFC);
    eui[3] = 0xFF;
    eui[4] = 0xFE;
  }
  std::uint64_t guid = 0;
  for (const std::uint8_t octet : eui) guid = guid << 8 | octet;
  return guid;
}

// Returns the speed of an interface in Mbit/s, or 0 if it is not known. Reads it from /sys/class/net, since netlink
// does not report it.
unsigned speed_of(const std::string& name) {
  const std::string path = "/sys/class/net/" + name + "/speed";
  const TextFile file = open_text_file(path.c_str());
  int speed = 0;
  if (file == nullptr || std::fscanf(file.get(), "%d", &speed) != 1 || speed < 0) speed = 0;
  return static_cast<unsigned>(speed);
}

// The GID table of a device, as this process has seen it so far.
struct KnownTable {
  struct Entry {
    Gid gid;  // of the address that has this index, or had it last
    bool present;
  };
  unsigned ifindex = 0;
  std::vector<Entry> entries;

  // An address that comes back gets its old index, unless a new address has taken this index meanwhile. A new address
  // takes the first empty index, or the next index at the end if none is empty. The index of a link-local address is
  // never given to another address, since a link-local address is usually absent only while the interface is down.
  void merge(const std::vector<Gid>& addresses) {
    for (Entry& entry : entries)
      entry.present = std::find(addresses.begin(), addresses.end(), entry.gid) != addresses.end();
    for (const Gid& gid : addresses) {
      if (std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.gid == gid; })) continue;
      const auto free = std::find_if(entries.begin(), entries.end(),
                                     [](const Entry& entry) { return !entry.present && !is_link_local(entry.gid); });
      if (free != entries.end()) {
        *free = {gid, true};
      } else {
        entries.push_back({gid, true});
      }
    }
  }
  std::vector<Gid> gids() const {
    std::vector<Gid> table;
    for (const Entry& entry : entries) table.push_back(entry.present ? entry.gid : kNoGid);
    return table;
  }
};

constinit TableMutex g_libnl;

// The keys are the names of the devices.
Immortal<std::map<std::string, KnownTable>> known_tables UIW_GUARDED_BY(g_libnl);

// At the end of a process, libnl's destructor unregisters the address families of links while other threads still run,
// and a thread that frees a link after that aborts the process. read_no_more() runs before libnl's destructor; from
// then on read_devices() reads no links.
constinit std::atomic<bool> at_end{false};
[[gnu::destructor]] void read_no_more() {
  at_end.store(true);
  // Waits for a thread that is reading links, but not for ever: that thread may be the calling one, if a signal handler
  // has interrupted it and calls exit().
  for (int tries = 0; tries < 200; ++tries) {
    if (g_libnl.try_lock()) return g_libnl.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The devices as they are now, or nullopt if the kernel cannot be asked or the process is ending.
std::optional<std::vector<DeviceInfo>> read_devices() {
  std::vector<DeviceInfo> devices;
  const LockGuard lock(g_libnl);
  if (at_end.load()) return std::nullopt;
  const std::unique_ptr<nl_sock, SocketFree> socket(nl_socket_alloc());
  if (!socket || !use_netlink_socket(socket.get(), DescriptorChange().guard(make_netlink_socket())))
    return std::nullopt;
  nl_cache* raw = nullptr;
  if (rtnl_link_alloc_cache(socket.get(), AF_UNSPEC, &raw) < 0) return std::nullopt;
  const Cache links(raw);
  raw = nullptr;
  if (rtnl_addr_alloc_cache(socket.get(), &raw) < 0) return std::nullopt;
  const Cache addresses(raw);

  std::map<int, std::vector<Gid>> gids;
  for (nl_object* object = nl_cache_get_first(addresses.get()); object != nullptr; object = nl_cache_get_next(object)) {
    auto* address = reinterpret_cast<rtnl_addr*>(object);
    const nl_addr* local = rtnl_addr_get_local(address);
    if (local == nullptr) continue;
    const int family = nl_addr_get_family(local);
    if (family != AF_INET && family != AF_INET6) continue;
    if ((rtnl_addr_get_flags(address) & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) != 0) continue;
    gids[rtnl_addr_get_ifindex(address)].push_back(gid_of_address(family, nl_addr_get_binary_addr(local)));
  }

  const auto& offered = settings().values.devices;
  for (nl_object* object = nl_cache_get_first(links.get()); object != nullptr; object = nl_cache_get_next(object)) {
    auto* link = reinterpret_cast<rtnl_link*>(object);
    std::vector<Gid>& own = gids[rtnl_link_get_ifindex(link)];
    // Link-local IPv6 addresses come first, as on RoCE adapters, since programs use index 0 by default.
    std::stable_partition(own.begin(), own.end(), is_link_local);
    DeviceInfo device;
    device.interface = rtnl_link_get_name(link);
    device.ifindex = static_cast<unsigned>(rtnl_link_get_ifindex(link));
    device.mtu = rtnl_link_get_mtu(link);
    device.transport = settings().values.transport;
    device.loopback = (rtnl_link_get_flags(link) & IFF_LOOPBACK) != 0;
    device.enabled = (rtnl_link_get_flags(link) & IFF_UP) != 0;
    device.active = is_active(rtnl_link_get_flags(link));
    for (const OfferedInterface& one :
         offered.empty() ? std::vector{OfferedInterface{device.interface, ""}} : offered) {
      if (one.interface != device.interface) continue;
      device.name = device_name(one);
      if (own.empty() && !known_tables->contains(device.name)) continue;
      KnownTable& table = (*known_tables)[device.name];
      if (std::exchange(table.ifindex, device.ifindex) != device.ifindex) table.entries.clear();
      table.merge(own);
      device.gids = table.gids();
      if (device.gids.empty()) continue;
      device.speed_mbps = speed_of(device.interface);
      // GUIDs are unique: only the first device of an interface gets the GUID of the interface. Each further device
      // gets one made from its name.
      const bool first = devices.empty() || devices.back().ifindex != device.ifindex;
      device.guid = guid_of(first ? rtnl_link_get_addr(link) : nullptr, first ? device.interface : device.name);
      devices.push_back(device);
    }
  }
  std::stable_sort(devices.begin(), devices.end(),
                   [](const DeviceInfo& a, const DeviceInfo& b) { return a.ifindex < b.ifindex; });
  return devices;
}

}  // namespace

TableMutex& libnl_mutex() { return g_libnl; }
void lock_interfaces() UIW_ACQUIRE(g_libnl) { g_libnl.lock(); }
void unlock_interfaces() UIW_RELEASE(g_libnl) { g_libnl.unlock(); }

std::vector<DeviceInfo> enumerate_devices() {
  if (!settings().error.empty()) return {};
  return read_devices().value_or(std::vector<DeviceInfo>());
}

bool look_again(DeviceInfo& device) {
  std::optional<std::vector<DeviceInfo>> devices = read_devices();
  if (!devices) return true;
  for (DeviceInfo& one : *devices) {
    if (one.name != device.name || one.ifindex != device.ifindex) continue;
    device = std::move(one);
    return true;
  }
  return false;
}

// IFF_LOWER_UP or IFF_RUNNING is enough, since sandboxes that are not Linux, such as gVisor, know only IFF_RUNNING.
bool is_active(unsigned flags) { return (flags & IFF_UP) != 0 && (flags & (kLowerUp | IFF_RUNNING)) != 0; }

Gid gid_of_address(int family, const void* octets) {
  Gid gid{};
  if (family == AF_INET6) {
    std::memcpy(gid.data(), octets, 16);
  } else {
    gid[10] = gid[11] = 0xFF;
    std::memcpy(gid.data() + 12, octets, 4);
  }
  return gid;
}

Gid gid_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return gid_of_address(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    return gid_of_address(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return {};
}

sockaddr_storage address_of(const Gid& gid, unsigned ifindex, std::uint16_t port) {
  sockaddr_storage storage{};
  if (is_ipv4(gid)) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, gid.data() + 12, sizeof address.sin_addr);
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    std::memcpy(&address.sin6_addr, gid.data(), sizeof address.sin6_addr);
    if (is_link_local(gid)) address.sin6_scope_id = ifindex;
  }
  return storage;
}

std::uint8_t gid_index_of(const DeviceInfo& device, const sockaddr* local) {
  const Gid gid = gid_of(local);
  const auto same_family = [&](const Gid& one) {
    return one != kNoGid && is_ipv4(one) == (local->sa_family == AF_INET);
  };
  auto found = std::find(device.gids.begin(), device.gids.end(), gid);
  if (found == device.gids.end()) found = std::find_if(device.gids.begin(), device.gids.end(), same_family);
  return found == device.gids.end() ? 0 : static_cast<std::uint8_t>(found - device.gids.begin());
}

ibv_mtu path_mtu_of(const DeviceInfo& device) {
  const unsigned set = settings().values.mtu, octets = set != 0 ? set : device.mtu;
  if (octets >= 4096) return IBV_MTU_4096;
  if (octets >= 2048) return IBV_MTU_2048;
  if (octets >= 1024) return IBV_MTU_1024;
  return octets >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

DeviceInfo device_of(const sockaddr* local) {
  const Gid gid = gid_of(local);
  unsigned scope = 0;
  bool any = gid == Gid{};
  if (local->sa_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(local);
    any = address->sin_addr.s_addr == htonl(INADDR_ANY);
  } else if (local->sa_family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(local);
    if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) scope = address->sin6_scope_id;
  }
  if (any) return {};
  const bool loopback_net = is_ipv4(gid) && gid[12] == 127;
  for (DeviceInfo& device : enumerate_devices()) {
    if (scope != 0 && device.ifindex != scope) continue;
    // All of 127/8 belongs to the loopback interface, although the interface lists one address.
    const bool listed = std::find(device.gids.begin(), device.gids.end(), gid) != device.gids.end();
    if (listed || (loopback_net && device.loopback)) return std::move(device);
  }
  return {};
}

bool is_within_host(const sockaddr_storage& local, const sockaddr_storage& remote) {
  const auto* const one = reinterpret_cast<const sockaddr*>(&local);
  const auto* const other = reinterpret_cast<const sockaddr*>(&remote);
  // For most connections within a host the addresses are equal, and the list of local addresses need not be read.
  return gid_of(one) == gid_of(other) || !device_of(other).name.empty();
}

}  // namespace uiw::provider
