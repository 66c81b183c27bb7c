// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/memory.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "provider/memory/memory.h"
#include "provider/plugin/exceptions.h"
#include "provider/plugin/objects.h"
#include "provider/verbs/device_file.h"

namespace uiw::plugin {

namespace {

// A DMA handle: how an adapter is to access memory over PCI Express. It has no effect here.
struct Dmah {
  uiw_dmah base;
  std::atomic<unsigned> users{0};  // regions that were registered with this handle
};
struct Mr : Handle {
  verbs_mr base;
  std::shared_ptr<rnic::Mr> rnic;
  Dmah* dmah = nullptr;

  ~Mr() {
    if (dmah != nullptr) dmah->users.fetch_sub(1);
  }
};
struct Mw : Handle {
  ibv_mw base;
  std::unique_ptr<rnic::Mw> rnic;
};
struct Dm {
  ibv_dm base;
  std::shared_ptr<rnic::Dm> rnic;
};

using plugin::of;
Mr* of(verbs_mr* mr) { return reinterpret_cast<Mr*>(mr); }
Dmah* of(uiw_dmah* dmah) { return reinterpret_cast<Dmah*>(dmah); }
Mw* of(ibv_mw* mw) { return reinterpret_cast<Mw*>(mw); }
Dm* of(ibv_dm* dm) { return reinterpret_cast<Dm*>(dm); }

// Fills in all members of the ibv_mr for every kind of region. For some kinds libibverbs sets them itself, too.
template <typename Create>
ibv_mr* make_mr(ibv_pd* pd, int type, void* address, std::size_t length, int access, Create create) {
  return without_exceptions([&]() -> ibv_mr* {
    auto mr = std::make_unique<Mr>();
    mr->rnic = create(of(pd)->rnic);
    if (!mr->rnic) return nullptr;
    ibv_mr& base = mr->base.mr;
    base.context = pd->context;
    base.pd = pd;
    base.addr = address;
    base.length = length;
    base.handle = mr->rnic->listed_number();
    base.lkey = base.rkey = mr->rnic->key();
    mr->base.mr_type = type;
    mr->base.access = access;
    return &mr.release()->base.mr;
  });
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  return make_mr(pd, UIW_MR_TYPE_MR, address, length, access, [&](rnic::Pd& home) {
    return rnic::Mr::create(home, address, length, iova, static_cast<unsigned>(access));
  });
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  void* const address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset));  // as libibverbs does
  return make_mr(pd, UIW_MR_TYPE_DMABUF_MR, address, length, access, [&](rnic::Pd& home) {
    return rnic::Mr::create_dmabuf(home, offset, length, iova, fd, static_cast<unsigned>(access));
  });
}

namespace {

// Registers memory that is given by an address or by a descriptor. The buffer of ibv_mr_init_attr, a member since
// release 64, needs no code here: libibverbs has turned it into an address or a descriptor.
ibv_mr* reg_by_place(ibv_pd* pd, const uiw_mr_init_attr& from) {
  const auto has = [&from](unsigned bits) { return (from.comp_mask & bits) == bits; };
  const bool invalid = has(UIW_REG_MR_FD) ? has(UIW_REG_MR_ADDR) || !has(UIW_REG_MR_FD_OFFSET | UIW_REG_MR_IOVA)
                                          : !has(UIW_REG_MR_ADDR) || has(UIW_REG_MR_FD_OFFSET);
  if (invalid) {
    errno = EINVAL;
    return nullptr;
  }
  if (has(UIW_REG_MR_FD)) return reg_dmabuf_mr(pd, from.fd_offset, from.length, from.iova, from.fd, from.access);
  const std::uint64_t iova = has(UIW_REG_MR_IOVA) ? from.iova : reinterpret_cast<std::uintptr_t>(from.addr);
  return reg_mr(pd, from.addr, from.length, iova, from.access);
}

}  // namespace

// As on mlx5 adapters, on-demand paging and a DMA handle exclude each other.
ibv_mr* reg_mr_ex(ibv_pd* pd, uiw_mr_init_attr* attributes) {
  constexpr std::uint64_t kKnown =
      UIW_REG_MR_IOVA | UIW_REG_MR_ADDR | UIW_REG_MR_FD | UIW_REG_MR_FD_OFFSET | UIW_REG_MR_DMAH;
  const bool by_handle = (attributes->comp_mask & UIW_REG_MR_DMAH) != 0;
  if ((attributes->comp_mask & ~kKnown) != 0 || (by_handle && (attributes->access & IBV_ACCESS_ON_DEMAND) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (by_handle && (attributes->dmah == nullptr || attributes->dmah->context != pd->context)) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_mr* const mr = reg_by_place(pd, *attributes);
  if (mr == nullptr || !by_handle) return mr;
  Mr* const self = of(reinterpret_cast<verbs_mr*>(mr));
  self->dmah = of(attributes->dmah);
  self->dmah->users.fetch_add(1);
  return mr;
}

// The checks are those of the kernel and of mlx5: the processing hints have two bits and are mandatory; a processor and
// a kind of memory are given both or not at all, and the calling thread must be allowed to run on that processor.
uiw_dmah* alloc_dmah(ibv_context* context, uiw_dmah_init_attr* attributes) {
  constexpr std::uint32_t kSteering = UIW_DMAH_CPU_ID | UIW_DMAH_TPH_MEM_TYPE;
  constexpr unsigned kMostHints = 3, kPersistentMemory = 1;
  const auto refuse = [](int error) {
    errno = error;
    return nullptr;
  };
  const std::uint32_t steering = attributes->comp_mask & kSteering;
  if ((attributes->comp_mask & ~(kSteering | UIW_DMAH_PH)) != 0) return refuse(EOPNOTSUPP);
  if ((attributes->comp_mask & UIW_DMAH_PH) == 0 || attributes->ph > kMostHints) return refuse(EINVAL);
  if (steering != 0) {
    if (steering != kSteering) return refuse(EINVAL);
    if (attributes->tph_mem_type > kPersistentMemory) return refuse(EOPNOTSUPP);
    cpu_set_t allowed[8];  // 8192 processors, the most that Linux supports
    CPU_ZERO_S(sizeof allowed, allowed);
    if (attributes->cpu_id >= static_cast<std::uint64_t>(::sysconf(_SC_NPROCESSORS_CONF))) return refuse(EINVAL);
    if (::sched_getaffinity(0, sizeof allowed, allowed) != 0 ||
        !CPU_ISSET_S(attributes->cpu_id, sizeof allowed, allowed)) {
      return refuse(EPERM);
    }
  }
  return without_exceptions([&]() -> uiw_dmah* { return &(new Dmah{{context}})->base; });
}

int dealloc_dmah(uiw_dmah* dmah) {
  if (of(dmah)->users.load() != 0) return with_errno(EBUSY);
  delete of(dmah);
  return 0;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  ibv_mr* mr = make_mr(pd, UIW_MR_TYPE_NULL_MR, nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE,
                       [](rnic::Pd& home) { return rnic::Mr::create_null(home); });
  if (mr != nullptr) mr->rkey = 0;  // the manual page says that only the lkey is valid
  return mr;
}

int rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  rnic::Pd* home = (flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd != nullptr ? &of(pd)->rnic : nullptr;
  const int error = of(mr)->rnic->reregister(flags, home, address, length, static_cast<unsigned>(access));
  if (error != 0) return with_errno(error);
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) mr->access = access;
  return 0;
}

// Destroys the region for all contexts. A context that has imported the region keeps its ibv_mr, which has no memory
// any more.
int dereg_mr(verbs_mr* mr) {
  if (const int error = of(mr)->rnic->end(); error != 0) return with_errno(error);
  delete of(mr);
  return 0;
}

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  auto found = rnic::find_mr(context_of(pd->context)->rnic->file(), handle);
  if (!found) {
    errno = ENOENT;
    return nullptr;
  }
  const std::size_t length = found->region().length;
  // The manual page of ibv_import_mr says that the address of an imported region is not known.
  return make_mr(pd, UIW_MR_TYPE_IMPORTED_MR, nullptr, length, 0, [&](rnic::Pd&) { return std::move(found); });
}

void unimport_mr(ibv_mr* mr) { delete of(reinterpret_cast<verbs_mr*>(mr)); }

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count) {
  return with_errno(rnic::advise_mr(of(pd)->rnic, advice, flags, list, count));
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return without_exceptions([&]() -> ibv_mw* {
    auto mw = std::make_unique<Mw>();
    mw->rnic = rnic::Mw::create(of(pd)->rnic, type);
    if (!mw->rnic) return nullptr;
    mw->base.context = pd->context;
    mw->base.pd = pd;
    mw->base.rkey = mw->rnic->key();
    mw->base.type = type;
    return &mw.release()->base;
  });
}

int dealloc_mw(ibv_mw* mw) {
  delete of(mw);
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) { return with_errno(of(qp)->rnic->post_bind(*mw, *bind)); }

namespace {

template <typename Create>
ibv_dm* make_dm(ibv_context* context, Create create) {
  return without_exceptions([&]() -> ibv_dm* {
    auto dm = std::make_unique<Dm>();
    dm->rnic = create(context_of(context)->rnic->file());
    if (!dm->rnic) return nullptr;
    dm->base.context = context;
    dm->base.handle = dm->rnic->listed_number();
    dm->base.memcpy_to_dm = [](ibv_dm* to, std::uint64_t offset, const void* from, std::size_t length) {
      return with_errno(of(to)->rnic->copy_in(offset, from, length));
    };
    dm->base.memcpy_from_dm = [](void* to, ibv_dm* from, std::uint64_t offset, std::size_t length) {
      return with_errno(of(from)->rnic->copy_out(to, offset, length));
    };
    return &dm.release()->base;
  });
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  if (attributes->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  return make_dm(context, [&](rnic::DeviceFile file) {
    return rnic::Dm::create(attributes->length, attributes->log_align_req, file);
  });
}

ibv_dm* import_dm(ibv_context* context, std::uint32_t handle) {
  return make_dm(context, [&](rnic::DeviceFile file) {
    auto found = rnic::find_dm(file, handle);
    if (!found) errno = ENOENT;
    return found;
  });
}

void unimport_dm(ibv_dm* dm) { delete of(dm); }

int free_dm(ibv_dm* dm) {
  if (of(dm)->rnic->in_use()) return with_errno(EBUSY);
  delete of(dm);
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) {
  return make_mr(pd, UIW_MR_TYPE_MR, nullptr, length, static_cast<int>(access),
                 [&](rnic::Pd& home) { return rnic::Mr::create_dm(home, *of(dm)->rnic, offset, length, access); });
}

}  // namespace uiw::plugin
