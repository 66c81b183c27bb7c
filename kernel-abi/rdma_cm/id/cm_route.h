// SPDX-License-Identifier: MIT
// The route of an id: its two addresses, the device and, on RoCE, the path; the port of the id and the socket that is
// bound to this port; and their options (cma.c: rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route).
//
// A CmRoute is part of a CmId and uses the locks of the CmId: functions that change something are called with the id's
// command lock held. Other ids read the binding, so it needs the registry's lock. The route owns the socket until
// take_socket() or detach() gives it away.
//
// Functions that return int return 0 or an errno, unless a comment says otherwise.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "kernel-abi/rdma_cm/cm_roce.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/connect/rdma_port.h"
#include "provider/process/device.h"
#include "provider/process/shown/port_counters.h"

namespace uiw::kernel_abi {

// The device of an id.
struct CmDevice {
  std::uint64_t guid;  // host byte order
  unsigned ifindex;
  provider::Transport transport;
  provider::PortCounters* counters;  // the counters of the device, which also have its name
};

// A port to which an id is bound, for comparison with other ids.
struct CmBinding {
  sockaddr_storage address;
  bool reuse;
  bool v6only;
};

class CmRoute {
 public:
  // The arguments are values of RDMA_PS_* and IBV_QPT_*.
  CmRoute(std::uint16_t port_space, std::uint8_t qp_type) : port_space_(port_space), qp_type_(qp_type) {}

  std::uint16_t port_space() const { return port_space_; }
  std::uint8_t qp_type() const { return qp_type_; }
  const sockaddr_storage& source() const { return source_; }
  const sockaddr_storage& destination() const { return destination_; }
  const std::optional<CmDevice>& device() const { return device_; }
  bool has_device() const { return device_.has_value(); }
  const std::optional<RocePath>& path() const { return path_; }
  std::optional<std::uint8_t> ack_timeout() const { return ack_timeout_; }
  int type_of_service() const { return type_of_service_; }  // negative if the program has not set it
  bool is_reliable() const;
  // True for the port space TCP, and for IB with queue pairs of type RC: connections of such an id are TCP connections.
  // Any other id has no connection.
  bool uses_tcp() const;
  bool is_roce() const;

  // Binds the local address. After an error the caller must call release_binding().
  int bind(const sockaddr_storage& address);
  // Finds source address and device for a destination. An error that the kernel reports by an event is stored in
  // `reported` (0 or an errno), and the function returns 0.
  int resolve(const sockaddr_storage& destination, int& reported);
  // The members that resolve() sets, for restoring them if the next hop is not found.
  struct Ends {
    sockaddr_storage source, destination;
    std::optional<CmDevice> device;
  };
  Ends ends() const { return {source_, destination_, device_}; }
  void set_ends(const Ends& ends);
  // Returns 0 if the kernel knows the link-layer address of the next hop to the destination, and for a wildcard
  // destination; EINPROGRESS while the kernel resolves this address; otherwise the error of the route
  // (provider/connect/neighbour.h).
  int look_at_neighbour() const;
  // On RoCE sets `path` to the path to the destination, without storing it in the route; set_path() stores it. On iWARP
  // leaves `path` as it is.
  int find_path(std::optional<RocePath>& path) const;
  void set_path(const std::optional<RocePath>& path) { path_ = path; }
  // Replaces a wildcard destination by an address of this host.
  void settle_destination();
  // Makes this the route of the new id of an incoming call: from the address `local`, on `device`, to the caller's
  // address `remote`, with the options of `listener`, the route of the listening id.
  void adopt(const CmRoute& listener, const sockaddr_storage& local, const sockaddr_storage& remote,
             const provider::DeviceInfo& device);

  // Returns the socket that is bound to the source, which is created if necessary, or a negative errno. The caller owns
  // it.
  int take_socket();
  // Takes the RDMA port number of the source address (rdma_port.h), unless this id has it already.
  int take_number();
  // For an id that is about to listen: from here on the id shares its port with no other id, whatever
  // RDMA_OPTION_ID_REUSEADDR says. EADDRNOTAVAIL or EADDRINUSE if another id has the port (cma.c: rdma_listen).
  int claim_to_listen();
  // Leaves the TCP or UDP port that equals the RDMA port number to another socket, and binds a new socket to a
  // substitute port (rdma_port.h). take_socket() returns the new socket; if the caller has taken the former socket, it
  // closes that itself. 0, or an errno if nothing has changed: EINVAL if the port is a substitute already, or if the id
  // has no TCP or UDP port.
  int give_way();
  // In the child of a fork: keeps the socket and drops the RDMA port number; renew() takes the number once the parent
  // has ended.
  void inherit();
  int renew();
  // Whether the port is a substitute, which peers find only by looking up the RDMA port number.
  bool has_substitute() const { return substitute_ != 0; }

  void set_type_of_service(std::uint8_t value) { type_of_service_ = value; }
  int set_ack_timeout(std::uint8_t value);
  // Sets RDMA_OPTION_ID_AFONLY (IPV6_V6ONLY); a socket that is bound already is replaced.
  int set_family_only(bool value);

  const std::optional<CmBinding>& binding() const UIW_REQUIRES(g_registry_lock) { return binding_; }
  void release_binding() UIW_REQUIRES(g_registry_lock) { binding_.reset(); }
  void set_reuse_address(bool value) UIW_REQUIRES(g_registry_lock);
  void set_binding_v6only(bool value) UIW_REQUIRES(g_registry_lock);
  // Frees the port. The caller closes the socket, if it is not -1, and destroys the RDMA port without the registry's
  // lock held.
  struct Detached {
    int socket;
    std::shared_ptr<provider::RdmaPort> rdma_port;
  };
  Detached detach() UIW_REQUIRES(g_registry_lock);

 private:
  RocePath make_path(const provider::DeviceInfo& device) const;
  int bind_locally(sockaddr_storage address);
  int bind_ib(sockaddr_storage& address);
  int bind_ip(sockaddr_storage& address);
  int claim(const CmBinding& binding) UIW_EXCLUDES(g_registry_lock);
  int claim_pseudo_port(sockaddr_storage& address);
  int hold_number();
  int make_socket(const sockaddr_storage& address);
  int make_substitute_socket(const sockaddr_storage& address);
  int acquire_device(const sockaddr_storage& local);

  const std::uint16_t port_space_;
  const std::uint8_t qp_type_;
  sockaddr_storage source_ = {};
  sockaddr_storage destination_ = {};
  std::optional<CmDevice> device_;
  std::optional<RocePath> path_;             // on RoCE; set when the route is resolved, and for an incoming call
  std::optional<std::uint8_t> ack_timeout_;  // RDMA_OPTION_ID_ACK_TIMEOUT
  int socket_ = -1;                          // bound; -1 if there is none, or after take_socket()
  // The RDMA port number, if this id has taken it: because it listens, because it is bound to the number, or because
  // its TCP port is a substitute for the number (`substitute_`).
  std::shared_ptr<provider::RdmaPort> rdma_port_;
  int type_of_service_ = -1;
  unsigned substitute_ = 0;    // 0: the port is the RDMA port number; else the index of the substitute (rdma_port.h)
  bool lacks_number_ = false;  // the RDMA port number is still the parent's
  bool reuse_address_ = false;
  std::optional<bool> family_only_;
  std::optional<CmBinding> binding_ UIW_GUARDED_BY(g_registry_lock);
};

// True for the port space UDP in the RoCE view, where a client looks up the queue pair of a service and makes no
// connection.
bool looks_up(const CmRoute& route);

}  // namespace uiw::kernel_abi
