// SPDX-License-Identifier: MIT
// Copies to and from the program's registered memory, in the order a remote reader may rely on, and without
// taking the program down when that memory has been unmapped behind our back. The same guard for other accesses.
//
// Octets become visible in ascending order, the last one last, and naturally aligned 8-octet words whole:
// programs spin on the last octet of an RDMA Write, or on a flag word (a library memcpy may store the tail first).
#pragma once

#include <cstddef>

// What an adapter does by DMA is concurrent with the program by design, and no matter of ThreadSanitizer.
#define UIW_AS_BY_DMA __attribute__((no_sanitize("thread")))

namespace uiw::mpa {

// False if either range could not be accessed (SIGSEGV or SIGBUS); part of the data may then have been copied.
// Without install_copy_guard() a bad range raises the signal as any copy does. Thread-safe.
bool guarded_copy(void* to, const void* from, std::size_t size);

// Runs the function, which accesses the `size` octets at `memory`; false if one of them could not be accessed, and it
// was ended there. It must not own anything that a jump out of it would lose.
bool guarded_call(void (*function)(void*), void* argument, const void* memory, std::size_t size);

// Puts our handler of SIGSEGV and SIGBUS in front of the program's, for the faults of guarded accesses; fault_signals.h
// says what becomes of all others. Once a process; later calls do nothing. Without the interposer a program that
// installs its own handler afterwards replaces ours, and with it this protection.
void install_copy_guard();

}  // namespace uiw::mpa
