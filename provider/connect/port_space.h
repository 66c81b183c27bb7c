// SPDX-License-Identifier: MIT
// rdma_cm's port spaces TCP and UDP. Their port numbers are distinct from the ports of the protocols TCP and UDP
// (rdma_port.h).
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class PortSpace : std::uint8_t { tcp, udp };

}  // namespace uiw::provider
