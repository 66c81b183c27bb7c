// SPDX-License-Identifier: MIT
// The `uiw` command: selects the subcommand.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "provider/version.h"
#include "tools/bench/bench.h"
#include "tools/devices.h"
#include "tools/doctor/doctor.h"
#include "tools/run/run.h"

namespace {

// CLI11's messages are fit for people; this adds where to read more.
int usage_error(const CLI::App& app, const CLI::ParseError& error, bool running) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const char* help = running ? "uiw run --help" : "uiw --help";
  std::fprintf(stderr, "uiw: %s; see `%s`\n", error.what(), help);
  return running ? 125 : 2;
}

bool has_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return !commands.empty();
}

int run(int argc, char** argv) {
  using namespace uiw::tools;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<std::string> program;
  const bool running = !arguments.empty() && arguments[0] == "run";
  if (running) {
    const std::vector<std::string> tail(arguments.begin() + 1, arguments.end());
    const RunSplit split = split_run_arguments(tail);
    program.assign(tail.begin() + static_cast<std::ptrdiff_t>(split.options + split.separator), tail.end());
    arguments.resize(1 + split.options);
  }

  CLI::App app{"uiw: an RDMA adapter made of software alone, for programs that use libibverbs and librdmacm.", "uiw"};
  app.set_version_flag("--version", std::string("uiw ") + uiw::kVersion);
  app.require_subcommand(1);
  Action action;
  auto command = [&](const char* name, const char* help) {
    CLI::App* added = app.add_subcommand(name, help);
    added->fallthrough(false);
    return added;
  };
  auto chosen = [&](CLI::App* added, const Action& what) { added->final_callback([&action, what] { action = what; }); };
  CLI::App* run_command = command("run", "Run a program with uiw's RDMA devices");
  chosen(run_command, add_run(*run_command, program));
  CLI::App* devices = command("devices", "List the RDMA devices that uiw offers on this machine");
  chosen(devices, add_devices(*devices));
  CLI::App* doctor = command("doctor", "Check that uiw works here, and say what to do where it does not");
  chosen(doctor, add_doctor(*doctor));
  CLI::App* bench = command("bench", "Measure RDMA over uiw beside plain TCP, on this machine");
  chosen(bench, add_bench(*bench));

  // CLI11 would only say that a subcommand is missing.
  if (!arguments.empty() && arguments[0].substr(0, 1) != "-" && !has_command(app, arguments[0])) {
    std::fprintf(stderr, "uiw: there is no command '%s'; see `uiw --help`\n", arguments[0].c_str());
    return 2;
  }
  if (!arguments.empty() && arguments[0].substr(0, 1) == "-" && app.get_option_no_throw(arguments[0]) == nullptr) {
    std::fprintf(stderr, "uiw: there is no option '%s'; see `uiw --help`\n", arguments[0].c_str());
    return 2;
  }

  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error, running);
  }
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uiw: %s\n", error.what());
    return 125;
  }
}
