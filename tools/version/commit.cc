// SPDX-License-Identifier: MIT
#include "tools/version/commit.h"

#include "tools/version/version.h"

namespace uiw::tools {

const char* commit() { return kCommit; }

}  // namespace uiw::tools
