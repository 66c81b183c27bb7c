// SPDX-License-Identifier: MIT
// The limits that a device reports (ibv_query_device) and that its functions enforce.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::provider {

constexpr int kMaxQp = 65536;
constexpr int kMaxQpWr = 32768;
constexpr int kMaxSge = 32;
constexpr int kMaxInline = 1024;
constexpr std::uint32_t kLeastInline = 32;
constexpr int kMaxSrq = 65536;
constexpr int kMaxSrqWr = 65536;
constexpr int kMaxCq = 65536;
constexpr int kMaxCqe = 4 * 1024 * 1024;
constexpr std::uint16_t kMaxModerationCount = 65535;
constexpr std::uint16_t kMaxModerationPeriod = 65535;  // microseconds
constexpr int kMaxMr = 1 << 20;                        // for memory regions and windows together
constexpr int kMaxMw = 1 << 20;
constexpr std::uint64_t kMaxDmSize = 64 * 1024 * 1024;  // octets of device memory of a process
constexpr int kMaxPd = 65536;
constexpr int kMaxGroups = 20;      // IPv4 groups that a socket may join (net.ipv4.igmp_max_memberships)
constexpr int kMaxAttached = 1024;  // queue pairs attached to one group
constexpr int kMaxAh = 65536;       // if Transport::roce; an RNIC has no address handles
constexpr int kMaxReadDepth = 128;  // IRD and ORD of a QP; librdmacm carries them in 8 bits
constexpr std::uint64_t kMaxMrSize = ~std::uint64_t{0} >> 1;
constexpr std::uint32_t kMaxMessage = 1U << 31;  // RDMAP could carry 2^32 - 1; adapters report 2^30 or 2^31
constexpr std::uint32_t kVendorId = 0x756977;    // "uiw": an OUI with the group bit set, which is never assigned
constexpr std::uint32_t kVendorPart = 0x7569;    // "ui"

// Of the IBV_DEVICE_MEM_MGT_EXTENSIONS, programs can use local invalidation and Send with Invalidate.
constexpr std::uint32_t kDeviceCapFlags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
                                          IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                                          IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
                                          IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
// Of ibv_device_attr_ex alone. The names are those of the kernel's <rdma/ib_user_verbs.h> since Linux 6.2:
// IB_UVERBS_DEVICE_FLUSH_GLOBAL, _FLUSH_PERSISTENT and _ATOMIC_WRITE.
constexpr std::uint64_t kDeviceCapFlagsEx = std::uint64_t{7} << 38;
// IBV_ODP_SUPPORT_FLUSH and IBV_ODP_SUPPORT_ATOMIC_WRITE, which rdma-core has since release 58.
constexpr std::uint32_t kOdpSupportFlush = 1 << 6, kOdpSupportAtomicWrite = 1 << 7;

}  // namespace uiw::provider
