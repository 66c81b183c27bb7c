// SPDX-License-Identifier: MIT
// Which memory is of files that are mapped with MAP_SYNC, by what /proc/self/smaps says (proc_pid_smaps(5)).
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "provider/memory/accessible.h"

using uiw::provider::persistent;

namespace {

constexpr const char* kMappings =
    "7f0000000000-7f0000002000 rw-s 00000000 fe:00 12     /mnt/one\n"
    "Size:                  8 kB\n"
    "VmFlags: rd wr sh mr mw me ms sf sd \n"
    "7f0000002000-7f0000003000 rw-s 00002000 fe:00 12     /mnt/two\n"
    "VmFlags: rd wr sh mr mw me ms sf \n"
    "7f0000004000-7f0000005000 rw-s 00000000 fe:00 13     /mnt/three\n"
    "VmFlags: rd wr sh mr mw me ms sf \n"
    "7f0000005000-7f0000006000 rw-p 00000000 00:00 0      [heap]\n"
    "VmFlags: rd wr mr mw me ac \n";

bool says(std::uintptr_t address, std::size_t length, std::string text = kMappings) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fmemopen(text.data(), text.size(), "r"), std::fclose);
  REQUIRE(file != nullptr);
  return persistent(file.get(), reinterpret_cast<const std::byte*>(address), length);
}

}  // namespace

TEST_CASE("persistent: all of the range has to be mapped with MAP_SYNC", "[memory]") {
  CHECK(says(0x7f0000000000, 0x2000));
  CHECK(says(0x7f0000000010, 1));
  CHECK(says(0x7f0000001000, 0x2000));        // of two mappings, one behind the other
  CHECK_FALSE(says(0x7f0000002000, 0x3000));  // with a hole
  CHECK_FALSE(says(0x7f0000004000, 0x2000));  // the last page is of another kind
  CHECK_FALSE(says(0x7f0000005000, 8));
  CHECK_FALSE(says(0x7f0000010000, 8));
  CHECK_FALSE(says(0x1000, 8));
  CHECK_FALSE(says(0x7f0000000000, 8, "7f0000000000-7f0000002000 rw-s 00000000 fe:00 12\n"));
}

TEST_CASE("persistent: memory of this process is not, as /proc/self/smaps says", "[memory]") {
  const int here = 0;
  CHECK_FALSE(persistent(reinterpret_cast<const std::byte*>(&here), sizeof here));
}
