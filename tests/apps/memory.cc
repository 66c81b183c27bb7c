// SPDX-License-Identifier: MIT
// Memory regions of every kind, memory windows, invalidation, fences and device memory, as programs use them through
// stock libibverbs: what works, and one case for each error row.
//
//   uiw_memory HOST PORT CASE     runs one case; --list names them
//
// Both ends are in this process: a listener and a caller on HOST.
#include "memory.h"

int main(int argc, char** argv) {
  apps::memory::Cases cases;
  apps::memory::window_cases(cases);
  apps::memory::region_cases(cases);
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, run] : cases) std::puts(name.c_str());
    return 0;
  }
  if (argc != 4 || cases.count(argv[3]) == 0) apps::die("usage: %s HOST PORT CASE | --list", argv[0]);
  apps::memory::g_host = argv[1];
  apps::memory::g_port = argv[2];
  cases.at(argv[3])();
  std::puts("as documented");
  return 0;
}
