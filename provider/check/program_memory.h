// SPDX-License-Identifier: MIT
// What the check asks of the program's memory, which may not be there any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "provider/check/posted_work.h"

namespace uiw::provider::check {

// The checksum of a span of work; nothing if its octets cannot be read. Of a sink only the first octets count: many
// receives are much longer than their messages.
std::optional<std::uint32_t> checksum_of(const Work& work, const Span& span);
std::optional<std::uint32_t> checksum_of(std::uintptr_t address, std::size_t length);

// Stores a pattern in the memory of a span, and what it held in Span::before. Throws std::bad_alloc. uncover() stores
// that back in all spans of the work, but for the first `filled` octets. Nothing is done where memory cannot be
// accessed.
void cover(Span& span);
void uncover(Work& work, std::uint32_t filled) noexcept;

// Whether all pages of these octets can be written. They stay as they are.
bool is_writable(std::uintptr_t address, std::size_t length);

// Whether the memory is shared with other processes (MAP_SHARED), or can be. Slow.
bool is_shared(std::uintptr_t address);

// Whether something is mapped at all pages of these octets. Reads none of them.
bool is_mapped(std::uintptr_t address, std::size_t length);

}  // namespace uiw::provider::check
