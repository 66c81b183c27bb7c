// SPDX-License-Identifier: MIT
// Which arguments of `uiw run` are uiw's, and which the program's; and what the loader will make of the program.
#include "tools/run/run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/run/program.h"

using namespace uiw::tools;

namespace {

struct Split {
  std::vector<std::string> arguments;
  std::size_t options;
  std::size_t separator;
};

}  // namespace

TEST_CASE("run: options end where the program begins") {
  const Split split = GENERATE(values<Split>({
      {{}, 0, 0},
      {{"rping"}, 0, 0},
      {{"rping", "--crc", "on"}, 0, 0},
      {{"--crc", "on", "rping", "-s"}, 2, 0},
      {{"--crc=on", "rping"}, 1, 0},
      {{"--crc"}, 1, 0},  // whose value is missing
      {{"--help"}, 1, 0},
      {{"--", "rping"}, 0, 1},
      {{"--crc", "on", "--", "--help"}, 2, 1},
      {{"-", "rping"}, 0, 0},
  }));
  const RunSplit found = split_run_arguments(split.arguments);
  CAPTURE(split.arguments);
  CHECK(found.options == split.options);
  CHECK(found.separator == split.separator);
}

TEST_CASE("run: a script is as reachable as its interpreter", "[native]") {
  char folder[] = "/tmp/uiw-run-test-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string script = std::string(folder) + "/script", text = std::string(folder) + "/text",
                    alien = std::string(folder) + "/alien";
  std::ofstream(script) << "#!/bin/sh -e\n";
  std::ofstream(text) << "no program\n";
  std::ofstream(alien) << std::string(
                              "\x7f"
                              "ELF\x7f",
                              5)
                       << std::string(64, '\0');  // of no class that there is
  CHECK(reach_of("/bin/sh").reach == Reach::reachable);
  CHECK(reach_of(script).reach == Reach::reachable);
  CHECK(reach_of(text).reach == Reach::reachable);
  CHECK(reach_of(alien).reach == Reach::other_machine);
  CHECK(reach_of(script).path == "/bin/sh");
  CHECK(reach_of(std::string(folder) + "/none").reach == Reach::reachable);
  std::filesystem::remove_all(folder);
}

TEST_CASE("run: what keeps uiw from a program is said with what to do") {
  const auto advice = [](Reach reach, const char* name) { return advice_for({reach, "/x", name}); };
  CHECK(advice(Reach::reachable, "").empty());
  CHECK(advice(Reach::is_static, "") == "/x is statically linked, so uiw cannot reach it; link it dynamically");
  CHECK(advice(Reach::set_user_id, "root") ==
        "/x is set-user-ID of root, so the loader ignores uiw; run a copy without that bit, or run it as that user");
  CHECK(advice(Reach::other_machine, "riscv64") ==
        "/x is built for riscv64 and this uiw for " + own_machine_name() + "; use a uiw for riscv64");
  CHECK(advice(Reach::other_machine, "i386 (32-bit)") ==
        "/x is built for i386 (32-bit) and this uiw for " + own_machine_name() +
            "; uiw is 64-bit alone, so use a 64-bit build of the program");
}
