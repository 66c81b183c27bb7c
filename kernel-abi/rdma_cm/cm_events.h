// SPDX-License-Identifier: MIT
// The numbers of the events that GET_EVENT delivers. The kernel's header for programs leaves them out, and
// librdmacm's header, which has them, cannot be included beside it.
#pragma once

#include <cstdint>

namespace uiw::kernel_abi {

enum class CmEventType : std::uint32_t {
  addr_resolved = 0,
  addr_error = 1,
  route_resolved = 2,
  connect_request = 4,
  connect_response = 5,  // on RoCE: librdmacm answers it, and tells the program of ESTABLISHED
  connect_error = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  device_removal = 11,
  user = 18,  // these two are written by the program itself, since rdma-core 59
  internal = 19,
};

}  // namespace uiw::kernel_abi
