# SPDX-License-Identifier: MIT
"""RDMA Write and Send with immediate: a ring of messages of random sizes, with a receiver that stalls at random."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


def ring(bench, count, *options, timeout=60, **more):
    program, port = bench.helper("uiw_immediate_ring"), bench.port()
    ends = bench.pair([program, "server", "127.0.0.1", port, count, *options],
                      [program, "client", "127.0.0.1", port, count, *options], port, timeout=timeout, **more)
    for end in ends:
        check(f"immediate ring: {count} messages" in end.stdout, f"it did not finish: {end.name()}")


row("a million messages")(lambda bench: ring(bench, 1000000, timeout=100))
row("CRC on")(lambda bench: ring(bench, 50000, env={"UIW_CRC": "on"}))
row("small ULPDUs, CRC on")(lambda bench: ring(bench, 20000, env={"UIW_CRC": "on", "UIW_MULPDU": "256"}))
row("large messages")(lambda bench: ring(bench, 20000, "--largest", 524288))
row("without stalls")(lambda bench: ring(bench, 100000, "--calm"))
row("a receiver that sleeps on its completion channel")(lambda bench: ring(bench, 50000, "--events"))
row("remote completion")(lambda bench: ring(bench, 50000, env={"UIW_COMPLETION": "remote"}))
row("MPA revision 1")(lambda bench: ring(bench, 20000, env={"UIW_MPA_REVISION": "1"}))
row("Sends: 300000 messages")(lambda bench: ring(bench, 300000, "--sends", timeout=100))
row("Sends: small ULPDUs, CRC on")(
    lambda bench: ring(bench, 20000, "--sends", env={"UIW_CRC": "on", "UIW_MULPDU": "256"}))
row("Sends: large messages")(lambda bench: ring(bench, 10000, "--sends", "--largest", 200000))
row("Sends: without stalls")(lambda bench: ring(bench, 50000, "--sends", "--calm"))
row("Sends: a receiver that sleeps on its completion channel")(lambda bench: ring(bench, 30000, "--sends", "--events"))

if __name__ == "__main__":
    sys.exit(harness.main())
