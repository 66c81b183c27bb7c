// SPDX-License-Identifier: MIT
// What people are told on standard error: that something could not be had, what it was wanted for and what helps.
// Programs often report no more than that a call failed.
//
// Only where UIW_MESSAGES is on, and one line a process for each cause, since a program may try again without end.
#pragma once

namespace uiw::provider {

// One line each; who has another adds it here.
enum class Cause { descriptors, kCount };

// Writes "uiw: " and this text, if it is the first of its cause and standard error is still the file that it was when
// the library was loaded: a program that has closed it may have put anything under its number. Keeps errno.
// Thread-safe; no lock, no allocation.
__attribute__((format(printf, 2, 3))) void say_once(Cause cause, const char* format, ...);

}  // namespace uiw::provider
