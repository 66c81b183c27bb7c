// SPDX-License-Identifier: MIT
// LD_PRELOAD as it has to be, programs found as a shell finds them, and texts made of lists.
#include "tools/files.h"

#include <catch2/catch.hpp>
#include <cerrno>

using namespace uiw::tools;

TEST_CASE("files: uiw comes first in LD_PRELOAD, and once") {
  CHECK(preload_value("/a/uiw.so", nullptr) == "/a/uiw.so");
  CHECK(preload_value("/a/uiw.so", "") == "/a/uiw.so");
  CHECK(preload_value("/a/uiw.so", "/b.so") == "/a/uiw.so:/b.so");
  CHECK(preload_value("/a/uiw.so", "/b.so /c.so") == "/a/uiw.so:/b.so:/c.so");
  CHECK(preload_value("/a/uiw.so", "/b.so:/a/uiw.so::/c.so") == "/a/uiw.so:/b.so:/c.so");
  CHECK(preload_value("/a/uiw.so", "/a/uiw.so") == "/a/uiw.so");
  CHECK(preload_value("/a/uiw.so", "/other/uiw.so:/b.so uiw.so") == "/a/uiw.so:/b.so");
}

TEST_CASE("files: a program is found as a shell finds it") {
  int error = -1;
  CHECK_FALSE(find_program("sh", error).empty());
  CHECK(error == 0);
  CHECK(find_program("/bin/sh", error) == "/bin/sh");
  CHECK(error == 0);
  CHECK(find_program("/etc/passwd", error) == "/etc/passwd");
  CHECK(error == EACCES);
  CHECK(find_program("/", error) == "/");
  CHECK(error == EACCES);
  CHECK(find_program("/no/such/program", error).empty());
  CHECK(error == ENOENT);
  CHECK(find_program("no-such-program-anywhere", error).empty());
  CHECK(error == ENOENT);
  CHECK(find_program("", error).empty());
  CHECK(error == ENOENT);
}

TEST_CASE("files: lists for people") {
  CHECK(listed({}).empty());
  CHECK(listed({"a"}) == "a");
  CHECK(listed({"a", "b"}) == "a or b");
  CHECK(listed({"a", "b", "c"}) == "a, b or c");
}
