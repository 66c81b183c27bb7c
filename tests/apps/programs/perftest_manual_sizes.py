# SPDX-License-Identifier: MIT
"""perftest without -R and with -a, every size from 2 to 8388608: for bandwidth in both views."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from programs import perftest_manual
from support import harness, perftest

for _view in ("iwarp", "roce"):
    for _program in perftest_manual.PROGRAMS:
        # The programs for atomics have one size; those for latency take longest, and the views do not differ for them.
        if "atomic" not in _program and not (_view == "iwarp" and _program.endswith("_lat")):
            harness.add_row(f"{_program} -a, --transport {_view}",
                            lambda bench, program=_program, view=_view: perftest_manual.talk(
                                bench, program, "-n", 5, view=view, run=perftest.every_size, timeout=60,
                                env={"UIW_TRANSPORT": view}))

if __name__ == "__main__":
    sys.exit(harness.main())
