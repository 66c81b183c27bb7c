// SPDX-License-Identifier: MIT
// The UDP socket of a port: batches of datagrams to and from the kernel. Addresses are GIDs, IPv4 ones mapped.
//
// Datagrams of one size that go to one place in a row are one datagram for most of the kernel's way, where it can (UDP
// segmentation and receive offload, udp(7): UDP_SEGMENT and UDP_GRO). On the wire they are as they always are.
//
// Nothing blocks, and no call is a cancellation point of the program's thread. Threads: any number may send; one at a
// time receives.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "provider/datagram/ip_fields.h"
#include "provider/process/device.h"

namespace uiw::provider {

constexpr std::size_t kDatagramBatch = 32;

// A call receives up to so many pieces.
constexpr std::size_t kIncomingPieces = 4;

// Where a datagram goes: fixed when its work is posted, since the program may destroy its address handle then.
struct DatagramRoute {
  Gid from, to;
  std::uint32_t scope = 0;  // interface index, for link-local addresses
  IpFields ip;

  bool operator==(const DatagramRoute&) const = default;
};

struct OutgoingDatagram {
  const DatagramRoute* route;
  std::uint16_t port;  // of the destination
  Octets octets;
};

struct IncomingDatagram {
  Gid from, to;
  IpFields ip;
  std::uint16_t port;  // of the source
  Octets octets;       // in the caller's memory; empty where the datagram was longer than its room
};

// What the kernel gives at a time: a datagram, or several of one source, which have `each` octets, but for the last,
// which may have fewer.
struct IncomingPiece {
  IncomingDatagram all;
  std::size_t each;

  std::size_t count() const { return all.octets.size() <= each ? 1 : (all.octets.size() + each - 1) / each; }
  template <typename Function>
  void for_each(Function function) const {
    for (std::size_t i = 0; i < count(); ++i) {
      const Octets rest = all.octets.subspan(i * each);
      function(IncomingDatagram{all.from, all.to, all.ip, all.port, rest.first(std::min(each, rest.size()))});
    }
  }
};

// The number of datagrams that the kernel has taken, from the first one on; at most kDatagramBatch are looked at. One
// that the kernel refuses (no route, an address that is gone) counts as taken: it is lost, as datagrams may be. Where
// the kernel refuses a flow label, since a user of the host has taken labels for itself, it goes without one. 0 where
// the socket can take none now. `joins` is of the socket: whether the kernel takes several datagrams as one, at first
// what can_join_datagrams() says; it becomes false where the kernel does not.
std::size_t send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams, std::atomic<bool>& joins);

// Whether this kernel knows UDP_SEGMENT. One that does not would send what is joined as one long datagram.
bool can_join_datagrams(int fd);

// Lets the kernel give several datagrams as one, where it can.
void want_joined_datagrams(int fd);

// Receives up to kIncomingPieces pieces into equal parts of `memory`, of which each has room for the longest. The
// number of pieces; 0 if there is none.
std::size_t receive_datagrams(int fd, MutableOctets memory, std::span<IncomingPiece, kIncomingPieces> pieces);

// The UDP port, in host byte order, that a datagram for this number goes to. That of all groups is a setting.
std::uint16_t destination_port(std::uint32_t qp_number);

// Makes a socket for the groups of an interface, beside those of other processes on their port; or a negative errno.
int multicast_socket(unsigned ifindex);
// Joins or leaves a group. 0 or an errno: ENOMEM where the kernel lets a socket join no more groups.
int change_membership(int fd, const Gid& group, unsigned ifindex, bool join);

}  // namespace uiw::provider
