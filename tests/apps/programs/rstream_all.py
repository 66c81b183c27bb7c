# SPDX-License-Identifier: MIT
"""rstream -S all: latency and bandwidth of 33 sizes from 64 bytes to 6 MiB, each way."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


@row("rstream -S all")
def every_size(bench):
    port = bench.port()
    server, client = bench.pair(["rstream", "-b", "127.0.0.1", "-p", port, "-S", "all"],
                                ["rstream", "-s", "127.0.0.1", "-p", port, "-S", "all"], port, timeout=170)
    for process in (server, client):
        for kind in ("lat", "bw"):
            lines = re.findall(rf"^\S+_{kind}\s", process.stdout, re.M)
            check(len(lines) == 33, f"{len(lines)} sizes of {kind}, not 33: {process.name()}")


if __name__ == "__main__":
    sys.exit(harness.main())
