// SPDX-License-Identifier: MIT
// Operations on memory regions of all kinds, memory windows and device memory.
#pragma once

#include "provider/plugin/abi/rdmav_abi.h"

namespace uiw::plugin {

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access);
ibv_mr* reg_mr_ex(ibv_pd* pd, uiw_mr_init_attr* attributes);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
int dereg_mr(verbs_mr* mr);
ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle);
void unimport_mr(ibv_mr* mr);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count);

uiw_dmah* alloc_dmah(ibv_context* context, uiw_dmah_init_attr* attributes);
int dealloc_dmah(uiw_dmah* dmah);

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* dm);
ibv_dm* import_dm(ibv_context* context, std::uint32_t handle);
void unimport_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access);

}  // namespace uiw::plugin
