# SPDX-License-Identifier: MIT
"""Memory regions of every kind, memory windows, invalidation, fences, device memory: a row for each case of uiw_memory."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_rows("uiw_memory")
    sys.exit(harness.main())
