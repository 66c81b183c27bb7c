// SPDX-License-Identifier: MIT
#include "provider/process/notice.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/descriptor.h"

using namespace uiw;

namespace {

// What a process of its own with this environment writes to standard error.
std::string in_child(const std::string& environment, const char* test) {
  std::array<char, PATH_MAX> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const std::string command = "env -i " + environment + " '" + self.data() + "' '" + test + "' 2>&1 >/dev/null";
  std::FILE* pipe = ::popen(command.c_str(), "re");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 1024> octets;
  while (const std::size_t n = std::fread(octets.data(), 1, octets.size(), pipe)) out.append(octets.data(), n);
  ::pclose(pipe);
  return out;
}

}  // namespace

TEST_CASE("notice: (child)", "[.notice-child]") {
  for (int i = 0; i < 3; ++i) {
    errno = EMFILE;
    REQUIRE(DescriptorChange().take(-1, "a test") == -1);
    REQUIRE(errno == EMFILE);
  }
}

TEST_CASE("notice: one line for each cause, where messages are on", "[notice][native]") {
  const std::string said = in_child("UIW_MESSAGES=on", "[.notice-child]");
  CHECK(said.find("uiw: no descriptor could be had for a test: the process may have ") == 0);
  CHECK(said.find("ulimit -n\n") == said.size() - 10);
  CHECK(said.find('\n') == said.size() - 1);
  CHECK(in_child("", "[.notice-child]").empty());
  CHECK(in_child("UIW_MESSAGES=off", "[.notice-child]").empty());
}

TEST_CASE("notice: nothing is written when the program has reused the number of standard error", "[notice][native]") {
  // In the child, so that the settings, which are read once, are its own.
  const std::string said = in_child("UIW_MESSAGES=on", "[.notice-closed]");
  CHECK(said == "");
}

TEST_CASE("notice: (child that has closed standard error)", "[.notice-closed]") {
  const int before = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  ::close(STDERR_FILENO);
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  provider::say_once(provider::Cause::descriptors, "%s", "not for this file");
  if (file != STDERR_FILENO || ::lseek(file, 0, SEEK_END) != 0) ::dprintf(before, "it was written to\n");
  ::dup2(before, STDERR_FILENO);
  ::close(before);
}
