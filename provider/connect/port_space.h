// SPDX-License-Identifier: MIT
// rdma_cm's port spaces TCP and UDP. The numbers of each are separate from the ports of the protocol (rdma_port.h).
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class PortSpace : std::uint8_t { tcp, udp };

}  // namespace uiw::provider
