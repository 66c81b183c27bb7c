// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/refused.h"

#include <cerrno>

#include "provider/plugin/exceptions.h"

namespace uiw::plugin {

// The manual page says of ENXIO: "Device managed flow steering isn't currently supported".
ibv_flow* create_flow(ibv_qp*, ibv_flow_attr*) {
  errno = ENXIO;
  return nullptr;
}

// EINVAL, since there can be no valid flow.
int destroy_flow(ibv_flow*) { return with_errno(EINVAL); }

}  // namespace uiw::plugin
