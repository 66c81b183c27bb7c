# SPDX-License-Identifier: MIT
"""ib_read_bw and ib_read_lat with -R."""

import sys

import harness
import perftest

perftest.rows("read")

if __name__ == "__main__":
    sys.exit(harness.main())
