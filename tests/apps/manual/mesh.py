# SPDX-License-Identifier: MIT
"""Full meshes of queue pairs connected without rdma_cm: tokens go around, and nothing stays behind."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

MOST = 200  # processes
MIB_EACH = 16  # of memory, that a process of such a mesh may take with its sockets


def affordable():
    with open("/proc/meminfo") as lines:
        available = int(re.search(r"^MemAvailable: *(\d+) kB", lines.read(), re.M).group(1))
    return max(2, min(MOST, available // 1024 // MIB_EACH))


def names(pid="self"):
    """The names by which processes of its network namespace hold ports."""
    with open(f"/proc/{pid}/net/unix") as lines:
        return set(re.findall(r"@uiw-port-(\d+)$", lines.read(), re.M))


def run(bench, *words, address="127.0.0.1", timeout=60, namespace=None, **more):
    ended = bench.run([bench.helper("uiw_mesh"), address, *words], timeout=timeout, namespace=namespace, **more)
    check("as documented" in ended.stdout, "it did not finish")
    pid = namespace.pid if namespace else "self"
    ports = [int(port) for line in re.findall(r"^ports:(.*)", ended.stdout, re.M) for port in line.split()]
    still = [port for port in ports if harness.listening(port, pid) or str(port) in names(pid)]
    check(not still, f"ports that are still held: {still}")
    return ports


def mesh(bench, processes, laps, **more):
    ports = run(bench, "mesh", processes, laps, **more)
    # One for each 256 queue pairs of a process.
    check(len(ports) == processes * ((processes + 255) // 256), f"{len(ports)} ports")


def large(bench, most, **more):
    # Tens of thousands of connections are in TIME_WAIT afterwards: where nobody else minds, if that can be had.
    mesh(bench, min(most, affordable()), 2, timeout=150, namespace=bench.namespace() if os.geteuid() == 0 else None, **more)


add_row(f"{MOST} processes, or as many as memory allows, each connected to each by TCP",
        lambda bench: large(bench, MOST, options=("--same-host", "tcp")))
# A connection through shared memory takes two processors a quarter of a millisecond more.
add_row(f"{MOST // 2} processes, each connected to each through shared memory", lambda bench: large(bench, MOST // 2))

add_row("2 processes", lambda bench: mesh(bench, 2, 1000))
add_row("3 processes, IPv6", lambda bench: mesh(bench, 3, 500, address="::1"))
for _view in ("iwarp", "roce"):
    for _rule in ("local", "remote"):
        add_row(f"24 processes, --transport {_view} --completion {_rule}",
                lambda bench, v=_view, r=_rule: mesh(bench, 24, 20,
                                                     options=("--transport", v, "--completion", r)))
add_row("24 processes, CRC on", lambda bench: mesh(bench, 24, 20, options=("--crc", "on")))
add_row("one process, 576 queue pairs to each other and to themselves, 40 times: memory and descriptors",
        lambda bench: run(bench, "rounds", 24, 40))
add_row("one process, 4 queue pairs, 1000 times: memory and descriptors",
        lambda bench: run(bench, "rounds", 2, 1000, address="::1"))


if __name__ == "__main__":
    sys.exit(harness.main())
