// SPDX-License-Identifier: MIT
// Random octets from the kernel, got without blocking. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw {

// Up to 256 octets. False where the kernel gives none now: a filter of system calls (seccomp) refuses getrandom(2), and
// there is no /dev/urandom.
bool fill_random(void* to, std::size_t size);

// A number that others cannot guess. Where fill_random() fails, it is derived from AT_RANDOM, which the kernel gives to
// each process at its start, also where all system calls are filtered.
std::uint64_t secret_number();

}  // namespace uiw
