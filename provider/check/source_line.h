// SPDX-License-Identifier: MIT
// What a return address means to people: function, file and line where there is debugging information, else module and
// offset.
//
// Debugging information is read by elfutils' libdw, which is loaded at the first look-up. Without libdw the dynamic
// linker's names are used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "provider/check/place.h"

namespace uiw::provider::check {

struct SourceLine {
  std::string function;  // demangled; empty if unknown
  std::string file;      // empty if there is no debugging information
  int line = 0;
  std::string module;        // the path of the executable or shared object
  std::uint64_t offset = 0;  // of the return address in the module
};

// The functions of a place from the innermost one of the program on: those of uiw, libibverbs and librdmacm that come
// before it are left out. If there is no other function, the outermost one. Throws std::bad_alloc. Not thread-safe.
std::vector<SourceLine> lines_of(const Place& place);

// Whether librdmacm has made the call by itself, not the program: no other library lies between it and libibverbs.
bool is_made_by_librdmacm(const Place& place);

// The name of a function without its arguments, template arguments and unnamed namespaces.
std::string short_name(const std::string& function);

// "main() at client.c:42" or "main() (/usr/bin/client+0x1234)".
std::string text_of(const SourceLine& line);

}  // namespace uiw::provider::check
