# SPDX-License-Identifier: MIT
"""Queue pairs of type UD in the RoCE view: shared receive queues, extended completion queues, their end in the middle of
traffic, many of them, several contexts, and forks."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

cases.add_rows("uiw_datagrams")


if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
