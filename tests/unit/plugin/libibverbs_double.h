// SPDX-License-Identifier: MIT
// Between plugin_abi_test and libibverbs_double: what the plugin asks of libibverbs comes to the test.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct LibibverbsHooks {
  void (*register_driver)(const void* driver);
  void* (*alloc_context)(void* device, int cmd_fd, size_t size, uintptr_t offset);
  void (*uninit_context)(void* context);
  void (*set_ops)(void* context, const void* table);
  void* (*qp_to_qp_ex)(void* qp);
};
