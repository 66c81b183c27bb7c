# SPDX-License-Identifier: MIT
"""perftest without -R in the RoCE view."""

import sys

import harness
import perftest_manual

perftest_manual.rows("roce")

if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
