// SPDX-License-Identifier: MIT
// Two network namespaces that are joined by a veth pair with an MTU of 1500, in place of two hosts and a network.
//
// Each namespace is held by a child process and by nothing else, so both are gone with this process however it ends.
#pragma once

#include <optional>
#include <string>

#include "tools/bench/programs/programs.h"
#include "tools/child.h"

namespace uiw::tools {

class TwoHosts {
 public:
  // False with one line in `error`. Only root may do it, and it needs `ip`, `unshare` and `nsenter`.
  bool make(std::string& error);

  // `setup` for measurements between the two.
  BenchSetup between(BenchSetup setup) const;

 private:
  Child server_;
  Child client_;
};

}  // namespace uiw::tools
