// SPDX-License-Identifier: MIT
// Operations on protection domains, thread domains and parent domains.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uiw::plugin {

ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_pd* import_pd(ibv_context* context, std::uint32_t handle);
void unimport_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);

}  // namespace uiw::plugin
