// SPDX-License-Identifier: MIT
// Queue pair numbers: 24 bits, not below 1024 << 8, each used by one queue pair of the process at a time and not again
// soon after.
#pragma once

#include <cstdint>
#include <functional>

namespace uiw::provider {

class Qp;

// 0 if none is free.
std::uint32_t take_qp_number(Qp& qp);
// Nobody finds it from here on; those who have must be waited for.
void hide_qp(std::uint32_t number);
void free_qp_number(std::uint32_t number);
// Each that can be found now, one after the other.
void for_each_qp(const std::function<void(Qp&)>& function);

}  // namespace uiw::provider
