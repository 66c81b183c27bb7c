// SPDX-License-Identifier: MIT
#include "provider/datagram/datagram_socket.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/system_calls.h"
#include "provider/connect/local_address.h"
#include "provider/datagram/datagram_format.h"
#include "provider/process/settings.h"

namespace uiw::provider {

namespace {

// Has room for all control messages of one datagram, sent or received.
struct alignas(cmsghdr) Control {
  std::array<std::byte, CMSG_SPACE(sizeof(in6_pktinfo)) + 4 * CMSG_SPACE(sizeof(int))> octets;
};

template <typename Value>
cmsghdr* put(msghdr& message, cmsghdr* at, int level, int type, const Value& value) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(at), &value, sizeof value);
  return CMSG_NXTHDR(&message, at);
}

// Fills in the control messages: the source address (for IPv6 with the interface), the fields of the IP header, and, if
// several datagrams are joined by UDP_SEGMENT, their size `each` (0: a single datagram). IPV6_PKTINFO takes IPv4
// addresses, too, in their IPv4-mapped form.
void fill_control(msghdr& message, Control& control, const DatagramRoute& route, std::size_t each) {
  control = {};
  message.msg_control = control.octets.data();
  message.msg_controllen = control.octets.size();
  in6_pktinfo source{};
  std::memcpy(&source.ipi6_addr, route.from.data(), route.from.size());
  source.ipi6_ifindex = is_ipv4(route.to) ? 0 : route.scope;
  cmsghdr* next = put(message, CMSG_FIRSTHDR(&message), IPPROTO_IPV6, IPV6_PKTINFO, source);
  std::size_t length = CMSG_SPACE(sizeof source);
  const bool ipv4 = is_ipv4(route.to);
  const int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (const int traffic_class = route.ip.traffic_class; traffic_class != 0) {
    next = put(message, next, level, ipv4 ? IP_TOS : IPV6_TCLASS, traffic_class);
    length += CMSG_SPACE(sizeof traffic_class);
  }
  if (const int hop_limit = route.ip.hop_limit; hop_limit != 0) {
    next = put(message, next, level, ipv4 ? IP_TTL : IPV6_HOPLIMIT, hop_limit);
    length += CMSG_SPACE(sizeof hop_limit);
  }
  if (each != 0) {
    const auto size = static_cast<std::uint16_t>(each);
    put(message, next, SOL_UDP, UDP_SEGMENT, size);
    length += CMSG_SPACE(sizeof size);
  }
  message.msg_controllen = length;
}

constexpr std::uint32_t kFlowLabel = 0xFFFFF;

sockaddr_in6 address_of(const DatagramRoute& route, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, route.to.data(), route.to.size());
  if (is_link_local(route.to)) address.sin6_scope_id = route.scope;
  if (!is_ipv4(route.to)) address.sin6_flowinfo = htonl(route.ip.flow_label & kFlowLabel);
  return address;
}

template <typename Value>
Value value_of(cmsghdr* at) {
  Value value;
  std::memcpy(&value, CMSG_DATA(at), sizeof value);
  return value;
}

// Reads the control messages of what the kernel has delivered at a time (IncomingPiece): the local address that it was
// sent to, and the fields of its IP header. If the kernel has joined several datagrams, these have the same fields, and
// their size is read, too. False if the local address is missing.
bool read_control(msghdr& message, IncomingPiece& piece) {
  constexpr std::uint8_t kUsualHopLimit = 64;  // used if the kernel does not report the hop limit
  IpFields& ip = piece.all.ip;
  ip.hop_limit = kUsualHopLimit;
  bool addressed = false;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level == IPPROTO_IPV6) {
      switch (at->cmsg_type) {
        case IPV6_PKTINFO: {
          const auto info = value_of<in6_pktinfo>(at);
          std::memcpy(piece.all.to.data(), &info.ipi6_addr, piece.all.to.size());
          addressed = true;
          break;
        }
        case IPV6_TCLASS: ip.traffic_class = static_cast<std::uint8_t>(value_of<int>(at)); break;
        case IPV6_HOPLIMIT: ip.hop_limit = static_cast<std::uint8_t>(value_of<int>(at)); break;
        case kIpv6FlowInfo: ip.flow_label = ntohl(value_of<std::uint32_t>(at)) & kFlowLabel; break;
        default: break;
      }
    } else if (at->cmsg_level == IPPROTO_IP) {
      if (at->cmsg_type == IP_TOS) ip.traffic_class = value_of<std::uint8_t>(at);
      if (at->cmsg_type == IP_TTL) ip.hop_limit = static_cast<std::uint8_t>(value_of<int>(at));
    } else if (at->cmsg_level == SOL_UDP && at->cmsg_type == UDP_GRO) {
      const int each = value_of<int>(at);
      if (each > 0) piece.each = static_cast<std::size_t>(each);
    }
  }
  return addressed;
}

constexpr int kIpv6MulticastAll = 29;  // IPV6_MULTICAST_ALL of <linux/in6.h>, which <netinet/in.h> lacks

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) close_descriptor(fd);
  }
};

}  // namespace

namespace {

// Limits of Linux for datagrams that are joined by UDP_SEGMENT: their number (UDP_MAX_SEGMENTS before Linux 6.9), and
// their octets together, which have to fit one IPv6 packet.
constexpr std::size_t kMostJoined = 64, kLongestJoined = 65000;

bool same_way(const OutgoingDatagram& one, const OutgoingDatagram& other) {
  return one.port == other.port && *one.route == *other.route;
}

// How many datagrams, from the first one on, can be joined within these limits: all have one route, port and size,
// except that the last may be shorter.
std::size_t joinable(std::span<const OutgoingDatagram> datagrams) {
  const std::size_t size = datagrams[0].octets.size();
  std::size_t count = 1, whole = size;
  while (count < datagrams.size() && count < kMostJoined) {
    const std::size_t next = datagrams[count].octets.size();
    if (next > size || whole + next > kLongestJoined || !same_way(datagrams[0], datagrams[count])) break;
    ++count;
    whole += next;
    if (next < size) break;
  }
  return count;
}

// Datagrams as messages for sendmmsg(2).
class Outgoing {
 public:
  Outgoing(std::span<const OutgoingDatagram> datagrams, bool join) {
    for (std::size_t at = 0; at < datagrams.size(); at += joined_[count_++]) {
      const std::size_t joined = join ? joinable(datagrams.subspan(at)) : 1;
      joined_[count_] = joined;
      addresses_[count_] = address_of(*datagrams[at].route, datagrams[at].port);
      for (std::size_t i = at; i < at + joined; ++i)
        vectors_[i] = {const_cast<std::byte*>(datagrams[i].octets.data()), datagrams[i].octets.size()};
      messages_[count_] = {};
      msghdr& header = messages_[count_].msg_hdr;
      header.msg_name = &addresses_[count_];
      header.msg_namelen = sizeof addresses_[count_];
      header.msg_iov = &vectors_[at];
      header.msg_iovlen = joined;
      fill_control(header, controls_[count_], *datagrams[at].route, joined == 1 ? 0 : datagrams[at].octets.size());
    }
  }
  std::size_t count() const { return count_; }
  // How many datagrams a message has.
  std::size_t joined(std::size_t index) const { return joined_[index]; }
  // Removes the flow label of a message. False if it has none.
  bool leave_out_flow_label(std::size_t index) { return std::exchange(addresses_[index].sin6_flowinfo, 0) != 0; }
  // The number of messages that the kernel has accepted, from message `from` on, or a negative errno.
  long send(int fd, std::size_t from) {
    const long result =
        ::syscall(SYS_sendmmsg, fd, messages_.data() + from, count_ - from, MSG_DONTWAIT | MSG_NOSIGNAL);
    return result < 0 ? -errno : result;
  }

 private:
  std::size_t count_ = 0;
  std::array<std::size_t, kDatagramBatch> joined_;
  std::array<mmsghdr, kDatagramBatch> messages_;
  std::array<sockaddr_in6, kDatagramBatch> addresses_;
  std::array<iovec, kDatagramBatch> vectors_;
  std::array<Control, kDatagramBatch> controls_;
};

}  // namespace

std::size_t send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams, std::atomic<bool>& joins) {
  datagrams = datagrams.first(std::min(datagrams.size(), kDatagramBatch));
  Outgoing outgoing(datagrams, joins.load(std::memory_order_relaxed));
  std::size_t sent = 0;
  for (std::size_t at = 0; at < outgoing.count();) {
    const long result = outgoing.send(fd, at);
    if (result > 0) {
      for (const std::size_t end = at + static_cast<std::size_t>(result); at < end; ++at) sent += outgoing.joined(at);
    } else if (result == -EAGAIN) {
      break;
    } else if (result == -EINVAL && outgoing.leave_out_flow_label(at)) {
      continue;
    } else if (result != -EINTR && outgoing.joined(at) > 1) {
      // The kernel refuses joined datagrams, for example, if they are longer than the MTU of the path. It may accept
      // the same datagrams one by one.
      joins.store(false, std::memory_order_relaxed);
      return sent + send_datagrams(fd, datagrams.subspan(sent), joins);
    } else if (result != -EINTR) {
      sent += outgoing.joined(at++);  // the kernel refuses this datagram, and it is lost
    }
  }
  return sent;
}

bool can_join_datagrams(int fd) {
  int size = 0;
  socklen_t length = sizeof size;
  return ::getsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, &length) == 0;
}

void want_joined_datagrams(int fd) {
  const int on = 1;
  ::setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on);
}

std::size_t receive_datagrams(int fd, MutableOctets memory, std::span<IncomingPiece, kIncomingPieces> pieces) {
  const std::size_t part = memory.size() / kIncomingPieces;
  std::array<mmsghdr, kIncomingPieces> messages;
  std::array<sockaddr_in6, kIncomingPieces> addresses;
  std::array<iovec, kIncomingPieces> vectors;
  std::array<Control, kIncomingPieces> controls;
  for (std::size_t i = 0; i < kIncomingPieces; ++i) {
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
    count = ::syscall(SYS_recvmmsg, fd, messages.data(), kIncomingPieces, MSG_DONTWAIT, nullptr);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    IncomingPiece& piece = pieces[i];
    msghdr& header = messages[i].msg_hdr;
    piece = {};
    piece.each = messages[i].msg_len;
    piece.all.port = ntohs(addresses[i].sin6_port);
    std::memcpy(piece.all.from.data(), &addresses[i].sin6_addr, piece.all.from.size());
    const bool whole = (header.msg_flags & MSG_TRUNC) == 0 && read_control(header, piece);
    if (whole) piece.all.octets = Octets(memory).subspan(i * part, messages[i].msg_len);
  }
  return static_cast<std::size_t>(count);
}

std::uint16_t destination_port(std::uint32_t qp_number) {
  return qp_number == kMulticastQp ? settings().values.multicast_port : port_of(qp_number);
}

int multicast_socket(unsigned ifindex) {
  const int fd =
      DescriptorChange().take(sys::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "multicast");
  if (fd < 0) return -errno;
  Closer closer{fd};
  const int interface = static_cast<int>(ifindex);
  if (!set_option(fd, SOL_SOCKET, SO_REUSEADDR, true) || !set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, false) ||
      !set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, true))
    return -errno;
  // These options keep out datagrams for groups that only other sockets, or other interfaces, have joined. A kernel may
  // not know the options (SO_BINDTOIFINDEX without privilege needs Linux 5.7). Then DatagramPort drops datagrams for
  // groups to which no queue pair is attached.
  set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, false);
  ::setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &interface, sizeof interface);
  set_option(fd, IPPROTO_IPV6, kIpv6MulticastAll, false);
  want_datagram_buffers(fd);
  want_ip_fields(fd);
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
