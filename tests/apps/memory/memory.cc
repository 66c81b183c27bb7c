// SPDX-License-Identifier: MIT
// Memory regions of every kind, memory windows, invalidation, fences, device memory, shared contexts and the allocators
// of parent domains, as programs use them through stock libibverbs: what works, one case for each error row, and memory
// that goes while it is registered.
//
//   uiw_memory HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process: a listener and a caller on HOST.
#include "tests/apps/memory/memory.h"

int main(int argc, char** argv) {
  apps::Cases cases;
  apps::memory::window_cases(cases);
  apps::memory::window_error_cases(cases);
  apps::memory::region_cases(cases);
  apps::memory::import_cases(cases);
  apps::memory::allocator_cases(cases);
  apps::memory::vanished_cases(cases);
  return apps::run_case(argc, argv, cases);
}
