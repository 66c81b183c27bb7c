// SPDX-License-Identifier: MIT
// Cases that two programs carry out, one at either end of a manual connection:
//
//   PROGRAM listen|call HOST PORT CASE     says "as documented" where all is well; --list names the cases
#pragma once

#include <functional>
#include <map>

#include "tests/apps/support/manual_end.h"

namespace apps::manual {

using Role = std::function<void(const std::string& host, Line& line)>;
struct Case {
  Role call, listen;  // who does which on the line between them
};
using Cases = std::map<std::string, Case>;

inline int run_case(int argc, char** argv, const Cases& cases) {
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, roles] : cases) std::puts(name.c_str());
    return 0;
  }
  const std::string role = argc == 5 ? argv[1] : "";
  if ((role != "listen" && role != "call") || !cases.contains(argv[4]))
    die("usage: %s listen|call HOST PORT CASE | --list", argv[0]);
  Line line = role == "listen" ? Line::listen(argv[2], argv[3]) : Line::call(argv[2], argv[3]);
  const Case& what = cases.at(argv[4]);
  (role == "listen" ? what.listen : what.call)(argv[2], line);
  std::puts("as documented");
  return 0;
}

}  // namespace apps::manual
