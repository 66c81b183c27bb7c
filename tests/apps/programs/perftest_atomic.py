# SPDX-License-Identifier: MIT
"""ib_atomic_bw and ib_atomic_lat with -R: both kinds of operation, one and many queue pairs and outstanding requests."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest


def add(program, *options, **more):
    settings = [f"{name}={value}" for name, value in more.get("env", {}).items()]
    title = " ".join(str(word) for word in (program, "-R", *options, *settings))
    harness.add_row(title, lambda bench: perftest.one(bench, program, *options, **more))


for _kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
    for _outstanding in (1, 16):
        for _pairs in (1, 16):
            add("ib_atomic_bw", "-A", _kind, "-q", _pairs, "-o", _outstanding, "-n", 1000)
        add("ib_atomic_lat", "-A", _kind, "-o", _outstanding, "-n", 1000)
    add("ib_atomic_bw", "-A", _kind, "-D", 1)
    add("ib_atomic_lat", "-A", _kind, "-D", 1)
    add("ib_atomic_bw", "-A", _kind, "-e", "-n", 1000)
    add("ib_atomic_lat", "-A", _kind, "-e", "-n", 1000)
    add("ib_atomic_bw", "-A", _kind, "-n", 1000, "--use_old_post_send")
    add("ib_atomic_lat", "-A", _kind, "-n", 1000, "--use_old_post_send")
add("ib_atomic_bw", "-n", 5)
add("ib_atomic_lat", "-n", 5)
add("ib_atomic_bw", "-b", "-n", 1000)
add("ib_atomic_bw", "-b", "-q", 16, "-n", 200)
add("ib_atomic_bw", "-n", 1000, "-l", 10)
add("ib_atomic_bw", "-n", 1000, "-Q", 1)
add("ib_atomic_bw", "-n", 1000, "-t", 1)
add("ib_atomic_bw", "-n", 1000, env={"UIW_CRC": "on"})
add("ib_atomic_bw", "-n", 1000, env={"UIW_COMPLETION": "remote"})

if __name__ == "__main__":
    sys.exit(harness.main())
