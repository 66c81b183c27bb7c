# SPDX-License-Identifier: MIT
"""ib_write_bw and ib_write_lat with -R."""

import sys

import harness
import perftest

perftest.rows("write")

if __name__ == "__main__":
    sys.exit(harness.main())
