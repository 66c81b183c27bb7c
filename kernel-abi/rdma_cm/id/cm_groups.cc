// SPDX-License-Identifier: MIT
#include "kernel-abi/rdma_cm/id/cm_groups.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/mutex.h"
#include "kernel-abi/rdma_cm/cm_address.h"
#include "kernel-abi/rdma_cm/cm_roce.h"
#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/registry_lock.h"
#include "provider/process/device.h"

namespace uiw::kernel_abi {
namespace {

constexpr std::uint32_t kMulticastQp = 0xFFFFFF;

std::atomic<std::uint32_t> g_next_number{0};

// The parameters of a MULTICAST_JOIN event: what a program needs in order to send to the group.
rdma_ucm_ud_param parameters_of(const CmRoute& route, const sockaddr_storage& group,
                                const provider::DeviceInfo& device) {
  const sockaddr_storage source = unmapped(route.source());
  const auto traffic_class = static_cast<std::uint8_t>(std::max(route.type_of_service(), 0));
  rdma_ucm_ud_param event = {};
  event.qp_num = kMulticastQp;
  event.qkey = kDatagramQkey;
  fill_address(make_path(device, generic(source), generic(group), traffic_class, 0), event.ah_attr);
  return event;
}

}  // namespace

int CmGroups::join(const sockaddr_storage& address, std::uint64_t uid, std::uint32_t& number) {
  const CmRoute& route = id_.route();
  const sockaddr_storage group = unmapped(address), source = unmapped(route.source());
  const provider::DeviceInfo device =
      route.has_device() ? provider::device_of(generic(source)) : provider::DeviceInfo{};
  const auto joined = std::make_shared<CmGroup>(CmGroup{g_next_number++, uid});
  const LockGuard lock(g_registry_lock);
  if (!route.has_device()) return EINVAL;
  if (id_.state() != CmState::addr_bound && id_.state() != CmState::addr_resolved) return EINVAL;
  if (route.qp_type() != IBV_QPT_UD) return EINVAL;
  if (!route.is_roce()) return ENOSYS;  // iWARP has no multicast
  if (device.name.empty()) return ENODEV;
  if (!provider::is_multicast(provider::gid_of(generic(group)))) return EINVAL;
  id_.events().reserve(1);
  groups_.push_back(joined);
  number = joined->number;
  id_.events().post_group(id_.shared_from_this(), joined, parameters_of(route, group, device));
  return 0;
}

int CmGroups::leave(std::uint32_t number, std::uint32_t& events_reported) {
  CmEvents dropped;  // destroyed without the lock, since an event may have the last reference to an id
  const LockGuard lock(g_registry_lock);
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& one) { return one->number == number; });
  if (found == groups_.end()) return ENOENT;
  const std::shared_ptr<CmGroup> group = *found;
  groups_.erase(found);
  dropped = id_.events().channel()->take_matching([&](const CmEvent& event) { return event.group == group; });
  events_reported = group->events_reported;
  return 0;
}

bool CmGroups::has(std::uint32_t number) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const auto& one) { return one->number == number; });
}

}  // namespace uiw::kernel_abi
