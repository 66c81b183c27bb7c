# SPDX-License-Identifier: MIT
"""perftest without -R in the RoCE view."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from programs import perftest_manual
from support import harness

perftest_manual.rows("roce")

if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
