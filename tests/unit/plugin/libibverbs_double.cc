// SPDX-License-Identifier: MIT
// Stands in for libibverbs of a release: has the symbols that the plugin takes from it, and hands the calls on.
#include "tests/unit/plugin/libibverbs_double.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

extern "C" {

LibibverbsHooks libibverbs_hooks;

void JOIN(verbs_register_driver_, PABI)(const void* driver) { libibverbs_hooks.register_driver(driver); }
void* _verbs_init_and_alloc_context(void* device, int cmd_fd, size_t size, void* offset, uint32_t) {
  return libibverbs_hooks.alloc_context(device, cmd_fd, size, reinterpret_cast<uintptr_t>(offset));
}
void verbs_uninit_context(void* context) { libibverbs_hooks.uninit_context(context); }
void verbs_set_ops(void* context, const void* table) { libibverbs_hooks.set_ops(context, table); }
void* ibv_qp_to_qp_ex(void* qp) { return libibverbs_hooks.qp_to_qp_ex(qp); }

#ifdef PUBLIC_FUNCTION
int PUBLIC_FUNCTION() { return 0; }
#endif
}
