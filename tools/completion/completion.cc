// SPDX-License-Identifier: MIT
#include "tools/completion/completion.h"

#include <cstdio>
#include <memory>
#include <string>

#include "tools/completion/scripts.h"

namespace uiw::tools {

Action add_completion(CLI::App& command) {
  auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "The shell that the script is for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command.footer(
      "Packages install the scripts where the shells look for them. Without packages:\n"
      "  bash: source <(uiw completion bash)\n"
      "  zsh:  source <(uiw completion zsh), behind compinit\n"
      "  fish: uiw completion fish | source");
  return [shell] { return std::fputs(kCompletionScripts.at(*shell), stdout) < 0 ? 1 : 0; };
}

}  // namespace uiw::tools
