# SPDX-License-Identifier: MIT
# fish reads this file when it completes uiw for the first time.
command -q uiw; and uiw completion fish 2>/dev/null | source
