// SPDX-License-Identifier: MIT
// Queue pair numbers: 24 bits, of which the upper 16 are a TCP port of this process (qp_port.h) and the lower 8 a slot.
// Each is used by one queue pair at a time and not again soon after.
#pragma once

#include <cstdint>
#include <functional>

namespace uiw::provider {

class Attachable;

// 0 if none is free.
std::uint32_t take_qp_number(Attachable& qp);
// The queue pair with this number, or null. Inside a ReadSection.
Attachable* find_attachable(std::uint32_t number);
// Nobody finds it from here on; those who have must be waited for.
void hide_qp(std::uint32_t number);
void free_qp_number(std::uint32_t number);
// Each that can be found now, one after the other.
void for_each_attachable(const std::function<void(Attachable&)>& function);

// Around a fork: no number is taken or given back meanwhile. In the child, queue pairs that are made get numbers of
// their own, and those of the parent are left to it.
void lock_qp_numbers();
void unlock_qp_numbers();
void forget_qp_numbers();

}  // namespace uiw::provider
