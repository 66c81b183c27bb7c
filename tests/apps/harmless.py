# SPDX-License-Identifier: MIT
"""What a program may do to itself and its RDMA objects, and comes to no harm by uiw."""

import sys

import cases
import harness

cases.add_rows("uiw_harmless")


if __name__ == "__main__":
    sys.exit(harness.main())
