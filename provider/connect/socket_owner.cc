// SPDX-License-Identifier: MIT
#include "provider/connect/socket_owner.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "base/immortal.h"
#include "base/text_file.h"
#include "provider/connect/local_address.h"
#include "provider/connect/netlink_query.h"
#include "provider/process/device.h"

namespace uiw::provider {

namespace {

constexpr unsigned kWholeUserSpace = 0xFFFFFFFF;  // the number of user IDs in a namespace that maps all of them
constexpr uid_t kUsualOverflowUser = 65534;

// An IPv6 address, or an IPv4 address in the first word, in network byte order.
struct Address {
  std::array<std::uint32_t, 4> words{};
  std::uint16_t port = 0;  // network byte order
  unsigned interface = 0;

  explicit Address(const sockaddr_storage& from) {
    if (from.ss_family == AF_INET6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
      std::memcpy(words.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
      port = v6.sin6_port;
      interface = v6.sin6_scope_id;
    } else {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
      words[0] = v4.sin_addr.s_addr;
      port = v4.sin_port;
    }
  }
};

// Created when the library is loaded, so that the child of a fork never finds them half created
// (provider/verbs/fork.h).
Immortal<NetlinkAsker> sockets(NETLINK_SOCK_DIAG);
Immortal<NetlinkAsker> routes(NETLINK_ROUTE);

// The kernel's setting overflowuid. It is read once, since nobody is expected to change it while programs run.
uid_t overflow_user() {
  static std::atomic<std::int64_t> found{-1};
  if (const std::int64_t before = found.load(std::memory_order_relaxed); before >= 0) return static_cast<uid_t>(before);
  unsigned user = kUsualOverflowUser;
  if (const TextFile file = open_text_file("/proc/sys/kernel/overflowuid"); file) {
    if (std::fscanf(file.get(), "%u", &user) != 1) user = kUsualOverflowUser;
  }
  found.store(user, std::memory_order_relaxed);
  return user;
}

bool knows_all_users() {
  const TextFile file = open_text_file("/proc/self/uid_map");
  if (!file) return false;
  unsigned inside = 0, outside = 0, count = 0;
  return std::fscanf(file.get(), "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
         count == kWholeUserSpace;
}

struct Found {
  std::uint8_t state;
  uid_t user;
  std::uint64_t inode;
};

std::optional<Found> ask_kernel(int family, const Address& local, const Address& remote) {
  inet_diag_req_v2 request{};
  request.sdiag_family = static_cast<std::uint8_t>(family);
  request.sdiag_protocol = IPPROTO_TCP;
  request.idiag_states = ~0U;
  request.id.idiag_sport = local.port;
  request.id.idiag_dport = remote.port;
  std::memcpy(request.id.idiag_src, local.words.data(), sizeof request.id.idiag_src);
  std::memcpy(request.id.idiag_dst, remote.words.data(), sizeof request.id.idiag_dst);
  request.id.idiag_if = local.interface;
  request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  NetlinkQuery query(SOCK_DIAG_BY_FAMILY);
  query.append(request);
  const auto* answer = query.answer<inet_diag_msg>(*sockets);
  if (answer == nullptr) return std::nullopt;
  // If there is no such connection, the kernel answers with the listener of the port, which does not count.
  const bool same = answer->id.idiag_sport == local.port && answer->id.idiag_dport == remote.port;
  return same ? Found{answer->idiag_state, answer->idiag_uid, answer->idiag_inode} : std::optional<Found>{};
}

// Finds a connection or a listener in the text table in /proc, where addresses are words in host byte order.
std::optional<Found> read_table(int family, const Address& local, const Address& remote) {
  const TextFile file = open_text_file(family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  if (!file) return std::nullopt;
  const auto written = [family](const Address& address) {
    std::array<char, 48> text{};
    const auto& w = address.words;
    if (family == AF_INET6) {
      std::snprintf(text.data(), text.size(), "%08X%08X%08X%08X:%04X", w[0], w[1], w[2], w[3], ntohs(address.port));
    } else {
      std::snprintf(text.data(), text.size(), "%08X:%04X", w[0], ntohs(address.port));
    }
    return std::string(text.data());
  };
  const std::string own = written(local), other = written(remote);
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), file.get()) != nullptr) {
    std::array<char, 64> from{}, to{};
    unsigned state = 0, user = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.data(), " %*u: %63s %63s %x %*s %*s %*s %u %*s %lu", from.data(), to.data(), &state, &user,
                    &inode) == 5 &&
        own == from.data() && other == to.data()) {
      return Found{static_cast<std::uint8_t>(state), user, inode};
    }
  }
  return std::nullopt;
}

// The owner of a socket. Empty if there is none or its user is unknown, and also if the process has closed the socket:
// the kernel then reports no inode, and user 0.
std::optional<uid_t> owner(int family, const Address& local, const Address& remote, bool listens) {
  static std::atomic<bool> kernel_answers{false};
  std::optional<Found> found = ask_kernel(family, local, remote);
  if (found) {
    kernel_answers.store(true, std::memory_order_relaxed);
  } else if (!kernel_answers.load(std::memory_order_relaxed)) {
    found = read_table(family, local, remote);
  }
  if (!found || found->inode == 0 || (found->state == TCP_LISTEN) != listens) return std::nullopt;
  return known_user(found->user);
}

}  // namespace

std::optional<uid_t> known_user(uid_t user) {
  if (user == overflow_user() && !knows_all_users()) return std::nullopt;
  return user;
}

std::optional<bool> is_local_address(const sockaddr_storage& address) {
  const Address to(address);
  const int size = address.ss_family == AF_INET6 ? 16 : 4;
  rtmsg request{};
  request.rtm_family = static_cast<unsigned char>(address.ss_family);
  request.rtm_dst_len = static_cast<unsigned char>(8 * size);
  NetlinkQuery query(RTM_GETROUTE);
  query.append(request);
  query.attribute(RTA_DST, to.words.data(), size);
  if (to.interface != 0) query.attribute(RTA_OIF, &to.interface, sizeof to.interface);
  const auto* answer = query.answer<rtmsg>(*routes);
  if (answer != nullptr) return answer->rtm_type == RTN_LOCAL;
  switch (query.error()) {
    case ENETUNREACH:
    case EHOSTUNREACH: return false;
    case EOPNOTSUPP: return !device_of(generic(address)).name.empty();  // the kernel does not support this look-up
    default: return std::nullopt;
  }
}

std::optional<uid_t> owner_of_connection(const sockaddr_storage& local, const sockaddr_storage& remote) {
  return owner(local.ss_family, Address(local), Address(remote), false);
}

std::optional<uid_t> owner_of_listener(const sockaddr_storage& address) {
  const sockaddr_storage any{};
  return owner(address.ss_family, Address(address), Address(any), true);
}

}  // namespace uiw::provider
