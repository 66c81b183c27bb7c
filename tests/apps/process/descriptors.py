# SPDX-License-Identifier: MIT
"""What a program may do with descriptors while it has connections, and how it learns that there are too few."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness
from support.harness import check

PROGRAM = "uiw_descriptors"


def run_one(bench, program, name, timeout):
    """Where descriptors are few, one line says so; it names the limit and what to do. Nothing is said otherwise."""
    # The log is one of the files that are opened meanwhile.
    options = ("--log", os.path.join(bench.tmp, "log")) if name.endswith("while_connecting") else ()
    quiet = cases.run(bench, program, name, timeout, env={"UIW_MESSAGES": "off"}, options=options)
    check(quiet.stderr == "", f"with messages off: {quiet.stderr}")
    said = cases.run(bench, program, name, timeout).stderr.splitlines()
    if not name.startswith("few_"):
        return check(said == [], f"said: {said}")
    check(len(said) == 1, f"said: {said}")
    for word in ("uiw: ", "descriptor", "256", "ulimit -n"):
        check(word in said[0], f"{word!r} is not in {said[0]!r}")


cases.add_rows(PROGRAM, run_one=run_one)


if __name__ == "__main__":
    sys.exit(harness.main())
