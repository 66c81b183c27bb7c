// SPDX-License-Identifier: MIT
// Adds the objects of verbs to the inventory of this process (provider/inventory/inventory.h).
#pragma once

#include <cstdint>
#include <string>

#include "base/stream/tcp_stream.h"
#include "provider/export.h"
#include "provider/inventory/inventory.h"
#include "provider/verbs/qp_identity.h"

namespace uiw::provider {

// The part of QueuePair::show() that all queue pairs have in common. Called with the sender's lock held.
void show_identity(const QpIdentity& qp, ibv_qp_state state, const ibv_qp_attr& attributes, ShownQp& shown);
void add_traffic(const StreamTraffic& traffic, PortCounts& counts);

// Why a process of this host has refused a peer's request for memory, as that process says; empty if none does. Both
// have to be checked (provider/check/). Waits for kAnswerTime at most. Throws std::bad_alloc.
UIW_API std::string reason_of_refusal(std::uint32_t key, std::uint64_t offset);

}  // namespace uiw::provider
