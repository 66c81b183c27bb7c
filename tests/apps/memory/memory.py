# SPDX-License-Identifier: MIT
"""Memory regions of every kind, memory windows, invalidation, fences, device memory, shared contexts and allocators: a row for
each case of uiw_memory."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_rows("uiw_memory")
    harness.add_row("import_device, several devices",
                    lambda bench: cases.run(bench, "uiw_memory", "import_device",
                                            options=("--devices", "lo=first_0,lo=second_0,lo=third_0")))
    sys.exit(harness.main())
