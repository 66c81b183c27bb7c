// SPDX-License-Identifier: MIT
// The numbers of rdma_cm's port spaces TCP and UDP, each a space of its own beside the ports of that protocol.
#pragma once

#include <cstdint>

namespace uiw::provider {

enum class PortSpace : std::uint8_t { tcp, udp };

}  // namespace uiw::provider
