// SPDX-License-Identifier: MIT
// Answers queries about an id (ucma.c: the queries; iwcm.c, on RoCE cm.c: the attributes of a queue pair).
//
// Called with the id's command lock held; init_qp_attr() takes the registry's lock for a moment.
#pragma once

#include <netinet/in.h>  // before the kernel's header, which then omits its own copy of the same types
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>

#include "kernel-abi/rdma_cm/id/cm_id.h"
#include "kernel-abi/rdma_cm/id/cm_route.h"

namespace uiw::kernel_abi {

rdma_ucm_query_route_resp query_route(const CmRoute& route);
rdma_ucm_query_addr_resp query_addr(const CmRoute& route);
rdma_ucm_query_addr_resp query_gid(const CmRoute& route);

// Sets `attributes` to the attributes for the queue pair's step to `qp_state`, and their mask. 0, or EINVAL if that
// step is not possible now.
int init_qp_attr(const CmId& id, std::uint32_t qp_state, ib_uverbs_qp_attr& attributes);

}  // namespace uiw::kernel_abi
