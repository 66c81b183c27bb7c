# SPDX-License-Identifier: MIT
"""ib_send_bw and ib_send_lat with -R."""

import sys

import harness
import perftest

perftest.rows("send")

if __name__ == "__main__":
    sys.exit(harness.main())
