// SPDX-License-Identifier: MIT
// The words of reports.
#pragma once

#include <string>

#include "provider/check/objects.h"
#include "provider/check/posted_work.h"

namespace uiw::provider::check {

// As sprintf(), at most 400 octets.
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

// "64 octets at 0x7f0000001000"
std::string octets_of(const Span& span);
// "a queue pair (0x000102)"
std::string name_of(const Object& object);
// "a Send (wr_id 0x4d) of queue pair 0x000102"
std::string text_of(const Work& work);

}  // namespace uiw::provider::check
