// SPDX-License-Identifier: MIT
#include "tools/bench/programs/installed.h"

#include <algorithm>
#include <string>

#include "tools/files.h"

namespace uiw::tools {
namespace {

bool installed(const std::string& program) {
  int error = 0;
  find_program(program, error);
  return error == 0;
}

}  // namespace

std::vector<Package> missing_packages(bool picture) {
  struct Needed {
    Package package;
    std::vector<std::string> programs;
  };
  std::vector<Needed> all{
      {kPerftest, {"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_lat", "ib_atomic_bw"}},
      {kIperf3, {"iperf3"}},
      {kSockperf, {"sockperf"}},
  };
  if (picture) all.push_back({kGnuplot, {"gnuplot"}});
  std::vector<Package> missing;
  for (const Needed& each : all) {
    if (!std::all_of(each.programs.begin(), each.programs.end(), installed)) missing.push_back(each.package);
  }
  return missing;
}

bool ucx_installed() { return installed("ucx_perftest"); }

bool libfabric_installed() { return installed("fi_pingpong"); }

}  // namespace uiw::tools
