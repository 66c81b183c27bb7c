// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/ah.h"

#include <cstring>

#include "provider/plugin/objects.h"
#include "provider/verbs/datagram/address_handle.h"

namespace uiw::plugin {

namespace {

struct Ah : Handle {
  rnic::AddressHandle handle;  // first, since a pointer to the program's ibv_ah is cast to Ah*
  rnic::Share share;
};

rnic::Gid as_gid(const ibv_gid& gid) {
  rnic::Gid octets;
  std::memcpy(octets.data(), gid.raw, octets.size());
  return octets;
}

}  // namespace

// As on RoCE, an address handle always has a GRH (IBV_QPF_GRH_REQUIRED), whose source is an entry of the GID table.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  const rnic::DeviceInfo& device = context_of(pd->context)->rnic->device();
  if (!is_roce(pd->context)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (attributes->port_num != 1 || attributes->is_global == 0) {
    errno = EINVAL;
    return nullptr;
  }
  return without_exceptions([&]() -> ibv_ah* {
    rnic::Share share(context_of(pd->context)->rnic, rnic::Limited::ah);
    if (!share) return nullptr;
    rnic::DatagramRoute route;
    route.from = context_of(pd->context)->rnic->gid(attributes->grh.sgid_index);
    if (route.from == rnic::kNoGid) {
      errno = EINVAL;
      return nullptr;
    }
    std::memcpy(route.to.data(), attributes->grh.dgid.raw, route.to.size());
    route.scope = device.ifindex;
    const ibv_global_route& grh = attributes->grh;
    route.ip = {grh.traffic_class, grh.hop_limit, grh.flow_label};
    if (const int error = rnic::find_way(route); error != 0) {
      errno = error;
      return nullptr;
    }
    auto* ah = new Ah{{}, {{pd->context, pd, 0}, route}, std::move(share)};
    of(pd)->use();
    return &ah->handle.base;
  });
}

int destroy_ah(ibv_ah* ah) {
  if (!is_roce(ah->context)) return with_errno(EOPNOTSUPP);
  of(ah->pd)->leave();
  delete reinterpret_cast<Ah*>(ah);
  return 0;
}

// The LID is ignored: on RoCE the GID alone identifies a group.
int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t) {
  if (!is_roce(qp->context)) return with_errno(EOPNOTSUPP);
  return errno_of([&] { return of(qp)->rnic->attach_group(as_gid(*group)); });
}

int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t) {
  if (!is_roce(qp->context)) return with_errno(EOPNOTSUPP);
  return errno_of([&] { return of(qp)->rnic->detach_group(as_gid(*group)); });
}

}  // namespace uiw::plugin
