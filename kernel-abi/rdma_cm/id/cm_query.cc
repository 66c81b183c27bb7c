// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_query.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_roce.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/memory/rights.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::uint32_t kUnknownIndex = 0xffffffff;  // librdmacm then finds the device by its GUID

static_assert(sizeof(__kernel_sockaddr_storage) == sizeof(sockaddr_storage));

template <typename Response>
void fill_device(std::uint64_t guid, Response& response) {
  response.node_guid = htobe64(guid);
  response.port_num = kPort;
}

sockaddr_ib as_ib(const sockaddr_storage& address, std::uint16_t port_space, bool has_device) {
  sockaddr_ib ib = {};
  if (address.ss_family == AF_IB) {
    std::memcpy(&ib, &address, sizeof ib);
    return ib;
  }
  ib.sib_family = AF_IB;
  ib.sib_pkey = has_device ? htobe16(kDefaultPkey) : 0;
  if (has_device && !is_wildcard(address)) {
    const sockaddr_storage plain = unmapped(address);
    const provider::Gid gid = provider::gid_of(generic(plain));
    std::memcpy(&ib.sib_addr, gid.data(), gid.size());
  }
  ib.sib_sid = htobe64(std::uint64_t{port_space} << 16 | port_of(address));
  return ib;
}

}  // namespace

rdma_ucm_query_route_resp query_route(const CmRoute& route) {
  rdma_ucm_query_route_resp response = {};
  response.ibdev_index = kUnknownIndex;
  std::memcpy(&response.src_addr, &route.source(), sizeof response.src_addr);
  std::memcpy(&response.dst_addr, &route.destination(), sizeof response.dst_addr);
  if (!route.device()) return response;
  fill_device(route.device()->guid, response);
  const sockaddr_ib source = as_ib(route.source(), route.port_space(), true);
  const sockaddr_ib destination = as_ib(route.destination(), route.port_space(), true);
  std::memcpy(response.ib_route[0].sgid, &source.sib_addr, sizeof response.ib_route[0].sgid);
  std::memcpy(response.ib_route[0].dgid, &destination.sib_addr, sizeof response.ib_route[0].dgid);
  response.ib_route[0].pkey = htobe16(kDefaultPkey);
  if (route.path()) show_route(*route.path(), response);
  return response;
}

rdma_ucm_query_addr_resp query_addr(const CmRoute& route) {
  rdma_ucm_query_addr_resp response = {};
  response.ibdev_index = kUnknownIndex;
  response.src_size = static_cast<__u16>(address_size(route.source().ss_family));
  response.dst_size = static_cast<__u16>(address_size(route.destination().ss_family));
  std::memcpy(&response.src_addr, &route.source(), sizeof route.source());
  std::memcpy(&response.dst_addr, &route.destination(), sizeof route.destination());
  if (route.device()) {
    fill_device(route.device()->guid, response);
    response.pkey = htobe16(kDefaultPkey);
  }
  return response;
}

rdma_ucm_query_addr_resp query_gid(const CmRoute& route) {
  rdma_ucm_query_addr_resp response = {};
  response.ibdev_index = kUnknownIndex;
  const sockaddr_ib source = as_ib(route.source(), route.port_space(), route.has_device());
  const sockaddr_ib destination = as_ib(route.destination(), route.port_space(), route.has_device());
  response.src_size = response.dst_size = sizeof(sockaddr_ib);
  std::memcpy(&response.src_addr, &source, sizeof source);
  std::memcpy(&response.dst_addr, &destination, sizeof destination);
  if (route.device()) {
    fill_device(route.device()->guid, response);
    response.pkey = htobe16(kDefaultPkey);
  }
  return response;
}

// An id of type UD in the RoCE view gets the attributes of fill_datagram() for every state.
//
// Other ids get all access rights of iWARP for the step to INIT, on iWARP also for the step to RTR, and for every state
// as long as the id has no connection. uiw checks the rights of a queue pair from the first octet that the peer sends,
// so the queue pair must have them by then. (The kernel gives fewer rights, and only to an id with a connection.)
//
// An iWARP queue pair reaches RTS when the connection is made, so there are no attributes for the step to RTS. On RoCE
// the program takes the steps to RTR and RTS. It can do so as soon as the peer's MPA frame has arrived, even if the
// stream has ended since.
int init_qp_attr(const CmId& id, std::uint32_t qp_state, ib_uverbs_qp_attr& attributes) {
  const CmRoute& route = id.route();
  if (qp_state > IBV_QPS_ERR || !route.has_device()) return EINVAL;
  bool has_stream;
  std::optional<RoceAgreement> agreement;
  {
    const LockGuard lock(g_registry_lock);
    if (id.state() == CmState::listen) return EINVAL;
    has_stream = id.connection().has_stream();
    agreement = id.connection().agreement();
  }
  attributes = {};
  attributes.qp_state = qp_state;
  attributes.port_num = kPort;
  attributes.qp_attr_mask = IBV_QP_PORT;
  if (route.is_roce() && route.qp_type() == IBV_QPT_UD) {
    fill_datagram(attributes);
    return 0;
  }
  const bool rtr = qp_state == IBV_QPS_RTR;
  if (route.is_roce() && has_stream && qp_state != IBV_QPS_INIT) {
    if ((!rtr && qp_state != IBV_QPS_RTS) || !agreement || !route.path()) return EINVAL;
    if (rtr) {
      fill_rtr(*route.path(), *agreement, attributes);
    } else {
      fill_rts(*route.path(), *agreement, route.ack_timeout(), attributes);
    }
    return 0;
  }
  const bool starting = qp_state == IBV_QPS_INIT || rtr;
  if (has_stream && !starting) return qp_state == IBV_QPS_RTS ? 0 : EINVAL;
  attributes.qp_attr_mask |= IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
  if (route.is_roce()) attributes.qp_attr_mask |= IBV_QP_PKEY_INDEX;
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_ATOMIC | provider::kFlushAccess;
  return 0;
}

}  // namespace uiw::kernel_abi
