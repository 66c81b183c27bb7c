// SPDX-License-Identifier: MIT
// From where to where does an id lead, and by which device? Its two addresses, the device and, on RoCE, the path; the
// port that it holds and the socket that is bound to it; and the options that go with them (cma.c: rdma_bind_addr,
// rdma_resolve_addr, rdma_resolve_route).
//
// Part of a CmId, and as thread-safe as that: what changes is called with the id's command lock held. The binding is
// others' to see: it is read and written with the registry's lock, which these functions take where nothing else is
// said. The socket belongs to the route until take_socket() or detach() gives it away.
//
// Functions that return int return 0 or an errno.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "kernel-abi/rdma_cm/cm_roce.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {

// The device that an id is tied to.
struct CmDevice {
  std::uint64_t guid;  // host byte order
  unsigned ifindex;
  provider::Transport transport;
};

// A port that an id holds.
struct CmBinding {
  sockaddr_storage address;
  bool reuse;
  bool v6only;
};

class CmRoute {
 public:
  // RDMA_PS_* and IBV_QPT_*.
  CmRoute(std::uint16_t port_space, std::uint8_t qp_type) : port_space_(port_space), qp_type_(qp_type) {}

  std::uint16_t port_space() const { return port_space_; }
  std::uint8_t qp_type() const { return qp_type_; }
  const sockaddr_storage& source() const { return source_; }
  const sockaddr_storage& destination() const { return destination_; }
  const std::optional<CmDevice>& device() const { return device_; }
  bool has_device() const { return device_.has_value(); }
  const std::optional<RocePath>& path() const { return path_; }
  std::optional<std::uint8_t> ack_timeout() const { return ack_timeout_; }
  int type_of_service() const { return type_of_service_; }  // negative where the program has not said
  bool is_reliable() const;
  // An iWARP connection is a TCP connection; the other port spaces exist, and have nothing on the wire.
  bool uses_tcp() const;
  bool is_roce() const;

  // The local address. Where it cannot be had, release_binding() is still to be called.
  int bind(const sockaddr_storage& address);
  // Source and device for a destination. What the kernel tells by an event goes to `reported`, 0 or an errno, and is no
  // error here.
  int resolve(const sockaddr_storage& destination, int& reported);
  // The path to the destination, on RoCE; set_path() has it known.
  int find_path(std::optional<RocePath>& path) const;
  void set_path(const std::optional<RocePath>& path) { path_ = path; }
  // Calls to the wildcard address go to this host.
  void settle_destination();
  // The route of a call that `listener` was asked for.
  void adopt(const CmRoute& listener, const sockaddr_storage& local, const sockaddr_storage& remote,
             const provider::DeviceInfo& device);

  // The socket that is bound to the source, made where there is none yet, or a negative errno. It is the caller's.
  int take_socket();
  // In the child of a fork.
  void abandon();

  void set_type_of_service(std::uint8_t value) { type_of_service_ = value; }
  int set_ack_timeout(std::uint8_t value);
  // Also of the socket that is there.
  int set_family_only(bool value);

  // With the registry's lock held.
  const std::optional<CmBinding>& binding() const { return binding_; }
  void release_binding() { binding_.reset(); }
  void set_reuse_address(bool value);
  void set_binding_v6only(bool value);
  // Frees the port. Returns the socket, to be closed without the lock, or -1.
  int detach();

 private:
  RocePath make_path(const provider::DeviceInfo& device) const;
  int bind_locally(sockaddr_storage address);
  int bind_ib(sockaddr_storage& address);
  int bind_ip(sockaddr_storage& address);
  int claim(const CmBinding& binding);
  int claim_pseudo_port(sockaddr_storage& address);
  int make_socket(const sockaddr_storage& address);
  int acquire_device(const sockaddr_storage& local);

  const std::uint16_t port_space_;
  const std::uint8_t qp_type_;
  sockaddr_storage source_ = {};
  sockaddr_storage destination_ = {};
  std::optional<CmDevice> device_;
  std::optional<RocePath> path_;             // on RoCE, once the route is known
  std::optional<std::uint8_t> ack_timeout_;  // RDMA_OPTION_ID_ACK_TIMEOUT
  int socket_ = -1;                          // bound, and not yet given to the provider
  int type_of_service_ = -1;
  bool reuse_address_ = false;
  std::optional<bool> family_only_;
  std::optional<CmBinding> binding_;
};

}  // namespace uiw::kernel_abi
