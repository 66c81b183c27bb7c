# SPDX-License-Identifier: MIT
# bash-completion reads this file when it completes uiw for the first time.
eval "$(uiw completion bash 2>/dev/null)"
