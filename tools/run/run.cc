// SPDX-License-Identifier: MIT
#include "tools/run/run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "provider/capture/capture_file.h"
#include "provider/check/reports.h"
#include "provider/process/settings.h"
#include "tools/files.h"
#include "tools/installation.h"
#include "tools/run/program.h"

namespace uiw::tools {
namespace {

// Exit statuses, as env(1) and timeout(1) have them: uiw itself failed; PROGRAM was found but cannot be executed;
// PROGRAM was not found.
constexpr int kOwnFailure = 125;
constexpr int kCannotCheck = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// The options of the command line.
struct RunOptions {
  std::map<std::string, std::string> settings;  // variable -> value of the given options
  std::string check;                            // of --check; empty if it is not given
  std::vector<std::string> shown;               // makes --help show PROGRAM ARGS; stays empty
};

// Warns of the first problem that makes uiw have no effect on the program, or lets another installation of uiw
// interfere. The command `uiw doctor` reports all problems.
void warn_of(const Reached& reached) {
  if (const std::string advice = advice_for(reached); !advice.empty()) {
    std::fprintf(stderr, "uiw: warning: %s\n", advice.c_str());
    return;
  }
  std::optional<Problem> problem = second_preload_problem();
  if (!problem) problem = driver_problem(driver_files(), 0, false);
  if (problem) std::fprintf(stderr, "uiw: warning: %s; %s\n", problem->text.c_str(), problem->advice.c_str());
}

// Creates the log's file. 0 if lines can be appended, or if the log goes to no file; else an errno. A FIFO without a
// reader is no error: until it has a reader, lines are lost, and uiw says so once on standard error.
int log_error() {
  const std::string& log = provider::settings().values.log;
  if (log.empty() || log == provider::kLogToStandardError) return 0;
  const int fd = open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (fd < 0) {
    const int error = errno;
    struct stat status {};
    return error == ENXIO && stat(log.c_str(), &status) == 0 && S_ISFIFO(status.st_mode) ? 0 : error;
  }
  close(fd);
  return 0;
}

// The setting that `uiw run` takes as an option whose value may be left out.
constexpr std::string_view kCheckOption = "--check";

// Why programs cannot be checked with these settings; empty if they can.
std::string check_problem() {
  const provider::Settings& values = provider::settings().values;
  std::vector<provider::check::Suppression> suppressions;
  if (!values.check_suppress.empty()) {
    std::string problem = provider::check::read_suppressions(values.check_suppress, suppressions);
    if (!problem.empty()) return problem;
  }
  if (values.check_report.empty()) return {};
  const int fd = open(values.check_report.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
  if (fd < 0) return "the report " + values.check_report + " cannot be written: " + std::strerror(errno);
  close(fd);
  return {};
}

// Executes the program, by the shell if it is a script without an interpreter line, as execvp does.
int execute(const std::string& path, const std::vector<std::string>& program) {
  std::vector<char*> argv;
  argv.reserve(program.size() + 1);
  for (const std::string& argument : program) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  if (errno == ENOEXEC) {
    argv[0] = const_cast<char*>(path.c_str());
    argv.insert(argv.begin(), const_cast<char*>("/bin/sh"));
    execv("/bin/sh", argv.data());
  }
  const int error = errno;
  std::fprintf(stderr, "uiw run: %s cannot be executed: %s\n", path.c_str(), std::strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

int run_program(const RunOptions& options, const std::vector<std::string>& program) {
  if (program.empty()) {
    std::fputs("uiw run: no program given; write `uiw run PROGRAM ARGS`\n", stderr);
    return kOwnFailure;
  }
  // CLI11 has "true" for a flag without a value.
  if (!options.check.empty()) setenv("UIW_CHECK", options.check == "true" ? "on" : options.check.c_str(), 1);
  for (const auto& [variable, value] : options.settings) setenv(variable.c_str(), value.c_str(), 1);
  setenv(provider::kMessages, "on", 0);
  // Checks the settings, also those from the environment: with a wrong setting the program would only see that there is
  // no device.
  if (const std::string& error = provider::settings().error; !error.empty()) {
    std::fprintf(stderr, "uiw run: %s\n", error.c_str());
    return kOwnFailure;
  }

  if (const int error = log_error(); error != 0) {
    std::fprintf(stderr, "uiw run: the log %s cannot be written: %s; choose another file\n",
                 provider::settings().values.log.c_str(), std::strerror(error));
    return kOwnFailure;
  }
  if (const std::string& capture = provider::settings().values.capture; !capture.empty()) {
    if (const std::string problem = provider::prepare_capture(capture); !problem.empty()) {
      std::fprintf(stderr, "uiw run: %s\n", problem.c_str());
      return kOwnFailure;
    }
  }
  const bool checks = provider::settings().values.check != provider::Check::off;
  if (const std::string problem = checks ? check_problem() : ""; !problem.empty()) {
    std::fprintf(stderr, "uiw run: %s\n", problem.c_str());
    return kCannotCheck;
  }
  if (const std::optional<Problem> problem = preload_problem()) {
    std::fprintf(stderr, "uiw run: %s; %s\n", problem->text.c_str(), problem->advice.c_str());
    return kOwnFailure;
  }
  int error = 0;
  const std::string path = find_program(program[0], error);
  if (error == EACCES) {
    std::fprintf(stderr, "uiw run: %s cannot be executed; check that it is a program and its mode\n", path.c_str());
    return kNotExecutable;
  }
  if (error != 0) {
    std::fprintf(stderr, "uiw run: no program %s %s; check the name\n", program[0].c_str(),
                 program[0].find('/') == std::string::npos ? "in PATH" : "there");
    return kNotFound;
  }
  const Reached reached = reach_of(path);
  if (reached.reach == Reach::other_machine) {
    std::fprintf(stderr, "uiw run: %s\n", advice_for(reached).c_str());
    return kNotExecutable;
  }
  if (checks && reached.reach != Reach::reachable) {
    std::fprintf(stderr, "uiw run: the program cannot be checked: %s\n", advice_for(reached).c_str());
    return kCannotCheck;
  }
  warn_of(reached);
  setenv("LD_PRELOAD", preload_value(preload_library(), getenv("LD_PRELOAD")).c_str(), 1);
  return execute(path, program);
}

// The type of a setting's value in --help. If the value is one of some words, the type is the list of the words.
std::string type_of(const provider::SettingInfo& setting) {
  const std::string values = setting.values, variable = setting.variable;
  const bool choice = values.find('|') != std::string::npos && values.find('.') == std::string::npos;
  if (choice) return setting.values;
  if (values.starts_with("FILE")) return "FILE";
  return variable.ends_with("_DIR") ? "DIR" : "VALUE";
}

}  // namespace

RunSplit split_run_arguments(const std::vector<std::string>& arguments) {
  RunSplit split;
  while (split.options < arguments.size()) {
    const std::string& argument = arguments[split.options];
    if (argument == "--") {
      split.separator = 1;
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') break;
    ++split.options;
    for (const provider::SettingInfo& setting : provider::setting_table())
      if (argument == setting.option && argument != kCheckOption && split.options < arguments.size()) ++split.options;
  }
  return split;
}

Action add_run(CLI::App& command, const std::vector<std::string>& program) {
  auto options = std::make_shared<RunOptions>();
  for (const provider::SettingInfo& setting : provider::setting_table()) {
    const std::string variable = setting.variable;
    const std::string type = type_of(setting);
    std::string help = std::string(setting.help) + " (" + variable;
    if (type != setting.values) help += std::string("; ") + setting.values;
    if (*setting.initial != '\0') help += std::string("; default ") + setting.initial;
    if (setting.option == kCheckOption) {
      command.add_flag(setting.option, options->check, help + ")");
      continue;
    }
    command
        .add_option_function<std::string>(
            setting.option, [options, variable](const std::string& value) { options->settings[variable] = value; },
            help + ")")
        ->type_name(type)
        ->check([variable](const std::string& value) { return provider::check_setting(variable, value); });
  }
  command.add_option("PROGRAM", options->shown, "Program to run, and its arguments")->type_name("ARGS");
  command.footer(
      "Options come first; all that follows PROGRAM is the program's: uiw run --crc on ib_write_bw -R\n"
      "Exit status: that of the program; 125 where uiw fails, 126 where the program cannot be executed or is built "
      "for\nanother architecture, 127 where it is not found.");
  return [options, program] { return run_program(*options, program); };
}

}  // namespace uiw::tools
