# SPDX-License-Identifier: MIT
"""Completion channels in the event loops of other libraries: libevent, libuv and Asio. A row for each case of uiw_loops,
through shared memory and by TCP."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_rows("uiw_loops", "shared memory: ")
    cases.add_rows("uiw_loops", "TCP: ", run_one=lambda bench, program, name, timeout: cases.run(
        bench, program, name, timeout, env={"UIW_SAME_HOST": "tcp"}))
    sys.exit(harness.main())
