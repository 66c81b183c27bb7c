// SPDX-License-Identifier: MIT
// The UDP socket of a port: sends and receives datagrams in batches. Addresses are GIDs; an IPv4 address is an
// IPv4-mapped IPv6 address.
//
// Successive datagrams of one size and destination are joined, if the kernel has UDP_SEGMENT and UDP_GRO (udp(7)): most
// of the kernel's code then handles them as one datagram. On the wire they are separate.
//
// Nothing blocks, and no call is a cancellation point. Any number of threads may send at the same time; only one at a
// time may receive by one descriptor.
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

// The most pieces that one call of receive_datagrams() receives.
constexpr std::size_t kIncomingPieces = 4;

// The path of a datagram. It is copied when the work request is posted, since the program may destroy the address
// handle afterwards.
struct DatagramRoute {
  Gid from, to;
  std::uint32_t scope = 0;  // index of the device's interface; not used for IPv4
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
  Octets octets;       // in the caller's memory; empty if they do not fit, or if the kernel does not report `to`
};

// What the kernel delivers at a time: one datagram, or several datagrams of one source that it has joined (UDP_GRO).
// Each datagram has `each` octets; only the last one may be shorter.
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

// Returns the number of datagrams that the kernel has accepted, from the first one on; at most kDatagramBatch are
// tried. 0 if the socket has no room now. A datagram that the kernel refuses (no route, an address that is gone) counts
// as accepted: it is lost, as datagrams may be. A datagram whose flow label the kernel refuses, since a user of the
// host has reserved labels, is sent without the label. `joins` belongs to the socket and says whether datagrams may be
// joined. It begins with the value of can_join_datagrams(), and becomes false when the kernel refuses joined datagrams.
std::size_t send_datagrams(int fd, std::span<const OutgoingDatagram> datagrams, std::atomic<bool>& joins);

// Whether this kernel knows UDP_SEGMENT. Other kernels would send joined datagrams as one long datagram.
bool can_join_datagrams(int fd);

// Lets the kernel deliver several datagrams as one piece, if it can.
void want_joined_datagrams(int fd);

// Receives up to kIncomingPieces pieces into equal parts of `memory`. Each part must have room for the longest piece.
// Returns the number of pieces; 0 if nothing has arrived, or after an error.
std::size_t receive_datagrams(int fd, MutableOctets memory, std::span<IncomingPiece, kIncomingPieces> pieces);

// The UDP port, in host byte order, for datagrams to this queue pair number. For kMulticastQp it is the value of
// UIW_MULTICAST_PORT.
std::uint16_t destination_port(std::uint32_t qp_number);

// Opens a socket for multicast groups on an interface. It shares its UDP port with other processes. Returns a
// descriptor or a negative errno.
int multicast_socket(unsigned ifindex);
// Joins or leaves a group. 0 or an errno: ENOMEM if the kernel lets the socket join no more groups.
int change_membership(int fd, const Gid& group, unsigned ifindex, bool join);

}  // namespace uiw::provider
