# SPDX-License-Identifier: MIT
"""Atomic operations of many connections on one word, against each other and against threads and processes of the
target: no addition is lost, and a lock that is built on compare-and-swap excludes."""

import pathlib
import re
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row

PROCESSES = 8
CONNECTIONS = 3  # of each process


def account(process):
    """(adds, sum, rounds) of each line that the process has printed, added up."""
    lines = re.findall(r"^\w+: (\d+) adds, sum (\d+), (\d+) rounds$", process.stdout, re.M)
    check(lines, f"no result of {process.name()}")
    return [sum(column) for column in zip(*([int(word) for word in line] for line in lines))]


def hammer(bench, adds, rounds, processes=PROCESSES, connections=CONNECTIONS, outstanding=16, env=None, timeout=100):
    program, port, file = bench.helper("uiw_counters"), bench.port(), f"{bench.tmp}/memory"
    server = bench.start([program, "server", "127.0.0.1", port, file, processes * connections], env=env)
    server.wait_listen(port)
    # Maps the server's memory; knows nothing of RDMA.
    local = bench.start([program, "local", file], uiw=False)
    clients = [bench.start([program, "client", "127.0.0.1", port, connections, adds, rounds, outstanding], env=env)
               for _ in range(processes)]
    end = time.monotonic() + timeout
    for process in (*clients, server, local):
        process.succeed(max(1, end - time.monotonic()))
    remote, thread = re.findall(r"^(?:remote|thread): (\d+) adds, sum \d+, (\d+) rounds", server.stdout, re.M)
    check(int(remote[0]) == processes * connections * adds, f"{remote[0]} remote additions")
    check(int(remote[1]) == processes * connections * rounds, f"{remote[1]} remote rounds with the lock")
    check(int(thread[0]) > 0 and account(local)[0] > 0, "the local ones did nothing")
    total, seen, guarded = (sum(pair) for pair in zip(account(server), account(local)))
    shown = bench.run([program, "show", file], uiw=False).stdout
    counter, kept, lock = (int(word) for word in re.findall(r"\d+", shown))
    check(counter == total, f"{total} additions, and the counter says {counter}")
    check(seen == total * (total - 1) // 2 % (1 << 64), "a number was seen by two additions, or by none")
    check(kept == guarded, f"{guarded} rounds with the lock, and the number it guards says {kept}")
    check(lock == 0, "the lock is still held")


@row("fetch-and-add: 8 processes on 3 connections each, a thread and a process with C11 atomics")
def additions(bench):
    hammer(bench, 40000, 0)


row("one at a time")(lambda bench: hammer(bench, 2000, 0, outstanding=1))
row("CRC on")(lambda bench: hammer(bench, 5000, 0, env={"UIW_CRC": "on"}))


@row("a lock built on compare-and-swap excludes, remote and local holders")
def lock(bench):
    hammer(bench, 0, 200)


row("both at once")(lambda bench: hammer(bench, 2000, 10))

if __name__ == "__main__":
    sys.exit(harness.main())
