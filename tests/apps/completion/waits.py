# SPDX-License-Identifier: MIT
"""Threads that block in ibv_get_cq_event, poll or epoll move octets meanwhile: alone, several at a time, beside one that
polls, with signals, cancellation and forks. A row for each case of uiw_waits, through shared memory and by TCP."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_rows("uiw_waits", "shared memory: ")
    cases.add_rows("uiw_waits", "TCP: ", run_one=lambda bench, program, name, timeout: cases.run(
        bench, program, name, timeout, env={"UIW_SAME_HOST": "tcp"}))
    sys.exit(harness.main())
