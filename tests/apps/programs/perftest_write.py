# SPDX-License-Identifier: MIT
"""ib_write_bw and ib_write_lat with -R."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest

perftest.rows("write")

if __name__ == "__main__":
    sys.exit(harness.main())
