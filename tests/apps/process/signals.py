# SPDX-License-Identifier: MIT
"""SIGSEGV and SIGBUS belong to the program, while registered memory that is gone is an error of a work request."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

# With the CRC on, memory that is sent is read by the thread that posts.
cases.add_rows("uiw_signals", run_one=lambda bench, program, name, timeout: cases.run(
    bench, program, name, timeout, env={"UIW_CRC": "on"}))


if __name__ == "__main__":
    sys.exit(harness.main())
