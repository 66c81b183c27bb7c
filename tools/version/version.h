// SPDX-License-Identifier: MIT
// What `uiw --version` prints.
#pragma once

#include <string>

#include "provider/version.h"

namespace uiw::tools {

// The commit that uiw was built from, "0123456789ab" or "0123456789ab+changes"; empty if it is not known. Defined in
// commit.cc, which is compiled again with each commit and belongs to the `uiw` command alone.
const char* commit();

inline std::string version_text(const std::string& from) {
  return std::string("uiw ") + kVersion + (from.empty() ? "" : " (" + from + ")");
}

}  // namespace uiw::tools
