// SPDX-License-Identifier: MIT
// Messages for people on standard error. Each says what could not be had or written, and the reason or the remedy,
// since programs often report only that a call failed.
//
// Messages appear only if UIW_MESSAGES is on, and once per process for each cause, since a program may retry without
// end.
#pragma once

#include <cstddef>

namespace uiw::provider {

// The causes, with one message each.
enum class Cause { descriptors, log, capture, kCount };

// Writes "uiw: " and the text by write_to_standard_error(), if UIW_MESSAGES is on and this is the first message of its
// cause. Keeps errno. Thread-safe; takes no lock and allocates nothing.
__attribute__((format(printf, 2, 3))) void say_once(Cause cause, const char* format, ...);

// Writes the line, but only if standard error is still the file that it was when the library was loaded: the program
// may have opened another file with this number. Thread-safe; no cancellation point.
void write_to_standard_error(const char* line, std::size_t size);

}  // namespace uiw::provider
