# SPDX-License-Identifier: MIT
"""Two hosts over a line with an MTU of 1500 that delays by 1 ms each way and loses one packet of a thousand: tc netem,
or lossy_line.py where the kernel has none."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check
from two_hosts import hosts


def lossy(bench, percent=0.1):
    left, right = bench.two_hosts()
    bench.introduce_hosts(left, right)
    netem = ["tc", "qdisc", "add", "dev", "v0", "root", "netem", "delay", "1ms", "loss", f"{percent:g}%", "limit", "20000"]
    if bench.command(left.wrap(netem), status=None).status() != 0:
        return lossy_without_netem(bench, percent)
    bench.command(right.wrap(netem))
    for side in (left, right):
        # What TSO sends as one would be lost as one: a wire's packets have 1500 octets.
        bench.command(side.wrap(["ip", "link", "set", "v0", "gso_max_size", "1514"]), status=None)
    shown = bench.command(left.wrap(["tc", "qdisc", "show", "dev", "v0"])).stdout
    check(f"loss {percent:g}%" in shown and "delay 1ms" in shown, f"not the line that was asked for: {shown}")
    return left, right


def lossy_without_netem(bench, percent):
    return line(bench, 0.001, percent / 100)


def line(bench, seconds, loss, **faults):
    """Two hosts joined by lossy_line.py."""
    left, right = bench.namespace("left"), bench.namespace("right")
    words = [f"{name}={value:g}" for name, value in faults.items()]
    carrier = bench.start([sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                              "lossy_line.py"), left.pid, right.pid, seconds, loss, *words],
                          uiw=False)
    try:
        carrier.wait_output("^ready")
    except harness.Failure as failure:
        raise harness.Skip(f"no TAP devices here: {failure}") from None
    bench.address_hosts(left, right)
    bench.introduce_hosts(left, right)
    return left, right


if __name__ == "__main__":
    hosts.rows(lossy, "1 ms, 0.1 % loss", 10)
    sys.exit(harness.main())
