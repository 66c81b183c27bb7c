# SPDX-License-Identifier: MIT
"""Manual connections in any order of RTR, RTS and first work: they stand, or work fails with a completion."""

import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check


def run(bench, where, trials, address="127.0.0.1", seed=None, **more):
    seed = random.randrange(1 << 32) if seed is None else seed
    ended = bench.run([bench.helper("uiw_any_order"), address, where, trials, seed], timeout=150, **more)
    check("as documented" in ended.stdout, "it did not finish")


for _where, _title in (("here", "one process"), ("apart", "two processes")):
    add_row(f"{_title}, 4000 pairs", lambda bench, w=_where: run(bench, w, 4000))
    add_row(f"{_title}, 1000 pairs, IPv6, --transport roce",
            lambda bench, w=_where: run(bench, w, 1000, address="::1", options=("--transport", "roce")))


if __name__ == "__main__":
    sys.exit(harness.main())
