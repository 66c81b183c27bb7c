# SPDX-License-Identifier: MIT
"""Servers that fork between rdma_listen and their first event, as daemon(3) does, in both views."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

for VIEW in ("iwarp", "roce"):
    cases.add_rows("uiw_daemons", f"{VIEW} view: ",
                   run_one=lambda bench, program, name, timeout, view=VIEW:
                   cases.run(bench, program, name, timeout, env={"UIW_TRANSPORT": view}))


if __name__ == "__main__":
    sys.exit(harness.main())
