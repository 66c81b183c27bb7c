// SPDX-License-Identifier: MIT
#include "provider/datagram/datagram_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mpa/descriptor.h"
#include "provider/connect/local_address.h"
#include "provider/datagram/datagram_format.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

// Large enough for each of the control messages below.
struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(int))> octets;
};

template <typename Value>
cmsghdr* put(msghdr& message, cmsghdr* at, int level, int type, const Value& value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  return CMSG_NXTHDR(&message, at);
}

// The source address, which decides the interface, and the traffic class. A socket for both families takes IPv4
// addresses in their mapped form.
void fill_control(msghdr& message, Control& control, const DatagramRoute& route) {
  control = {};
  message.msg_control = control.octets.data();
  message.msg_controllen = control.octets.size();
  in6_pktinfo source{};
  std::memcpy(&source.ipi6_addr, route.from.data(), route.from.size());
  source.ipi6_ifindex = is_ipv4(route.to) ? 0 : route.scope;
  cmsghdr* const next = put(message, CMSG_FIRSTHDR(&message), IPPROTO_IPV6, IPV6_PKTINFO, source);
  message.msg_controllen = CMSG_SPACE(sizeof source);
  if (route.traffic_class == 0) return;
  const int traffic_class = route.traffic_class;
  const bool ipv4 = is_ipv4(route.to);
  put(message, next, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, traffic_class);
  message.msg_controllen += CMSG_SPACE(sizeof traffic_class);
}

sockaddr_in6 address_of(const DatagramRoute& route, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, route.to.data(), route.to.size());
  if (is_link_local(route.to)) address.sin6_scope_id = route.scope;
  return address;
}

// The local address that a datagram was sent to; false if the kernel does not say.
bool local_address(msghdr& message, Gid& to) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != IPPROTO_IPV6 || at->cmsg_type != IPV6_PKTINFO) continue;
    in6_pktinfo info;
    std::memcpy(&info, CMSG_DATA(at), sizeof info);
    std::memcpy(to.data(), &info.ipi6_addr, to.size());
    return true;
  }
  return false;
}

constexpr int kIpv6MulticastAll = 29;  // IPV6_MULTICAST_ALL of <linux/in6.h>, which <netinet/in.h> lacks

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) mpa::close_descriptor(fd);
  }
};

}  // namespace

std::size_t send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams) {
  const std::size_t count = std::min(datagrams.size(), kDatagramBatch);
  std::array<mmsghdr, kDatagramBatch> messages;
  std::array<sockaddr_in6, kDatagramBatch> addresses;
  std::array<iovec, kDatagramBatch> vectors;
  std::array<Control, kDatagramBatch> controls;
  for (std::size_t i = 0; i < count; ++i) {
    const OutgoingDatagram& datagram = datagrams[i];
    addresses[i] = address_of(*datagram.route, datagram.port);
    vectors[i] = {const_cast<std::byte*>(datagram.octets.data()), datagram.octets.size()};
    messages[i] = {};
    msghdr& header = messages[i].msg_hdr;
    header.msg_name = &addresses[i];
    header.msg_namelen = sizeof addresses[i];
    header.msg_iov = &vectors[i];
    header.msg_iovlen = 1;
    fill_control(header, controls[i], *datagram.route);
  }
  std::size_t sent = 0;
  while (sent < count) {
    const long result = ::syscall(SYS_sendmmsg, fd, messages.data() + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (result > 0) {
      sent += static_cast<std::size_t>(result);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      ++sent;  // lost
    }
  }
  return sent;
}

std::size_t receive_datagrams(int fd, mpa::MutableOctets memory, std::span<IncomingDatagram> datagrams) {
  const std::size_t most = std::min(datagrams.size(), kDatagramBatch);
  const std::size_t part = memory.size() / kDatagramBatch;
  std::array<mmsghdr, kDatagramBatch> messages;
  std::array<sockaddr_in6, kDatagramBatch> addresses;
  std::array<iovec, kDatagramBatch> vectors;
  std::array<Control, kDatagramBatch> controls;
  for (std::size_t i = 0; i < most; ++i) {
    vectors[i] = {memory.data() + i * part, part};
    messages[i] = {};
    msghdr& header = messages[i].msg_hdr;
    header.msg_name = &addresses[i];
    header.msg_namelen = sizeof addresses[i];
    header.msg_iov = &vectors[i];
    header.msg_iovlen = 1;
    header.msg_control = controls[i].octets.data();
    header.msg_controllen = controls[i].octets.size();
  }
  long count;
  do {
    count = ::syscall(SYS_recvmmsg, fd, messages.data(), most, MSG_DONTWAIT, nullptr);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    IncomingDatagram& datagram = datagrams[i];
    msghdr& header = messages[i].msg_hdr;
    datagram = {};
    datagram.port = ntohs(addresses[i].sin6_port);
    std::memcpy(datagram.from.data(), &addresses[i].sin6_addr, datagram.from.size());
    const bool whole = (header.msg_flags & MSG_TRUNC) == 0 && local_address(header, datagram.to);
    if (whole) datagram.octets = mpa::Octets(memory).subspan(i * part, messages[i].msg_len);
  }
  return static_cast<std::size_t>(count);
}

// An interface may have a group that another has too: the socket hears its own interface alone, as far as the kernel
// lets it say so (the option needs Linux 5.7 where the process has no privilege).
std::uint16_t destination_port(std::uint32_t qp_number) {
  return qp_number == kMulticastQp ? settings().values.multicast_port : port_of(qp_number);
}

int multicast_socket(unsigned ifindex) {
  const int fd = mpa::take_descriptor(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "multicast");
  if (fd < 0) return -errno;
  Closer closer{fd};
  const int on = 1, off = 0, interface = static_cast<int>(ifindex);
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &interface, sizeof interface);
  ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  ::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof off);
  want_datagram_buffers(fd);
  ::setsockopt(fd, IPPROTO_IPV6, kIpv6MulticastAll, &off, sizeof off);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(destination_port(kMulticastQp));
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return -errno;
  return std::exchange(closer.fd, -1);
}

int change_membership(int fd, const Gid& group, unsigned ifindex, bool join) {
  int result;
  if (is_ipv4(group)) {
    ip_mreqn request{};
    std::memcpy(&request.imr_multiaddr, group.data() + 12, sizeof request.imr_multiaddr);
    request.imr_ifindex = static_cast<int>(ifindex);
    result = ::setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof request);
  } else {
    ipv6_mreq request{};
    std::memcpy(&request.ipv6mr_multiaddr, group.data(), group.size());
    request.ipv6mr_interface = ifindex;
    result = ::setsockopt(fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request, sizeof request);
  }
  if (result == 0) return 0;
  return errno == ENOBUFS ? ENOMEM : errno;
}

}  // namespace uiw::provider
