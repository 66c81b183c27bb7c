// SPDX-License-Identifier: MIT
// Which of the programs that `uiw bench` runs are installed.
#pragma once

#include <vector>

#include "tools/packages.h"

namespace uiw::tools {

// The packages of the missing programs that every run needs; for a picture, gnuplot is one of them.
std::vector<Package> missing_packages(bool picture);

bool ucx_installed();
bool libfabric_installed();

}  // namespace uiw::tools
