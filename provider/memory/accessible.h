// SPDX-License-Identifier: MIT
// Checks whether memory of the program is mapped, and whether its protection allows what a registration wants.
#pragma once

#include <cstddef>
#include <cstdio>

namespace uiw::provider {

// Whether every page of the range is mapped, and readable, or writable if `writable`. Like an adapter's driver, this
// may fault in the pages of a small range; it touches no page of a larger range. True also if the kernel cannot tell
// (there is no /proc), since guarded_copy() survives memory that is not there. Raises no signal, whatever the range is.
// Thread-safe.
bool accessible(const std::byte* address, std::size_t length, bool writable);

// Whether all of the range is mapped from files with MAP_SYNC, so that msync() makes what is there persistent. Reads
// /proc/self/smaps. Thread-safe.
bool persistent(const std::byte* address, std::size_t length);
// As persistent(), of what such a file says.
bool persistent(std::FILE* smaps, const std::byte* address, std::size_t length);
// Writes memory that is persistent() to its medium. False if that fails. Blocks; not a cancellation point.
bool make_persistent(const std::byte* address, std::size_t length);

// Faults the pages of the range in, as far as the kernel can do that. 0, or EFAULT if a part is not mapped or does not
// allow the access.
int fetch_pages(std::byte* address, std::size_t length, bool writable);

}  // namespace uiw::provider
