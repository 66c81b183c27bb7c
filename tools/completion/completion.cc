// SPDX-License-Identifier: MIT
#include "tools/completion/completion.h"

#include <cstdio>
#include <memory>

namespace uiw::tools {
namespace {

std::string script_for(const std::string& shell, const CommandWords& words) {
  if (shell == "bash") return bash_completion(words);
  if (shell == "zsh") return zsh_completion(words);
  return fish_completion(words);
}

}  // namespace

Action add_completion(CLI::App& command) {
  auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "The shell that the script is for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command.footer(
      "Packages install files that ask for the script when it is needed first. Without them:\n"
      "  bash: source <(uiw completion bash)\n"
      "  zsh:  source <(uiw completion zsh), behind compinit\n"
      "  fish: uiw completion fish | source");
  return [&command, shell] {
    std::fputs(script_for(*shell, command_words(*command.get_parent())).c_str(), stdout);
    return 0;
  };
}

}  // namespace uiw::tools
