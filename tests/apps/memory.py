# SPDX-License-Identifier: MIT
"""Memory regions of every kind, memory windows, invalidation, fences, device memory: a row for each case of uiw_memory."""

import sys

import cases
import harness

if __name__ == "__main__":
    cases.add_rows("uiw_memory")
    sys.exit(harness.main())
