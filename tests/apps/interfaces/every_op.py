# SPDX-License-Identifier: MIT
"""Every operation of the provider's table works, or returns the errno of its manual page."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row

TABLE = pathlib.Path(__file__).resolve().parents[3] / "provider" / "plugin" / "abi" / "releases.def"


@row("each operation that libibverbs 44 knows")
def walk(bench):
    said = bench.run([bench.helper("uiw_every_op")], timeout=30).stdout
    walked = dict(re.findall(r"^(\w+): (\w+)$", said, re.MULTILINE))
    # The releases from 39 to 44 have the same ones.
    known = re.findall(r"^UIW_OPERATION\((\w+), 39\)$", TABLE.read_text(), re.MULTILINE)
    check(len(known) == 76, f"{len(known)} operations in {TABLE}")
    check(not set(known) - set(walked), f"never called: {sorted(set(known) - set(walked))}")


if __name__ == "__main__":
    sys.exit(harness.main())
