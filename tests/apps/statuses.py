# SPDX-License-Identifier: MIT
"""Work that fails on connections made by hand: a row for each case of uiw_statuses, by each completion rule."""

import sys

import cases
import harness

if __name__ == "__main__":
    for rule in ("remote", "local"):
        cases.add_pair_rows("uiw_statuses", 40, rule)
    sys.exit(harness.main())
