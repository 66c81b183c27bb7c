// SPDX-License-Identifier: MIT
// Is memory of the program mapped, and does its protection allow what a registration wants to do with it?
#pragma once

#include <cstddef>

namespace uiw::provider {

// Whether every page of the range is mapped, and readable, or writable if `writable`. As an adapter's driver does, it
// may fault in the pages of a small range; it touches none of a larger one. True also where the kernel does not say
// (there is no /proc): each access is guarded anyway. No fault of the program comes of it, whatever the range is.
// Thread-safe.
bool accessible(const std::byte* address, std::size_t length, bool writable);

// Faults the pages of the range in. 0, or EFAULT if a part is not mapped or does not allow the access.
int fetch_pages(std::byte* address, std::size_t length, bool writable);

}  // namespace uiw::provider
