// SPDX-License-Identifier: MIT
// One rdma_cm id: its address, its state, and the connection or listener behind it. The states are those of
// drivers/infiniband/core/cma.c, with those of iwcm.c for the stream.
//
// Commands return 0 or an errno; the caller holds command_lock(). Callbacks of the provider come on any
// thread.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernel-abi/rdma_cm/cm_channel.h"
#include "kernel-abi/rdma_cm/cm_events.h"
#include "kernel-abi/rdma_cm/cm_roce.h"
#include "provider/connect/connection.h"
#include "provider/connect/listener.h"
#include "provider/process/mutex.h"

namespace uiw::kernel_abi {

enum class CmState { idle, addr_bound, addr_resolved, route_resolved, connect, listen, destroyed };

enum class StreamState {
  none,
  calling,    // CONNECT is under way
  requested,  // a peer's call waits for ACCEPT or REJECT
  accepting,  // ACCEPT is under way
  established,
  ended,
};

struct CmIdParameters {
  std::uint64_t uid;         // the program's name for the id; 0 until a new connection is accepted
  std::uint16_t port_space;  // RDMA_PS_*
  std::uint8_t qp_type;
};

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

// The end of an id, carried out without the registry's lock.
struct CmRemains {
  std::shared_ptr<provider::Listener> listener;
  std::shared_ptr<provider::Connection> connection;
  StreamState stream = StreamState::none;
  int socket = -1;
  std::uint32_t events_reported = 0;
};

class CmId final : public provider::ConnectionObserver,
                   public provider::ListenObserver,
                   public std::enable_shared_from_this<CmId> {
 public:
  CmId(std::uint32_t number, std::shared_ptr<CmChannel> channel, const CmIdParameters& parameters);
  ~CmId() override;

  std::uint32_t number() const { return number_; }
  provider::Mutex& command_lock() { return command_mutex_; }

  // Commands, in the order of a connection's life.
  int bind(const sockaddr_storage& address);
  int resolve_addr(const sockaddr_storage& source, const sockaddr_storage& destination);
  int resolve_route();
  int listen(int backlog);
  int connect(const rdma_ucm_conn_param& parameters);
  int accept(const rdma_ucm_conn_param& parameters, std::uint64_t uid);
  int accept_response();  // an ACCEPT without parameters: the active side's on RoCE, and of rdma_establish()
  int reject(const std::uint8_t* private_data, std::size_t size, unsigned reason);
  int disconnect();
  int notify();
  int join_multicast();
  int resolve_ib_service();
  int write_event(std::uint32_t event, std::uint32_t status, std::uint64_t argument);

  int set_type_of_service(std::uint8_t value);
  int set_reuse_address(bool value);
  int set_address_family_only(bool value);
  int set_ack_timeout(std::uint8_t value);
  int set_ib_path(const std::vector<std::uint8_t>& records);

  int init_qp_attr(std::uint32_t qp_state, ib_uverbs_qp_attr& attributes) const;
  rdma_ucm_query_route_resp query_route() const;
  rdma_ucm_query_addr_resp query_addr() const;
  rdma_ucm_query_addr_resp query_gid() const;
  const std::optional<RocePath>& path() const { return path_; }
  // The id's device went away with this interface? Then the program is told, the connection ends, and all that is left
  // to do with the id is to destroy it. Takes the command lock.
  void interface_removed(unsigned ifindex);
  bool has_device() const { return device_.has_value(); }

  // provider::ConnectionObserver
  void established(const provider::ConnectionParameters& peer) override;
  void failed(int error, const provider::ConnectionParameters* peer) override;
  void disconnected() override;
  // provider::ListenObserver
  void requested(std::shared_ptr<provider::Connection> call,
                 const provider::ConnectionParameters& peer) override;

  // For the registry, with its lock held.
  const std::shared_ptr<CmChannel>& channel() const { return channel_; }
  void set_channel(std::shared_ptr<CmChannel> channel) { channel_ = std::move(channel); }
  const std::optional<CmBinding>& binding() const { return binding_; }
  bool is_destroyed() const { return state_ == CmState::destroyed; }
  bool is_removed() const { return removed_; }
  std::uint32_t events_reported() const { return events_reported_; }
  std::uint16_t port_space() const { return port_space_; }
  void count_reported(const CmEvent& event);
  CmRemains destroy();
  // Without any lock.
  static void bury(CmRemains remains);
  // In the child of a fork.
  void abandon();

 private:
  bool exchange_state(CmState from, CmState to);
  bool is_reliable() const;
  bool uses_tcp() const;
  bool is_roce() const;
  RocePath make_path(const provider::DeviceInfo& device) const;
  int bind_locally(sockaddr_storage address);
  int bind_ib(sockaddr_storage& address);
  int bind_ip(sockaddr_storage& address);
  int claim(const CmBinding& binding);
  int claim_pseudo_port(sockaddr_storage& address);
  int make_socket(const sockaddr_storage& address);
  int acquire_device(const sockaddr_storage& local);
  int check_call_state();
  CmRemains let_go();
  void provide_events(std::size_t count);
  void post(rdma_ucm_event_resp response);
  void post(CmEventType event, int status, const rdma_ucm_conn_param& parameters = {});
  void adopt(const std::shared_ptr<CmId>& child, const std::shared_ptr<provider::Connection>& call,
             const sockaddr_storage& local, const provider::DeviceInfo& device,
             const provider::ConnectionParameters& peer, CmEvents& event);

  const std::uint32_t number_;
  const std::uint16_t port_space_;
  const std::uint8_t qp_type_;
  provider::Mutex command_mutex_;

  // Under the command lock; set before the id is known to others, or by its commands alone.
  sockaddr_storage source_ = {};
  sockaddr_storage destination_ = {};
  std::optional<CmDevice> device_;
  std::optional<RocePath> path_;              // on RoCE, once the route is known
  std::optional<std::uint8_t> ack_timeout_;   // RDMA_OPTION_ID_ACK_TIMEOUT
  int socket_ = -1;                           // bound, and not yet given to the provider
  int type_of_service_ = -1;
  bool reuse_address_ = false;
  std::optional<bool> family_only_;

  // Under the registry's lock.
  std::shared_ptr<CmChannel> channel_;
  CmEvents spare_events_;  // whose memory is there before they can come
  std::uint64_t uid_;
  CmState state_ = CmState::idle;
  bool removed_ = false;  // its device is no more
  StreamState stream_ = StreamState::none;
  bool responded_ = false;  // the active side's stream stood
  std::uint8_t retry_count_ = 0;  // what CONNECT said
  std::optional<RoceAgreement> agreement_;  // since the peer's message
  bool disconnect_wanted_ = false;  // DISCONNECT came while the stream was still being set up
  int backlog_ = 0;                 // CONNECT_REQUEST events that may still be queued
  std::uint32_t events_reported_ = 0;
  std::uint8_t accepted_resources_ = 0, accepted_depth_ = 0;  // what ACCEPT said of Reads
  std::optional<CmBinding> binding_;
  std::shared_ptr<provider::Listener> listener_;
  std::shared_ptr<provider::Connection> connection_;
};

}  // namespace uiw::kernel_abi
