// SPDX-License-Identifier: MIT
// For zsh, whose function _arguments reads the command line by a specification of its options and arguments.
#include <algorithm>

#include "tools/completion/completion.h"

namespace uiw::tools {
namespace {

constexpr char kScript[] = R"(#compdef @name@
# Completion of @name@ for zsh, as `@name@ completion zsh` prints it.

@function@() {
  local curcontext=$curcontext context state state_descr line result=1
  local -a subcommands
  typeset -A opt_args
  _arguments -C@top@ && result=0
  case $state in
  command)
    subcommands=(
@subcommands@    )
    _describe -t commands command subcommands && result=0
    ;;
  arguments)
    curcontext=${curcontext%:*}-$words[1]:
    case $words[1] in
@cases@    esac
    ;;
  esac
  return result
}

# As a file of $fpath this is the function; read by `source` or `eval`, it says whose function it is.
if [[ $funcstack[1] == @function@ ]]; then
  @function@ "$@"
else
  compdef @function@ @name@
fi
)";

// _arguments would take a "--" that comes before all options for the program.
constexpr char kFirstDashes[] =
    "      (( CURRENT > 2 )) && [[ $words[2] == -- ]] && words[2]=() CURRENT=$((CURRENT - 1))\n";

// `text` with a backslash before each character of `special`.
std::string escaped(const std::string& text, const char* special) {
  std::string made;
  for (const char c : text) {
    if (std::string(special).find(c) != std::string::npos) made += '\\';
    made += c;
  }
  return made;
}

std::string action(const ValueWords& value) {
  switch (value.kind) {
    case ValueKind::choice: return "(" + joined(value.choices, " ") + ")";
    case ValueKind::file: return "_files";
    case ValueKind::directory: return "_files -/";
    default: return " ";  // nothing is offered
  }
}

// One for each name: '--name=[help]:value:action'.
std::string specifications(const OptionWords& option) {
  std::string made;
  for (const std::string& name : option.names) {
    const bool has_value = option.value.kind != ValueKind::none, is_long = name.compare(0, 2, "--") == 0;
    std::string one = option.names.size() > 1 ? "(" + joined(option.names, " ") + ")" : "";
    one += name + (has_value ? (is_long ? "=" : "+") : "") + "[" + escaped(option.help, "\\[]:") + "]";
    if (has_value) one += ":" + escaped(option.value.name, "\\:") + ":" + action(option.value);
    made += " \\\n        " + shell_word(one);
  }
  return made;
}

std::string specifications(const CommandWords& command) {
  std::string made;
  for (const OptionWords& option : command.options) made += specifications(option);
  for (const ValueWords& value : command.positionals) {
    // The words of PROGRAM are its own, those that begin with "-" too.
    if (value.kind == ValueKind::program)
      made += " \\\n        '(-):program: _command_names -e' \\\n        '(-)*::arguments: _normal'";
    else
      made += " \\\n        " + shell_word(":" + escaped(value.name, "\\:") + ":" + action(value));
  }
  return made;
}

bool runs_program(const CommandWords& command) {
  return std::any_of(command.positionals.begin(), command.positionals.end(),
                     [](const ValueWords& value) { return value.kind == ValueKind::program; });
}

}  // namespace

std::string zsh_completion(const CommandWords& words) {
  const std::string function = "_" + function_name(words.name);
  std::string subcommands, cases;
  for (const CommandWords& command : words.subcommands) {
    subcommands += "      " + shell_word(escaped(command.name, "\\:") + ":" + command.help) + "\n";
    const std::string own = specifications(command);
    if (own.empty()) continue;
    cases += "    " + command.name + ")\n";
    if (runs_program(command)) cases += kFirstDashes;
    cases += "      _arguments -S" + own + " && result=0\n      ;;\n";
  }
  std::string top = specifications(words);
  if (!subcommands.empty()) top += " \\\n        '(-): :->command' \\\n        '(-)*:: :->arguments'";
  return filled(
      kScript,
      {{"name", words.name}, {"function", function}, {"top", top}, {"subcommands", subcommands}, {"cases", cases}});
}

}  // namespace uiw::tools
