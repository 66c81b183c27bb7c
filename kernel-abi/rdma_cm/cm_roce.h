// SPDX-License-Identifier: MIT
// What rdma_cm reports of a connection in the RoCE view: path records, the attributes of a queue pair, and the contents
// of the messages of InfiniBand's connection manager (drivers/infiniband/core: cma.c, cm.c, ucma.c). Chapters are those
// of the InfiniBand Architecture Specification, volume 1. Functions without state.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "provider/connect/startup/retry_counts_format.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {

// The room for private data, in octets, in the messages REQ (which also has the IP addresses), REP and REJ. A consumer
// may send at most this much, and an event reports at least this length.
constexpr std::size_t kReqPrivateData = 56;
constexpr std::size_t kRepPrivateData = 196;
constexpr std::size_t kRejPrivateData = 148;
// The room for private data in the messages SIDR_REQ and SIDR_REP, by which queue pairs of type UD are looked up
// (chapter 12.11).
constexpr std::size_t kSidrReqPrivateData = 180;
constexpr std::size_t kSidrRepPrivateData = 136;

// The status of a SIDR_REP if no process has the service, and if the service rejects the request (chapter 12.11.2.2).
constexpr int kSidrUnsupported = 1, kSidrRejected = 2;

// The Q_Key of rdma_cm's queue pairs for datagrams (RDMA_UDP_QKEY of <rdma/rdma_cma.h>).
constexpr std::uint32_t kDatagramQkey = 0x01234567;

// The reason in a REJ if no process listens (chapter 12.6.7.2).
constexpr int kRejInvalidServiceId = 8;

// Every device has this one port, and this one entry in the port's P_Key table.
constexpr std::uint8_t kPort = 1;
constexpr std::uint16_t kDefaultPkey = 0xffff;

// The path from one end of a connection to the other.
struct RocePath {
  provider::Gid source = {};
  provider::Gid destination = {};
  std::uint8_t source_index = 0;  // the index of `source` in the device's GID table
  std::uint8_t mtu = 0;           // IBV_MTU_*
  std::uint8_t rate = 0;          // IBV_RATE_*
  std::uint8_t traffic_class = 0;
  std::uint8_t lifetime = 0;  // 4.096 us * 2^lifetime
};
RocePath make_path(const provider::DeviceInfo& device, const sockaddr* source, const sockaddr* destination,
                   std::uint8_t traffic_class, std::uint8_t ack_timeout);

// The path in the formats of QUERY_PATH and QUERY_ROUTE.
ib_path_rec_data path_record(const RocePath& path);
void show_route(const RocePath& path, rdma_ucm_query_route_resp& response);

// The parameters of a connection that both ends have negotiated.
struct RoceAgreement {
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
};
// Fills in an address handle's attributes for the path.
void fill_address(const RocePath& path, ib_uverbs_ah_attr& address);
// Fill in the attributes for the steps to RTR and to RTS (InfiniBand specification, chapter 12.10.2), and their masks.
void fill_rtr(const RocePath& path, const RoceAgreement& agreement, ib_uverbs_qp_attr& attributes);
// `ack_timeout`: RDMA_OPTION_ID_ACK_TIMEOUT, which may be set after the path was resolved, and also on the passive
// side.
void fill_rts(const RocePath& path, const RoceAgreement& agreement, std::optional<std::uint8_t> ack_timeout,
              ib_uverbs_qp_attr& attributes);

// Fills in the attributes of a queue pair of type UD. They are the same for every state to which the queue pair
// changes.
void fill_datagram(ib_uverbs_qp_attr& attributes);

// Sets the parameters of an event for a REQ or REP: the length of its private data, which is at least `room`, the retry
// counts and the queue pair number.
void fill_message(std::size_t room, const provider::RetryCounts& counts, rdma_ucm_conn_param& event);

}  // namespace uiw::kernel_abi
