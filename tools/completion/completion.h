// SPDX-License-Identifier: MIT
// `uiw completion SHELL`: prints a script that makes the shell complete the words of a command line.
//
// The scripts hold that the name of a subcommand is the first word that is no option, that the words behind it are the
// subcommand's, and that those from PROGRAM on (command_words.h) are a command line of their own.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/action.h"
#include "tools/completion/command_words.h"

namespace uiw::tools {

std::string bash_completion(const CommandWords& words);
std::string zsh_completion(const CommandWords& words);
std::string fish_completion(const CommandWords& words);

// The script is made of the app that `command` is a subcommand of, when the action runs: with all its subcommands.
Action add_completion(CLI::App& command);

}  // namespace uiw::tools
