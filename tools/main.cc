// SPDX-License-Identifier: MIT
// The `uiw` command: reads the command line, and runs the subcommand.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/run/run.h"
#include "tools/version/version.h"

namespace {

// Prints CLI11's message and which help to read. `running`: the command line is that of `uiw run`. Returns the exit
// status.
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

  const std::unique_ptr<CommandLine> line = command_line(version_text(commit()), program);
  CLI::App& app = line->app;

  // These checks come first, since CLI11 would only say that a subcommand is missing.
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
  return line->action();
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
