// SPDX-License-Identifier: MIT
// Copies to and from memory that may be inaccessible, mostly the program's registered memory. If the program has
// unmapped the memory, the copy fails and the program does not crash. guarded_call() protects other kinds of access in
// the same way.
//
// What guarded_copy() writes becomes visible in ascending order, in steps of 32 octets or fewer, the last octet last,
// and naturally aligned 8-octet words become visible as a whole: programs spin on the last octet of an RDMA Write, or
// on a flag word. guarded_copy_unordered() promises no order: it uses memcpy of libc, which may store the last octets
// first. It is for memory that nobody may read before the copy is complete. If another processor has read the memory
// before, as in the ring of a shared-memory stream, guarded_copy_unordered() is four times as fast as guarded_copy(),
// since memcpy stores whole cache lines without fetching them first.
#pragma once

#include <cstddef>

// Excludes a function from ThreadSanitizer: like the DMA of an adapter, it accesses memory concurrently with the
// program and without any ordering that the program could expect.
#define UIW_AS_BY_DMA __attribute__((no_sanitize("thread")))

namespace uiw {

// False if one of the ranges could not be accessed (SIGSEGV or SIGBUS); then a part of the data may have been copied.
// Before install_copy_guard() such a range raises the signal as in any other copy. Thread-safe.
bool guarded_copy(void* to, const void* from, std::size_t size);
bool guarded_copy_unordered(void* to, const void* from, std::size_t size);

// Calls `function`, which accesses the `size` octets at `memory`. False if an octet could not be accessed: then the
// function was left by a jump at that access, so it must not own anything (locks, memory) at that point. Thread-safe.
bool guarded_call(void (*function)(void*), void* argument, const void* memory, std::size_t size);

// Installs our handler of SIGSEGV and SIGBUS in front of the program's handlers; fault_signals.h says what happens to
// faults of other code. The first call installs it, later calls do nothing. Thread-safe. Without the interposer, a
// program that installs its own handler afterwards replaces ours and loses this protection.
void install_copy_guard();

}  // namespace uiw
