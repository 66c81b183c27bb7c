// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/cm_roce.h"

#include <endian.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "provider/process/limits.h"
#include "provider/verbs/qp/qp_attributes.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kExactly = 2;         // the selector of path records that means "equal" (IB_SA_EQ)
constexpr std::uint8_t kUsualLifetime = 18;  // CMA_IBOE_PACKET_LIFETIME of cma.c; newer kernels have 16
constexpr unsigned kMax5Bits = 31;

std::uint8_t rate_of(unsigned speed_mbps) {
  if (speed_mbps >= 40000) return IBV_RATE_40_GBPS;
  if (speed_mbps >= 30000) return IBV_RATE_30_GBPS;
  if (speed_mbps >= 20000) return IBV_RATE_20_GBPS;
  return speed_mbps >= 10000 ? IBV_RATE_10_GBPS : IBV_RATE_MAX;
}

std::uint8_t depth(std::uint8_t asked) { return std::min(asked, static_cast<std::uint8_t>(provider::kMaxReadDepth)); }

}  // namespace

// The lifetime of a path and the local ACK timeout are given as exponents of 2. The timeout is twice the lifetime, so
// its exponent is greater by 1. If RDMA_OPTION_ID_ACK_TIMEOUT is set before the path is resolved, that timeout
// determines the lifetime.
RocePath make_path(const provider::DeviceInfo& device, const sockaddr* source, const sockaddr* destination,
                   std::uint8_t traffic_class, std::uint8_t ack_timeout) {
  RocePath path;
  path.source = provider::gid_of(source);
  path.destination = provider::gid_of(destination);
  path.source_index = provider::gid_index_of(device, source);
  path.mtu = static_cast<std::uint8_t>(provider::path_mtu_of(device));
  path.rate = rate_of(device.speed_mbps);
  path.traffic_class = traffic_class;
  path.lifetime = ack_timeout == 0 ? kUsualLifetime : static_cast<std::uint8_t>((ack_timeout - 1U) & kMax5Bits);
  return path;
}

ib_path_rec_data path_record(const RocePath& path) {
  ibv_path_record record;
  std::memset(&record, 0, sizeof record);
  std::memcpy(record.dgid.raw, path.destination.data(), path.destination.size());
  std::memcpy(record.sgid.raw, path.source.data(), path.source.size());
  record.flowlabel_hoplimit = htobe32(kHopLimit);
  record.tclass = path.traffic_class;
  record.reversible_numpath = 1U << 7;
  record.pkey = htobe16(kDefaultPkey);
  record.mtu = static_cast<std::uint8_t>(kExactly << 6 | path.mtu);
  record.rate = static_cast<std::uint8_t>(kExactly << 6 | path.rate);
  record.packetlifetime = static_cast<std::uint8_t>(kExactly << 6 | path.lifetime);
  ib_path_rec_data data = {};
  data.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  static_assert(sizeof data.path_rec == sizeof record);
  std::memcpy(data.path_rec, &record, sizeof record);
  return data;
}

void show_route(const RocePath& path, rdma_ucm_query_route_resp& response) {
  ib_user_path_rec& record = response.ib_route[0];
  std::memcpy(record.dgid, path.destination.data(), path.destination.size());
  std::memcpy(record.sgid, path.source.data(), path.source.size());
  record.reversible = 1;
  record.mtu = path.mtu;
  record.pkey = htobe16(kDefaultPkey);
  record.hop_limit = kHopLimit;
  record.traffic_class = path.traffic_class;
  record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
  record.rate = path.rate;
  record.packet_life_time = path.lifetime;
  response.num_paths = 1;
}

void fill_address(const RocePath& path, ib_uverbs_ah_attr& address) {
  std::memcpy(address.grh.dgid, path.destination.data(), path.destination.size());
  address.grh.sgid_index = path.source_index;
  address.grh.hop_limit = kHopLimit;
  address.grh.traffic_class = path.traffic_class;
  address.is_global = 1;
  address.port_num = kPort;
}

void fill_rtr(const RocePath& path, const RoceAgreement& agreement, ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  fill_address(path, attributes.ah_attr);
  attributes.path_mtu = path.mtu;
  attributes.dest_qp_num = provider::kManagedQpNumber;
  attributes.max_dest_rd_atomic = depth(agreement.responder_resources);
}

void fill_rts(const RocePath& path, const RoceAgreement& agreement, std::optional<std::uint8_t> ack_timeout,
              ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask =
      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT;
  attributes.retry_cnt = agreement.retry_count;
  attributes.rnr_retry = agreement.rnr_retry_count;
  attributes.max_rd_atomic = depth(agreement.initiator_depth);
  const unsigned timeout = ack_timeout.value_or(path.lifetime + 1);
  attributes.timeout = static_cast<std::uint8_t>(std::min(timeout, kMax5Bits));
}

void fill_datagram(ib_uverbs_qp_attr& attributes) {
  attributes.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  attributes.qkey = kDatagramQkey;
}

// Reports the constant queue pair number of fill_rtr(), since MPA does not carry the peer's number.
void fill_message(std::size_t room, const provider::RetryCounts& counts, rdma_ucm_conn_param& event) {
  event.private_data_len = std::max(event.private_data_len, static_cast<std::uint8_t>(room));
  event.retry_count = counts.retry;
  event.rnr_retry_count = counts.rnr_retry;
  event.qp_num = provider::kManagedQpNumber;
}

}  // namespace uiw::kernel_abi
