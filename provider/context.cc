// SPDX-License-Identifier: MIT
#include "provider/context.h"

#include <rdma/ib_user_verbs.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "provider/fork.h"
#include "provider/grace_period.h"
#include "provider/limits.h"
#include "provider/link_watch.h"

namespace uiw::provider {

ddp::StagTable& stag_table() {
  static ddp::StagTable* const instance = [] {
    std::uint64_t secret = 0;
    while (::getrandom(&secret, sizeof secret, 0) != sizeof secret) {
    }
    return new ddp::StagTable(secret);  // outlives every destructor of the program
  }();
  return *instance;
}

// ---- Memory regions --------------------------------------------------------------------------------------------

namespace {

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

// Can every page of the range be read, and written where that is asked for? Reads one octet of each page through the
// kernel, which answers instead of raising a signal; where writing is wanted the same octet is written back, a page at
// a time, only if the page is not known to be writable otherwise.
bool accessible(const std::byte* address, std::size_t length, bool writable) {
  if (length == 0) return true;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (start + length < start) return false;
  const std::uintptr_t last = (start + length - 1) & ~(page - 1);

  // /proc/self/maps tells mapped ranges and their protection without touching a page.
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return true;  // no way to know; placement is guarded anyway
  std::uintptr_t covered = start & ~(page - 1);
  char line[512];
  while (covered <= last && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long from, to;
    char protection[8];
    if (std::sscanf(line, "%lx-%lx %7s", &from, &to, protection) != 3) continue;
    if (to <= covered) continue;
    if (from > covered) break;
    if (protection[0] != 'r' || (writable && protection[1] != 'w')) break;
    covered = to;
  }
  std::fclose(maps);
  return covered > last;
}

}  // namespace

std::unique_ptr<Mr> Mr::create(Pd& pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  // Remote write and atomic need local write (manual page of ibv_reg_mr).
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if ((access & ~kKnownAccess) != 0 || (remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
      length > kMaxMrSize || reinterpret_cast<std::uintptr_t>(address) + length < length) {
    errno = EINVAL;
    return nullptr;
  }
  if ((access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND)) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (!accessible(static_cast<std::byte*>(address), length, (access & IBV_ACCESS_LOCAL_WRITE) != 0)) {
    errno = EFAULT;
    return nullptr;
  }
  ddp::Region region;
  region.memory = static_cast<std::byte*>(address);
  region.length = length;
  region.base = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  region.domain = &pd;
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) region.rights |= ddp::kLocalWrite;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) region.rights |= ddp::kRemoteRead;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) region.rights |= ddp::kRemoteWrite;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) region.rights |= ddp::kRemoteAtomic;
  const auto stag = stag_table().add(region);
  if (!stag) {
    errno = region.base + region.length < region.base ? EINVAL : ENOMEM;
    return nullptr;
  }
  pd.add_user();
  return std::unique_ptr<Mr>(new Mr(pd, *stag));
}

Mr::~Mr() {
  stag_table().retire(stag_);
  wait_for_readers();
  stag_table().recycle(stag_);
  pd_.remove_user();
}

// ---- The device ------------------------------------------------------------------------------------------------

Context::Context(DeviceInfo device, std::shared_ptr<EventPipe> async)
    : device_(std::move(device)), async_(std::move(async)) {
  static const bool observing = [] {
    observe_removed_interfaces([](unsigned ifindex) {
      for_each_context([ifindex](Context& context) {
        if (context.device().ifindex == ifindex) context.report_removal();
      });
    });
    return true;
  }();
  static_cast<void>(observing);
  register_context(this);
}

Context::~Context() { unregister_context(this); }

void Context::report_removal() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  event.element.port_num = 1;
  report(event);
}

std::unique_ptr<Context> Context::open(const std::string& device_name) {
  for (DeviceInfo& device : enumerate_devices()) {
    if (device.name != device_name) continue;
    auto async = EventPipe::create();
    if (!async) return nullptr;
    return std::unique_ptr<Context>(new Context(std::move(device), std::move(async)));
  }
  errno = ENODEV;
  return nullptr;
}

void Context::query_device(ibv_device_attr_ex& attributes) const {
  ibv_device_attr& a = attributes.orig_attr;
  std::snprintf(a.fw_ver, sizeof a.fw_ver, "%s", "0.1.0");
  a.node_guid = htobe64(device_.guid);
  a.sys_image_guid = htobe64(device_.guid);
  a.max_mr_size = kMaxMrSize;
  a.page_size_cap = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  a.vendor_id = kVendorId;
  a.vendor_part_id = kVendorPart;
  a.max_qp = kMaxQp;
  a.max_qp_wr = kMaxQpWr;
  a.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                       IBV_DEVICE_SRQ_RESIZE;
  a.max_sge = kMaxSge;
  a.max_sge_rd = kMaxSge;
  a.max_srq = kMaxSrq;
  a.max_srq_wr = kMaxSrqWr;
  a.max_srq_sge = kMaxSge;
  a.max_cq = kMaxCq;
  a.max_cqe = kMaxCqe;
  a.max_mr = kMaxMr;
  a.max_pd = kMaxPd;
  a.max_qp_rd_atom = kMaxReadDepth;
  a.max_res_rd_atom = kMaxReadDepth * 1024;
  a.max_qp_init_rd_atom = kMaxReadDepth;
  a.atomic_cap = IBV_ATOMIC_GLOB;
  a.max_pkeys = 1;
  a.phys_port_cnt = 1;
  attributes.phys_port_cnt_ex = 1;
}

int Context::query_port(unsigned port, ibv_port_attr& attributes) const {
  if (port != 1) return EINVAL;
  attributes.state = IBV_PORT_ACTIVE;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = device_.mtu >= 4096   ? IBV_MTU_4096
                          : device_.mtu >= 2048 ? IBV_MTU_2048
                          : device_.mtu >= 1024 ? IBV_MTU_1024
                          : device_.mtu >= 512  ? IBV_MTU_512
                                                : IBV_MTU_256;
  attributes.gid_tbl_len = static_cast<int>(device_.gids.size());
  attributes.max_msg_sz = kMaxMessage;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  attributes.phys_state = 5;  // LinkUp
  // The nearest lane width and rate; loopback and virtual links say nothing of theirs and count as 10 Gb/s.
  const unsigned speed = device_.speed_mbps == 0 ? 10000 : device_.speed_mbps;
  struct Rate {
    unsigned mbps;
    std::uint8_t width, speed;
  };
  constexpr Rate kRates[] = {{2500, 1, 1},   {5000, 1, 2},    {10000, 1, 4},    {25000, 1, 32},
                             {40000, 2, 4},  {50000, 1, 64},  {100000, 2, 32},  {200000, 2, 64},
                             {400000, 4, 64}};
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
  // Each event names one object; all members of the union are as wide as a pointer but the port number.
  const bool port = event.event_type >= IBV_EVENT_DEVICE_FATAL && event.event_type <= IBV_EVENT_SM_CHANGE;
  descriptor.element = port ? static_cast<std::uint64_t>(event.element.port_num)
                            : reinterpret_cast<std::uintptr_t>(event.element.qp);
  return async_->write(&descriptor, sizeof descriptor);
}

unsigned Context::purge_events(const void* element) {
  return async_->purge(
      sizeof(ib_uverbs_async_event_desc),
      [](const void* event, void* wanted) {
        return static_cast<const ib_uverbs_async_event_desc*>(event)->element ==
               reinterpret_cast<std::uintptr_t>(wanted);
      },
      const_cast<void*>(element));
}

}  // namespace uiw::provider
