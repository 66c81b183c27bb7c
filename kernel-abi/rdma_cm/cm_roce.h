// SPDX-License-Identifier: MIT
// What rdma_cm says of a connection where the device presents itself as one for RoCE: path records, the attributes of a
// queue pair, and what the messages of InfiniBand's connection manager carry (drivers/infiniband/core: cma.c, cm.c,
// ucma.c; InfiniBand Architecture Specification volume 1, chapter 12). Pure: values in, structures out.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then leaves its own copy of the same types out
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "provider/process/device.h"

namespace uiw::kernel_abi {

// Room for private data in REQ, which also carries the IP addresses, in REP and in REJ. A consumer may give as
// much, and is always shown as much.
constexpr std::size_t kReqPrivateData = 56;
constexpr std::size_t kRepPrivateData = 196;
constexpr std::size_t kRejPrivateData = 148;

// The reason in a REJ (section 12.6.7.2) where nobody listens.
constexpr int kRejInvalidServiceId = 8;

// Of every device: its one port, and the one entry of the port's P_Key table.
constexpr std::uint8_t kPort = 1;
constexpr std::uint16_t kDefaultPkey = 0xffff;

// The way from one end to the other.
struct RocePath {
  provider::Gid source = {};
  provider::Gid destination = {};
  std::uint8_t source_index = 0;  // in the GID table
  std::uint8_t mtu = 0;           // IBV_MTU_*
  std::uint8_t rate = 0;          // IBV_RATE_*
  std::uint8_t traffic_class = 0;
  std::uint8_t lifetime = 0;  // 4.096 us times two to this power
};
RocePath make_path(const provider::DeviceInfo& device, const sockaddr* source, const sockaddr* destination,
                   std::uint8_t traffic_class, std::uint8_t ack_timeout);

// As QUERY_PATH and as QUERY_ROUTE show it.
ib_path_rec_data path_record(const RocePath& path);
void show_route(const RocePath& path, rdma_ucm_query_route_resp& response);

// What both ends have agreed on.
struct RoceAgreement {
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
};
// Attributes that take a queue pair to RTR and to RTS (section 12.10.2), with their masks.
void fill_rtr(const RocePath& path, const RoceAgreement& agreement, ib_uverbs_qp_attr& attributes);
// `ack_timeout`: RDMA_OPTION_ID_ACK_TIMEOUT, which may be set after the path was asked for, and on the passive side
// too.
void fill_rts(const RocePath& path, const RoceAgreement& agreement, std::optional<std::uint8_t> ack_timeout,
              ib_uverbs_qp_attr& attributes);

// An event that tells of a REQ or REP with this much room.
void fill_message(std::size_t room, rdma_ucm_conn_param& event);

}  // namespace uiw::kernel_abi
