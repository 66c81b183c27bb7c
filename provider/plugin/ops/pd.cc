// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/pd.h"

#include "provider/plugin/objects.h"
#include "provider/verbs/device_file.h"

namespace uiw::plugin {

ibv_pd* alloc_pd(ibv_context* context) {
  return without_exceptions([&]() -> ibv_pd* {
    rnic::Share share(context_of(context)->rnic, rnic::Limited::pd);
    if (!share) return nullptr;
    auto own = rnic::Pd::create(context_of(context)->rnic);
    rnic::Pd& domain = *own;
    return &(new Pd{{}, {context, domain.listed_number()}, domain, std::move(own), std::move(share)})->base;
  });
}

// Deletes an ibv_pd. Returns EBUSY if objects still use the ibv_pd, or if objects of any context still use its
// rnic::Pd, which is not checked for a parent domain. The rnic::Pd ends with the last ibv_pd of the contexts that have
// allocated or imported it.
int dealloc_pd(ibv_pd* pd) {
  Pd* self = of(pd);
  if (self->users.load() != (self->imported ? 1 : 0)) return with_errno(EBUSY);
  if (self->own) {
    if (self->own->in_use()) return with_errno(EBUSY);
  } else {
    self->rnic.remove_user();
    if (self->td != nullptr) self->td->users.fetch_sub(1);
  }
  delete self;
  return 0;
}

ibv_pd* import_pd(ibv_context* context, std::uint32_t handle) {
  return without_exceptions([&]() -> ibv_pd* {
    auto found = rnic::find_pd(context_of(context)->rnic->file(), handle);
    if (!found) {
      errno = ENOENT;
      return nullptr;
    }
    rnic::Pd& domain = *found;
    auto* imported = new Pd{{}, {context, handle}, domain, std::move(found)};
    imported->imported = true;
    imported->use();
    return &imported->base;
  });
}

void unimport_pd(ibv_pd* pd) { of(pd)->leave(); }

// With a thread domain the program promises to use the objects in the parent domains of this thread domain from one
// thread at a time. Completion queues in them are then polled without a lock; queue pairs keep their locks, since the
// thread "uiw-progress" uses them, too.
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  if (attributes == nullptr || attributes->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  return without_exceptions([&]() -> ibv_td* { return &(new Td{{context}})->base; });
}

int dealloc_td(ibv_td* td) {
  if (of(td)->users.load() != 0) return with_errno(EBUSY);
  delete of(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  // IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC of release 65 is a hint for devices whose DMA does not reach
  // the memory of a confidential guest. Devices of uiw reach all of this memory.
  constexpr std::uint32_t kAllowUnprotected = 1 << 2;
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kAllowUnprotected;
  if (attributes->pd == nullptr || (attributes->comp_mask & ~kKnown) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  if ((attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0 &&
      (attributes->alloc == nullptr || attributes->free == nullptr)) {
    errno = EINVAL;
    return nullptr;
  }
  return without_exceptions([&]() -> ibv_pd* {
    auto* parent = new Pd{{}, {context, 0}, of(attributes->pd)->rnic, nullptr};
    parent->rnic.add_user();
    parent->functions = *attributes;
    if ((attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) == 0) parent->functions.pd_context = nullptr;
    if (attributes->td != nullptr) {
      parent->td = of(attributes->td);
      parent->td->users.fetch_add(1);
    }
    return &parent->base;
  });
}

}  // namespace uiw::plugin
