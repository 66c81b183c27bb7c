// SPDX-License-Identifier: MIT
#include "provider/verbs/context.h"

#include <rdma/ib_user_verbs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "provider/connect/numbered.h"
#include "provider/connect/qp_table.h"
#include "provider/inventory/processes.h"
#include "provider/process/limits.h"
#include "provider/process/log.h"
#include "provider/process/netlink/link_watch.h"
#include "provider/process/processors.h"
#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/verbs/device_file.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/queue_pair.h"
#include "provider/version.h"

namespace uiw::provider {

// ---- The device ------------------------------------------------------------------------------------------------

Context::Context(DeviceInfo device, std::shared_ptr<EventPipe> async, const ibv_context* handle)
    : device_(std::move(device)),
      handle_(handle),
      file_(handle == nullptr ? kNoDeviceFile : device_file(handle->cmd_fd)),
      async_(std::move(async)),
      engine_(
          [](std::uint32_t number) -> Driven* {
            Numbered* const found = find_numbered(number);
            return found == nullptr ? nullptr : found->driven();
          },
          port_counters(device_.name), progress_threads(settings().values.progress_threads, usable_processors())) {
  observe_removed_interfaces([](unsigned ifindex) {
    for_each_context([ifindex](Context& context) {
      if (context.device().ifindex == ifindex) context.report_removal();
    });
  });
  register_context(this);
}

Context::~Context() { close(); }

void Context::close() {
  listed_.leave();
  unregister_context(this);
  // In several rounds, since there may be no memory for a list of all of them. Queue pairs that have been stopped are
  // not found again.
  struct {
    const Context* context;
    std::array<QueuePair*, 64> qps;
    std::size_t count;
  } left{this, {}, 0};
  do {
    left.count = 0;
    for_each_queue_pair([&left](std::uint32_t, QueuePair& qp) {
      if (&qp.context() != left.context || left.count == left.qps.size()) return;
      const auto end = left.qps.begin() + static_cast<std::ptrdiff_t>(left.count);
      if (std::find(left.qps.begin(), end, &qp) == end) left.qps[left.count++] = &qp;
    });
    for (std::size_t i = 0; i < left.count; ++i) left.qps[i]->stop();
  } while (left.count > 0);
  engine_.stop();
}

bool Context::shares_file() const {
  bool shared = false;
  if (file_ == kNoDeviceFile) return false;
  Listed<Context>::for_each([&](const Context& other) {
    shared = shared || (&other != this && other.file() == file_ && other.device().name == device_.name);
  });
  return shared;
}

void Context::report_removal() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  event.element.port_num = 1;
  report(event);
}

std::shared_ptr<Context> Context::open(const std::string& device_name, const ibv_context* handle) {
  for (DeviceInfo& device : enumerate_devices()) {
    if (device.name != device_name) continue;
    auto async = EventPipe::create();
    if (!async) return nullptr;
    log_event(LogLevel::info, "device %s is opened: interface %s, %s view, version %s", device.name.c_str(),
              device.interface.c_str(), device.transport == Transport::roce ? "RoCE" : "iWARP", kVersion);
    const int read_end = async->read_fd();  // the program's, once it has a context
    try {
      std::shared_ptr<Context> opened(new Context(std::move(device), std::move(async), handle));
      publish_inventory();
      return opened;
    } catch (const std::exception&) {
      ::close(read_end);
      throw;
    }
  }
  errno = ENODEV;
  return nullptr;
}

bool Context::take(Limited kind) {
  constexpr int kMost[kLimitedKinds] = {kMaxPd, kMaxCq, kMaxSrq, kMaxAh};
  if (objects(kind).fetch_add(1, std::memory_order_relaxed) < kMost[static_cast<std::size_t>(kind)]) return true;
  give_back(kind);
  return false;
}

void Context::query_device(ibv_device_attr_ex& attributes) const {
  ibv_device_attr& a = attributes.orig_attr;
  std::snprintf(a.fw_ver, sizeof a.fw_ver, "%s", kVersion);
  a.node_guid = htobe64(device_.guid);
  a.sys_image_guid = htobe64(device_.guid);
  a.max_mr_size = kMaxMrSize;
  a.page_size_cap = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  a.vendor_id = kVendorId;
  a.vendor_part_id = kVendorPart;
  a.max_qp = kMaxQp;
  a.max_qp_wr = kMaxQpWr;
  a.device_cap_flags = kDeviceCapFlags;
  a.max_sge = kMaxSge;
  a.max_sge_rd = kMaxSge;
  a.max_srq = kMaxSrq;
  a.max_srq_wr = kMaxSrqWr;
  a.max_srq_sge = kMaxSge;
  a.max_cq = kMaxCq;
  a.max_cqe = kMaxCqe;
  a.max_mr = kMaxMr;
  a.max_mw = kMaxMw;
  a.max_pd = kMaxPd;
  a.max_qp_rd_atom = kMaxReadDepth;
  a.max_res_rd_atom = kMaxReadDepth * 1024;
  a.max_qp_init_rd_atom = kMaxReadDepth;
  // Atomic also against the processors of this host. But no adapter for RoCE says so, and programs test for equality.
  a.atomic_cap = device_.transport == Transport::roce ? IBV_ATOMIC_HCA : IBV_ATOMIC_GLOB;
  a.max_pkeys = 1;
  if (device_.transport == Transport::roce) {
    a.max_ah = kMaxAh;
    a.max_mcast_grp = kMaxGroups;
    a.max_mcast_qp_attach = kMaxAttached;
    a.max_total_mcast_qp_attach = kMaxGroups * kMaxAttached;
  }
  a.phys_port_cnt = 1;
  attributes.phys_port_cnt_ex = 1;
  attributes.hca_core_clock = kRawClockKhz;
  attributes.completion_timestamp_mask = kRawClockMask;
  attributes.cq_mod_caps.max_cq_count = kMaxModerationCount;
  attributes.cq_mod_caps.max_cq_period = kMaxModerationPeriod;
  attributes.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attributes.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                                       IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                                       IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  // What adapters say of UD, though the receives of these queue pairs may have such memory too.
  if (device_.transport == Transport::roce) attributes.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
  attributes.max_dm_size = kMaxDmSize;
}

int Context::query_port(unsigned port, ibv_port_attr& attributes) const {
  if (port != 1) return EINVAL;
  const bool down = port_down_.load();
  attributes.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = path_mtu_of(device_);
  attributes.gid_tbl_len = static_cast<int>(device_.gids.size());
  attributes.max_msg_sz = kMaxMessage;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  constexpr std::uint8_t kDisabled = 3, kLinkUp = 5;
  attributes.phys_state = down ? kDisabled : kLinkUp;
  if (device_.transport == Transport::roce) {
    attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
  }
  // The nearest lane width and rate.
  const unsigned speed = speed_mbps();
  struct Rate {
    unsigned mbps;
    std::uint8_t width, speed;
  };
  constexpr Rate kRates[] = {{2500, 1, 1},   {5000, 1, 2},    {10000, 1, 4},   {25000, 1, 32}, {40000, 2, 4},
                             {50000, 1, 64}, {100000, 2, 32}, {200000, 2, 64}, {400000, 4, 64}};
  attributes.active_width = kRates[0].width;
  attributes.active_speed = kRates[0].speed;
  for (const Rate& rate : kRates) {
    if (speed >= rate.mbps) attributes.active_width = rate.width, attributes.active_speed = rate.speed;
  }
  return 0;
}

bool Context::report(const ibv_async_event& event) {
  ib_uverbs_async_event_desc descriptor{};
  descriptor.event_type = event.event_type;
  // Each event names one object. All members of the union are pointers except for the port number.
  const bool port = event.event_type >= IBV_EVENT_DEVICE_FATAL && event.event_type <= IBV_EVENT_SM_CHANGE;
  descriptor.element =
      port ? static_cast<std::uint64_t>(event.element.port_num) : reinterpret_cast<std::uintptr_t>(event.element.qp);
  return async_->write(&descriptor, sizeof descriptor);
}

unsigned Context::withdraw_events(const void* element, unsigned reported) {
  return async_->take_back(
      reported, sizeof(ib_uverbs_async_event_desc),
      [](const void* event, void* wanted) {
        return static_cast<const ib_uverbs_async_event_desc*>(event)->element ==
               reinterpret_cast<std::uintptr_t>(wanted);
      },
      const_cast<void*>(element));
}

}  // namespace uiw::provider
