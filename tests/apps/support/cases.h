// SPDX-License-Identifier: MIT
// A program of named cases, of which a run carries out one:
//
//   PROGRAM HOST PORT CASE     says "as documented" where all is well; --list names the cases
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/apps/support/endpoint.h"

namespace apps {

using Cases = std::map<std::string, std::function<void()>>;

inline std::string g_host, g_port;  // where the cases listen and call

inline int run_case(int argc, char** argv, const Cases& cases) {
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, run] : cases) std::puts(name.c_str());
    return 0;
  }
  if (argc != 4 || !cases.contains(argv[3])) die("usage: %s HOST PORT CASE | --list", argv[0]);
  g_host = argv[1];
  g_port = argv[2];
  cases.at(argv[3])();
  std::puts("as documented");
  return 0;
}

}  // namespace apps
