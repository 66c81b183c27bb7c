// SPDX-License-Identifier: MIT
// For fish, which takes one `complete` for each option and argument, with the condition on which it is offered.
#include <cstddef>

#include "tools/completion/completion.h"

namespace uiw::tools {
namespace {

constexpr char kScript[] = R"(# Completion of @name@ for fish, as `@name@ completion fish` prints it.

# Whether the words before the cursor begin with a subcommand: with $argv[1], or with none where no argument is given.
function @function@_words
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"
end

# The number of the word that is the program, where the subcommand runs one.
function @function@_place
    set -l words (commandline -opc)
    set -l place 3
    while test $place -le (count $words)
        switch $words[$place]
            case --
                set place (math $place + 1)
                break
@values@            case '-*'
                set place (math $place + 1)
            case '*'
                break
        end
    end
    echo $place
end

# Likewise, and the word at the cursor does not belong to a program.
function @function@_at
    @function@_words $argv; or return
    contains -- "$argv[1]"@programs@; or return 0
    test (@function@_place) -gt (count (commandline -opc))
end

# What fish offers for the program and its arguments.
function @function@_program
    set -l words (commandline -opc)
    set -l place (@function@_place)
    set -l line (commandline -ct)
    if test $place -le (count $words)
        set line (string escape -- $words[$place..-1]) $line
    else if string match -q -- '-*' "$line"
        return
    end
    complete -C "$line"
end

complete -c @name@ -f
@completions@)";

// Options with a value take two words.
constexpr char kValueCase[] = "            case";
constexpr char kValueStep[] = "\n                set place (math $place + 2)\n";

// Between single quotes fish knows two escapes.
std::string fish_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') word += '\\';
    word += c;
  }
  return word + "'";
}

std::string value_words(const ValueWords& value) {
  switch (value.kind) {
    case ValueKind::none: return "";
    case ValueKind::choice: return " -x -a " + fish_word(joined(value.choices, " "));
    case ValueKind::file: return " -r -F";
    case ValueKind::directory: return " -x -a '(__fish_complete_directories)'";
    default: return " -x";
  }
}

std::string option_line(const std::string& start, const OptionWords& option) {
  std::string line = start;
  for (const std::string& name : option.names)
    line += name.compare(0, 2, "--") == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return line + value_words(option.value) + " -d " + fish_word(option.help) + "\n";
}

struct Script {
  std::string function;     // "__uiw"
  std::string start;        // "complete -c uiw"
  std::string values;       // patterns of options that take a value, for __uiw_place
  std::string programs;     // names of subcommands that run a program
  std::string completions;  // one line each
};

void add_command(Script& script, const std::string& name, const CommandWords& command) {
  const std::string condition = script.function + "_at" + (name.empty() ? "" : " " + name);
  for (const OptionWords& option : command.options) {
    script.completions += option_line(script.start + " -n " + fish_word(condition), option);
    if (option.value.kind == ValueKind::none) continue;
    for (const std::string& word : option.names) script.values += " " + fish_word(word);
  }
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const ValueWords& value = command.positionals[i];
    if (value.kind == ValueKind::program) {
      script.programs += " " + fish_word(name);
      script.completions += script.start + " -n " + fish_word(script.function + "_words " + name) + " -a '(" +
                            script.function + "_program)'\n";
      continue;
    }
    const std::string place = condition + "; and test (count (commandline -opc)) -eq " + std::to_string(i + 2);
    script.completions += script.start + " -n " + fish_word(place) + value_words(value) + "\n";
  }
}

}  // namespace

std::string fish_completion(const CommandWords& words) {
  const std::string function = "__" + function_name(words.name);
  Script script{function, "complete -c " + words.name, "", "", ""};
  add_command(script, "", words);
  for (const CommandWords& command : words.subcommands) {
    script.completions += script.start + " -n " + function + "_at -a " + fish_word(command.name) + " -d " +
                          fish_word(command.help) + "\n";
    add_command(script, command.name, command);
  }
  return filled(kScript, {{"name", words.name},
                          {"function", function},
                          {"values", script.values.empty() ? "" : kValueCase + script.values + kValueStep},
                          {"programs", script.programs},
                          {"completions", script.completions}});
}

}  // namespace uiw::tools
