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
#include <iterator>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "base/processors.h"
#include "provider/connect/numbered.h"
#include "provider/connect/qp_table.h"
#include "provider/inventory/processes.h"
#include "provider/process/limits.h"
#include "provider/process/log.h"
#include "provider/process/settings.h"
#include "provider/progress/clock.h"
#include "provider/verbs/device_file.h"
#include "provider/verbs/fork.h"
#include "provider/verbs/queue_pair.h"
#include "provider/version.h"

namespace uiw::provider {

namespace {

std::vector<Gid> addresses_in(const std::vector<Gid>& table) {
  std::vector<Gid> addresses;
  std::copy_if(table.begin(), table.end(), std::back_inserter(addresses), [](const Gid& gid) { return gid != kNoGid; });
  return addresses;
}

}  // namespace

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
          port_counters(device_.name), progress_threads(settings().values.progress_threads, usable_processors())),
      now_(device_),
      gids_(&tables_.emplace_back(device_.gids)),
      told_active_(device_.active),
      told_gids_(addresses_in(device_.gids)) {
  observe_interfaces([](const InterfaceNews& news) {
    for_each_context([&news](Context& context) {
      if (news.kind == InterfaceNews::Kind::missed || context.device().ifindex == news.ifindex) context.heard(news);
    });
  });
  register_context(this);
}

Context::~Context() { close(); }

void Context::close() {
  listed_.leave();
  unregister_context(this);
  // Stops at most 64 queue pairs at a time, since there may be no memory for a list of all of them. Queue pairs that
  // have been stopped are not found again. One that another context has open goes on, by the engine of this one.
  struct {
    const Context* context;
    std::array<QueuePair*, 64> qps;
    std::size_t count;
    bool goes_on;
  } left{this, {}, 0, false};
  do {
    left.count = 0;
    for_each_queue_pair([&left](std::uint32_t, QueuePair& qp) {
      if (left.count == left.qps.size()) return;
      if (!qp.leave_context(*left.context)) {
        left.goes_on = left.goes_on || &qp.context() == left.context;
        return;
      }
      const auto end = left.qps.begin() + static_cast<std::ptrdiff_t>(left.count);
      if (std::find(left.qps.begin(), end, &qp) == end) left.qps[left.count++] = &qp;
    });
    for (std::size_t i = 0; i < left.count; ++i) left.qps[i]->stop();
  } while (left.count > 0);
  if (!left.goes_on) engine_.stop();
}

bool Context::shares_file() const {
  bool shared = false;
  if (file_ == kNoDeviceFile) return false;
  Listed<Context>::for_each([&](const Context& other) {
    shared = shared || (&other != this && other.file() == file_ && other.device().name == device_.name);
  });
  return shared;
}

std::optional<DeviceInfo> Context::look() {
  const LockGuard lock(look_mutex_);
  if (!look_again(now_)) return std::nullopt;
  if (now_.gids != gids()) gids_.store(&tables_.emplace_back(now_.gids), std::memory_order_release);
  return now_;
}

Gid Context::gid(unsigned index) {
  const auto entry = [&] { return index < gids().size() ? gids()[index] : kNoGid; };
  if (entry() == kNoGid) look();
  return entry();
}

void Context::report_port(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  report(event);
}

// In the child of a fork the pipe of async events still belongs to the parent, which reports these events as long as it
// lives. A child does not take over the pipe only to report them.
void Context::heard(const InterfaceNews& news) {
  using Kind = InterfaceNews::Kind;
  if (!async_->is_own()) return;
  if (news.kind == Kind::removed) return report_port(IBV_EVENT_DEVICE_FATAL);
  if (news.kind == Kind::link) return heard_link(news.active);
  // The GID table is updated before the event is reported, since the program reads the table after the event.
  const std::optional<DeviceInfo> now = look();
  if (news.kind == Kind::missed) {
    if (!now) return;
    heard_link(now->active);
    return heard_addresses(addresses_in(now->gids));
  }
  std::vector<Gid> present = told_gids_;
  std::erase(present, news.gid);
  if (news.kind == Kind::address_added) present.push_back(news.gid);
  heard_addresses(std::move(present));
}

// Reports that the link came up or went down, as the kernel's drivers do: siw_netdev_event(), rxe_notify().
void Context::heard_link(bool active) {
  if (std::exchange(told_active_, active) != active) report_port(active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

// A RoCE device reports one event for each GID that has come or gone, as the kernel does (core/cache.c). For iWARP
// adapters the kernel manages no such table.
void Context::heard_addresses(std::vector<Gid> present) {
  const auto missing_in = [](const std::vector<Gid>& some, const std::vector<Gid>& others) {
    return std::count_if(some.begin(), some.end(),
                         [&](const Gid& gid) { return std::find(others.begin(), others.end(), gid) == others.end(); });
  };
  auto changes = missing_in(present, told_gids_) + missing_in(told_gids_, present);
  told_gids_ = std::move(present);
  if (device_.transport != Transport::roce) return;
  for (; changes > 0; --changes) report_port(IBV_EVENT_GID_CHANGE);
}

std::shared_ptr<Context> Context::open(const std::string& device_name, const ibv_context* handle) {
  for (DeviceInfo& device : enumerate_devices()) {
    if (device.name != device_name) continue;
    auto async = EventPipe::create();
    if (!async) return nullptr;
    log_event(LogLevel::info, "device %s is opened: interface %s, %s view, version %s", device.name.c_str(),
              device.interface.c_str(), device.transport == Transport::roce ? "RoCE" : "iWARP", kVersion);
    const int read_end = async->read_fd();  // closed here if no Context can be created
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
  // Atomic operations here are also atomic with respect to the processors of this host (IBV_ATOMIC_GLOB). But RoCE
  // adapters do not report that, and programs for RoCE expect IBV_ATOMIC_HCA.
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
  if (device_.transport == Transport::roce) a.device_cap_flags |= IBV_DEVICE_XRC;
  attributes.device_cap_flags_ex = a.device_cap_flags | kDeviceCapFlagsEx;
  attributes.hca_core_clock = kRawClockKhz;
  attributes.completion_timestamp_mask = kRawClockMask;
  attributes.cq_mod_caps.max_cq_count = kMaxModerationCount;
  attributes.cq_mod_caps.max_cq_period = kMaxModerationPeriod;
  attributes.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attributes.odp_caps.per_transport_caps.rc_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
      IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV | kOdpSupportFlush | kOdpSupportAtomicWrite;
  // For UD, adapters report on-demand paging only for Sends. Here receives of UD queue pairs may use such memory, too.
  if (device_.transport == Transport::roce) {
    attributes.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
    attributes.xrc_odp_caps = attributes.odp_caps.per_transport_caps.rc_odp_caps;
  }
  attributes.max_dm_size = kMaxDmSize;
}

int Context::query_port(unsigned port, ibv_port_attr& attributes) {
  if (port != 1) return EINVAL;
  const std::optional<DeviceInfo> now = look();
  const bool down = port_down_.load() || !now || !now->active;
  attributes.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = path_mtu_of(device_);
  attributes.gid_tbl_len = static_cast<int>(gids().size());
  attributes.max_msg_sz = kMaxMessage;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  constexpr std::uint8_t kPolling = 2, kDisabled = 3, kLinkUp = 5;
  const bool link_is_away = now && now->enabled && !now->active;
  attributes.phys_state = !down ? kLinkUp : link_is_away ? kPolling : kDisabled;
  if (device_.transport == Transport::roce) {
    attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
  }
  // The fastest combination of lane width and rate that does not exceed the speed; 2500 Mb/s if all of them exceed it.
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
  // Each event names one object, in the union `event.element`. Its members are pointers, except for the port number.
  const bool port = (event.event_type >= IBV_EVENT_DEVICE_FATAL && event.event_type <= IBV_EVENT_SM_CHANGE) ||
                    event.event_type == IBV_EVENT_CLIENT_REREGISTER || event.event_type == IBV_EVENT_GID_CHANGE;
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
