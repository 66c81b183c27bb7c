// SPDX-License-Identifier: MIT
#include "provider/check/text.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace uiw::provider::check {

std::string text(const char* format, ...) {
  char line[400];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

std::string octets_of(const Span& span) { return text("%u octets at 0x%" PRIxPTR, span.length, span.address); }

std::string name_of(const Object& object) {
  const std::string name = std::string("a ") + name_of(object.kind);
  return object.number != 0 ? name + text(" (0x%06x)", object.number) : name;
}

std::string text_of(const Work& work) {
  return text("a %s (wr_id 0x%" PRIx64 ") of %s 0x%06x", work.what, work.wr_id,
              work.shared ? "shared receive queue" : "queue pair", work.queue_number);
}

}  // namespace uiw::provider::check
