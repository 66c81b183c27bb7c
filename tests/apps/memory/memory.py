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
    # vanished.cc. Over TCP it is the kernel that meets the memory, or with a CRC both.
    for crc in ("off", "on"):
        for name in cases.names("uiw_memory"):
            if name.startswith(("unmapped_", "read_only_", "cut_off_")):
                harness.add_row(f"{name}, TCP, CRC {crc}",
                                lambda bench, name=name, crc=crc: cases.run(
                                    bench, "uiw_memory", name, options=("--same-host", "tcp", "--crc", crc)))
    sys.exit(harness.main())
