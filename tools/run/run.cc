// SPDX-License-Identifier: MIT
#include "tools/run/run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "provider/process/settings.h"
#include "tools/files.h"
#include "tools/run/program.h"

namespace uiw::tools {
namespace {

// Exit statuses as of env(1) and timeout(1): uiw itself failed; PROGRAM was found but cannot be executed; PROGRAM was
// not found.
constexpr int kOwnFailure = 125;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// The options of the command line.
struct RunOptions {
  std::map<std::string, std::string> settings;  // variable -> value of the given options
  std::vector<std::string> shown;               // for PROGRAM ARGS in --help; stays empty
};

void warn_of(Reach reach, const std::string& path) {
  const char* name = path.c_str();
  switch (reach) {
    case Reach::reachable: break;
    case Reach::is_static:
      std::fprintf(stderr, "uiw: warning: %s is statically linked, so uiw cannot reach it; link it dynamically\n",
                   name);
      break;
    case Reach::privileged:
      std::fprintf(stderr,
                   "uiw: warning: %s is set-user-ID, set-group-ID or has file capabilities, so the loader "
                   "ignores uiw; "
                   "run a copy without them\n",
                   name);
      break;
    case Reach::other_machine:
      std::fprintf(stderr,
                   "uiw: warning: %s is built for another machine type than this uiw, so the loader ignores uiw; "
                   "use a uiw built for it\n",
                   name);
      break;
  }
}

int run_program(const RunOptions& options, const std::vector<std::string>& program) {
  if (program.empty()) {
    std::fputs("uiw run: no program given; write `uiw run PROGRAM ARGS`\n", stderr);
    return kOwnFailure;
  }
  for (const auto& [variable, value] : options.settings) setenv(variable.c_str(), value.c_str(), 1);
  setenv(provider::kMessages, "on", 0);
  // This also checks variables that were set outside; with a wrong one the program would just see no device.
  if (const std::string& error = provider::settings().error; !error.empty()) {
    std::fprintf(stderr, "uiw run: %s\n", error.c_str());
    return kOwnFailure;
  }

  const std::string preload = preload_library();
  if (preload.empty()) {
    std::fprintf(stderr, "uiw run: libuiw-preload.so is not at %s; install uiw again or finish the build\n",
                 listed(preload_places()).c_str());
    return kOwnFailure;
  }
  if (preload.find_first_of(": ") != std::string::npos) {
    std::fprintf(stderr, "uiw run: LD_PRELOAD cannot hold %s; move uiw to a path without spaces and colons\n",
                 preload.c_str());
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
  warn_of(reach_of(path), path);
  setenv("LD_PRELOAD", preload_value(preload, getenv("LD_PRELOAD")).c_str(), 1);

  std::vector<char*> argv;
  argv.reserve(program.size() + 1);
  for (const std::string& argument : program) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  if (errno == ENOEXEC) {  // a script without an interpreter line is run by the shell, as by execvp
    argv[0] = const_cast<char*>(path.c_str());
    argv.insert(argv.begin(), const_cast<char*>("/bin/sh"));
    execv("/bin/sh", argv.data());
  }
  std::fprintf(stderr, "uiw run: %s cannot be executed: %s\n", path.c_str(), std::strerror(errno));
  return errno == ENOENT ? kNotFound : kNotExecutable;
}

// A choice between words says itself what the value may be, to people and to the completion of shells.
std::string type_of(const provider::SettingInfo& setting) {
  const std::string values = setting.values, variable = setting.variable;
  const bool choice = values.find('|') != std::string::npos && values.find('.') == std::string::npos;
  if (choice) return values;
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
      if (argument == setting.option && split.options < arguments.size()) ++split.options;
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
      "Exit status: that of the program; 125 where uiw fails, 126 where the program cannot be executed, 127 "
      "where\n"
      "it is not found.");
  return [options, program] { return run_program(*options, program); };
}

}  // namespace uiw::tools
