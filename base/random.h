// SPDX-License-Identifier: MIT
// Random octets from the kernel, got without blocking. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uiw {

// Writes `size` random octets; `size` is at most 256. False if the kernel does not give them now, for example if a
// filter of system calls (seccomp) refuses getrandom(2) and /dev/urandom cannot be opened.
bool fill_random(void* to, std::size_t size);

// A number that others cannot guess. If fill_random() fails, the number is derived from the 16 random octets that the
// kernel gives to each process at its start (AT_RANDOM of getauxval(3)); reading these needs no system call.
std::uint64_t secret_number();

}  // namespace uiw
