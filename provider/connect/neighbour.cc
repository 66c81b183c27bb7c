// SPDX-License-Identifier: MIT
#include "provider/connect/neighbour.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/descriptor.h"
#include "base/immortal.h"
#include "base/stream/tcp_stream.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/connect/netlink_query.h"

namespace uiw::provider {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{1000};  // the timeout of the kernel's rdma_addr_find_l2_eth_by_grh() (core/addr.c)
constexpr milliseconds kLongestPause{20};
constexpr std::uint16_t kDiscardPort = 9;
// NUD_VALID of the kernel: the link-layer address is known, though it may be out of date.
constexpr unsigned kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;

// Created when the library is loaded, so that the child of a fork never finds it half created (provider/verbs/fork.h).
Immortal<NetlinkAsker> kernel(NETLINK_ROUTE);

struct Octets {
  std::array<std::uint8_t, 16> data{};
  int size = 0;  // 4 or 16; 0 for none

  Octets() = default;
  explicit Octets(const sockaddr_storage& address) : size(address.ss_family == AF_INET6 ? 16 : 4) {
    const void* from = address.ss_family == AF_INET6
                           ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
                           : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    std::memcpy(data.data(), from, static_cast<std::size_t>(size));
  }
  int family() const { return size == 4 ? AF_INET : AF_INET6; }
};

struct NextHop {
  int error = 0;         // the errno with which the route refuses, else 0
  bool outside = false;  // the next hop is on another host; only then the fields below are valid
  unsigned ifindex = 0;
  Octets address;
};

NextHop next_hop(const sockaddr_storage& source, const sockaddr_storage& destination) {
  NextHop hop;
  const Octets to(destination), from(source);
  rtmsg request{};
  request.rtm_family = static_cast<unsigned char>(destination.ss_family);
  request.rtm_dst_len = static_cast<unsigned char>(8 * to.size);
  request.rtm_src_len = static_cast<unsigned char>(8 * from.size);
  NetlinkQuery query(RTM_GETROUTE);
  query.append(request);
  query.attribute(RTA_DST, to.data.data(), to.size);
  query.attribute(RTA_SRC, from.data.data(), from.size);
  const unsigned scope =
      destination.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(destination).sin6_scope_id : 0;
  if (scope != 0) query.attribute(RTA_OIF, &scope, sizeof scope);
  const auto* answer = query.answer<rtmsg>(*kernel);
  if (answer == nullptr) {
    const int error = query.error();
    if (error == ENETUNREACH || error == EHOSTUNREACH || error == EACCES) hop.error = error;
    return hop;
  }
  switch (answer->rtm_type) {
    case RTN_UNREACHABLE: hop.error = EHOSTUNREACH; return hop;
    case RTN_PROHIBIT: hop.error = EACCES; return hop;
    case RTN_BLACKHOLE: hop.error = EINVAL; return hop;
    case RTN_UNICAST: break;
    default: return hop;
  }
  hop.outside = query.read<rtmsg>(RTA_OIF, &hop.ifindex, sizeof hop.ifindex);
  hop.address = to;
  if (query.read<rtmsg>(RTA_GATEWAY, hop.address.data.data(), to.size)) return hop;
  std::array<std::uint8_t, sizeof(rtvia) + 16> via{};  // a gateway of the other family
  if (query.read<rtmsg>(RTA_VIA, via.data(), sizeof via)) {
    std::memcpy(hop.address.data.data(), via.data() + sizeof(rtvia), 16);
    hop.address.size = 16;
  }
  return hop;
}

bool resolves(unsigned ifindex) {
  ifinfomsg request{};
  request.ifi_index = static_cast<int>(ifindex);
  NetlinkQuery query(RTM_GETLINK);
  query.append(request);
  const auto* answer = query.answer<ifinfomsg>(*kernel);
  return answer != nullptr && (answer->ifi_flags & (IFF_LOOPBACK | IFF_NOARP)) == 0;
}

// The state of the neighbour, NUD_* of <linux/neighbour.h>; NUD_NONE if there is no such entry, and NUD_NOARP if the
// kernel does not say (before Linux 5.0, for example).
unsigned neighbour_state(const NextHop& hop) {
  ndmsg request{};
  request.ndm_family = static_cast<unsigned char>(hop.address.family());
  request.ndm_ifindex = static_cast<int>(hop.ifindex);
  NetlinkQuery query(RTM_GETNEIGH);
  query.append(request);
  query.attribute(NDA_DST, hop.address.data.data(), hop.address.size);
  if (const auto* answer = query.answer<ndmsg>(*kernel)) return answer->ndm_state;
  return query.error() == ENOENT ? NUD_NONE : NUD_NOARP;
}

// Makes the kernel resolve the neighbour. False if nothing can be sent, for example because a packet filter forbids it.
bool prompt_kernel(sockaddr_storage source, sockaddr_storage destination) {
  const DescriptorChange change;  // protects the socket from the program until `closer` has closed it
  const int fd = sys::socket(destination.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  TcpStream closer(fd);
  port_of(source) = 0;
  port_of(destination) = htons(kDiscardPort);
  return ::syscall(SYS_bind, fd, generic(source), size_of(source)) == 0 &&
         ::syscall(SYS_sendto, fd, "", 0, MSG_NOSIGNAL, generic(destination), size_of(destination)) == 0;
}

}  // namespace

int look_at_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination) {
  const NextHop hop = next_hop(source, destination);
  if (hop.error != 0 || !hop.outside) return hop.error;
  unsigned state = neighbour_state(hop);
  if ((state & kKnown) != 0 || !resolves(hop.ifindex)) return 0;
  if (state != NUD_INCOMPLETE) {
    if (!prompt_kernel(source, destination)) return 0;
    state = neighbour_state(hop);
  }
  return (state & kKnown) != 0 ? 0 : EINPROGRESS;
}

milliseconds neighbour_pause(unsigned asked) {
  return std::min(milliseconds(1U << std::min(asked, 5U)), kLongestPause);
}

int await_neighbour(const sockaddr_storage& source, const sockaddr_storage& destination) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (unsigned asked = 0;; ++asked) {
    const int found = look_at_neighbour(source, destination);
    if (found != EINPROGRESS) return found;
    if (std::chrono::steady_clock::now() >= end) return ETIMEDOUT;
    const timespec pause{0, std::chrono::nanoseconds(neighbour_pause(asked)).count()};
    ::syscall(SYS_nanosleep, &pause, nullptr);  // libc's nanosleep() would be a cancellation point
  }
}

}  // namespace uiw::provider
