# SPDX-License-Identifier: MIT
"""A sender far ahead of a receiver that posts one receive at a time: nothing lost, nothing ended, memory bounded."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    for rule in ("remote", "local"):
        for view in ("iwarp", "roce"):
            cases.add_pair_rows("uiw_rnr_storm", 60, rule, view)
    sys.exit(harness.main())
