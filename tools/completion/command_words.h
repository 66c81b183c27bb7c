// SPDX-License-Identifier: MIT
// What shells complete of a command: its options, arguments and subcommands, taken from CLI11's description of it.
//
// A positional that is named PROGRAM takes a command of its own, with all words that follow. Options and subcommands
// of an empty group, which --help does not show, are left out, and so are subcommands of subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace uiw::tools {

enum class ValueKind {
  none,       // of a flag
  any,        // nothing is known of it
  choice,     // one of the words of `choices`
  file,       // the name of a file or directory
  directory,  // the name of a directory
  program,    // a command, with its arguments
};

struct ValueWords {
  ValueKind kind = ValueKind::none;
  std::string name;                  // as --help shows it
  std::vector<std::string> choices;  // of ValueKind::choice
};

struct OptionWords {
  std::vector<std::string> names;  // with their dashes, the short ones first
  std::string help;                // one line
  ValueWords value;
};

struct CommandWords {
  std::string name;
  std::string help;  // one line
  std::vector<OptionWords> options;
  std::vector<ValueWords> positionals;
  std::vector<CommandWords> subcommands;
};

CommandWords command_words(const CLI::App& app);

// The name with '_' in place of what cannot stand in the name of a shell's function.
std::string function_name(const std::string& name);

// `text` as a word of bash and of zsh, between single quotes.
std::string shell_word(const std::string& text);

// The texts with `separator` between them.
std::string joined(const std::vector<std::string>& texts, const char* separator);

// `texts` as words of bash and of zsh, with spaces between them.
std::string shell_words(const std::vector<std::string>& texts);

// `script` with the second of each pair in place of the first, which stands between "@" there.
std::string filled(std::string script, const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace uiw::tools
