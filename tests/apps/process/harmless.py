# SPDX-License-Identifier: MIT
"""What a program may do to itself and its RDMA objects, and comes to no harm by uiw."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

cases.add_rows("uiw_harmless")


if __name__ == "__main__":
    sys.exit(harness.main())
