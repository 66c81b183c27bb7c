// SPDX-License-Identifier: MIT
// For bash. A word that has "=" in it comes as three words, because "=" is one of readline's word breaks.
#include <cstddef>

#include "tools/completion/completion.h"

namespace uiw::tools {
namespace {

// `command` is the subcommand, `option` the option whose value the word at the cursor is, as "SUBCOMMAND,OPTION", and
// `place` the number of positionals before it.
constexpr char kScript[] = R"(# Completion of @name@ for bash, as `@name@ completion bash` prints it.

@function@_offer() {
  local choice
  for choice in "$@"; do
    [[ $choice == "$word"* ]] && COMPREPLY+=("$choice")
  done
}

# The words from number $1 on are another command's.
@function@_program() {
  if declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset "$1"
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif [[ $1 -eq $COMP_CWORD ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
  else
    compopt -o default
  fi
}

@function@() {
  local word=${COMP_WORDS[COMP_CWORD]} command='' option='' place=0 i
  COMPREPLY=()
  [[ $word == '=' ]] && word=''
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ $option ]]; then
      [[ ${COMP_WORDS[i]} == '=' ]] || option=''
      continue
    fi
    case $command,${COMP_WORDS[i]} in
@before@      *,-*) ;;
      ,*) command=${COMP_WORDS[i]} ;;
      *) ((++place)) ;;
    esac
  done
  if [[ $option ]]; then
    case $option in
@values@      *) ;;
    esac
  elif [[ $word == -* ]]; then
    case $command in
@options@      *) ;;
    esac
  else
    case $command,$place in
@words@      *) ;;
    esac
  fi
}

complete -F @function@ @name@
)";

// For a "case" of the script: "SUBCOMMAND,OPTION".
std::vector<std::string> patterns(const std::string& command, const std::vector<std::string>& names) {
  std::vector<std::string> made;
  made.reserve(names.size());
  for (const std::string& name : names) made.push_back(command + "," + name);
  return made;
}

// What is offered for a value; empty where nothing is known of it.
std::string offer(const ValueWords& value, const std::string& function, const char* place) {
  switch (value.kind) {
    case ValueKind::choice: return function + "_offer " + shell_words(value.choices);
    case ValueKind::file: return "compopt -o default";
    case ValueKind::directory: return "compopt -o dirnames";
    case ValueKind::program: return function + "_program " + place;
    default: return "";
  }
}

// The lines of a "case" of the script, each for all that differs between subcommands.
struct Cases {
  std::string before;   // what a word before the cursor means
  std::string values;   // of options
  std::string options;  // their names
  std::string words;    // subcommands and positionals
};

void add_line(std::string& lines, const std::string& pattern, const std::string& what) {
  if (!what.empty()) lines += "      " + pattern + ") " + what + " ;;\n";
}

void add_command(Cases& cases, const std::string& function, const std::string& name, const CommandWords& command) {
  std::vector<std::string> names, with_value;
  for (const OptionWords& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.value.kind == ValueKind::none) continue;
    const std::vector<std::string> own = patterns(name, option.names);
    with_value.insert(with_value.end(), own.begin(), own.end());
    add_line(cases.values, joined(own, " | "), offer(option.value, function, ""));
  }
  if (!with_value.empty()) add_line(cases.before, joined(with_value, " | "), "option=$command,${COMP_WORDS[i]}");
  add_line(cases.options, name.empty() ? "''" : name, names.empty() ? "" : function + "_offer " + shell_words(names));
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const ValueWords& value = command.positionals[i];
    add_line(cases.words, name + "," + std::to_string(i), offer(value, function, "\"$COMP_CWORD\""));
    if (value.kind != ValueKind::program) continue;
    add_line(cases.before, name + ",--", function + "_program $((i + 1)); return");
    cases.before += "      " + name + ",-*) ;;\n";
    add_line(cases.before, name + ",*", function + "_program \"$i\"; return");
  }
}

}  // namespace

std::string bash_completion(const CommandWords& words) {
  const std::string function = "_" + function_name(words.name);
  Cases cases;
  std::vector<std::string> subcommands;
  for (const CommandWords& command : words.subcommands) {
    subcommands.push_back(command.name);
    add_command(cases, function, command.name, command);
  }
  add_command(cases, function, "", words);
  if (!subcommands.empty()) add_line(cases.words, ",0", function + "_offer " + shell_words(subcommands));
  return filled(kScript, {{"name", words.name},
                          {"function", function},
                          {"before", cases.before},
                          {"values", cases.values},
                          {"options", cases.options},
                          {"words", cases.words}});
}

}  // namespace uiw::tools
