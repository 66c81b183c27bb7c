#compdef uiw
# SPDX-License-Identifier: MIT
# compinit makes this file the function _uiw; called for the first time, it is replaced by the one that uiw prints.
local script
script=$(uiw completion zsh 2>/dev/null) && eval "$script" && _uiw "$@"
