// SPDX-License-Identifier: MIT
// The event numbers of GET_EVENT. The kernel's header for programs does not have them, and librdmacm's header, which
// has them, cannot be included together with it.
#pragma once

#include <cstdint>

namespace uiw::kernel_abi {

enum class CmEventType : std::uint32_t {
  addr_resolved = 0,
  addr_error = 1,
  route_resolved = 2,
  connect_request = 4,
  connect_response = 5,  // on RoCE: librdmacm answers it and reports ESTABLISHED to the program
  connect_error = 6,
  unreachable = 7,
  rejected = 8,
  established = 9,
  disconnected = 10,
  device_removal = 11,
  multicast_join = 12,
  timewait_exit = 15,
  user = 18,  // written by the program itself, as is `internal`, since rdma-core 59
  internal = 19,
};

}  // namespace uiw::kernel_abi
