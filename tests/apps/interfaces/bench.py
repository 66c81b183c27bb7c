# SPDX-License-Identifier: MIT
"""uiw bench leaves nothing behind when it is interrupted or killed: no process, and so no network namespace. The
program that it has for servers answers in each of its ways, and says why where it cannot."""

import os
import pathlib
import re
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import Skip, check, need_program, row
from support.machine import wait_until


def start(bench, rows="basic"):
    """Until it has measured a pair, so that it has made its namespaces, and measures the next."""
    need_program("ib_send_bw", "iperf3", "sockperf")
    process = bench.start([bench.uiw, "bench", "--runs", 3, "--rows", rows], uiw=False)
    process.wait_output("^pair 1 of 3: ", 40)
    wait_until(lambda: len(process.family()) > 1, 10, "a program that it runs")
    return process


@row("SIGINT: it ends what it started, says so, and ends by SIGINT")
def interrupted(bench, rows="basic"):
    process = start(bench, rows)
    process.kill(signal.SIGINT)
    status = process.wait(10)
    check(status == -signal.SIGINT, f"ended with {harness.describe(status)}")
    check(not process.family(), f"still there: {process.family()}")
    check("interrupted; all programs it started have ended" in process.stderr, "it does not say so")
    check(process.stdout == "", "a table of what was not measured")


@row("SIGKILL: what it started ends too")
def killed(bench):
    process = start(bench)
    process.kill(signal.SIGKILL)
    process.wait(10)
    wait_until(lambda: not process.family(), 3, "nothing is left")


row("SIGINT among the rows of a server, of which both ends are processes: the same")(
    lambda bench: interrupted(bench, "server"))


def requests(bench, kind, size, clients, status=0, address="127.0.0.1", **more):
    program = os.path.join(os.path.dirname(bench.uiw), "uiw-requests")
    process = bench.run([program, kind, address, size, clients, 1], status=status, uiw=kind != "tcp", **more)
    check(not process.family(), f"still there: {process.family()}")
    return process.stdout


for kind, size, clients in (("events", 64, 3), ("events", 65536, 3), ("writes", 4096, 1), ("pinned", 131072, 1)):
    for stream in ("auto", "tcp"):
        @row(f"uiw-requests {kind} {size} {clients}, --same-host {stream}")
        def over_rdma(bench, kind=kind, size=size, clients=clients, stream=stream):
            if kind == "pinned" and len(os.sched_getaffinity(0)) < 2:
                raise Skip("there is one processor only")
            text = requests(bench, kind, size, clients, options=("--same-host", stream))
            check(re.fullmatch(r"[\d.]+ answers a second, [\d.]+ us of processor time each\n", text), text)


@row("uiw-requests tcp: messages that need several calls each")
def over_tcp(bench):
    text = requests(bench, "tcp", 10_000_000, 2)
    check(re.fullmatch(r"[\d.]+ answers a second, [\d.]+ us of processor time each\n", text), text)


@row("uiw-requests: an end that cannot work ends all at once, and says why")
def no_address(bench):
    text = requests(bench, "events", 64, 1, status=1, address="192.0.2.77")
    check(text == "rdma_bind_addr: Cannot assign requested address\n", text)


if __name__ == "__main__":
    sys.exit(harness.main())
