# SPDX-License-Identifier: MIT
"""uiw bench leaves nothing behind when it is interrupted or killed: no process, and so no network namespace."""

import pathlib
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, need_program, row
from support.machine import wait_until


def start(bench):
    """Until it has measured a pair, so that it has made its namespaces, and measures the next."""
    need_program("ib_send_bw", "iperf3", "sockperf")
    process = bench.start([bench.uiw, "bench", "--runs", 3], uiw=False)
    process.wait_output("^pair 1 of 3: ", 40)
    wait_until(lambda: len(process.family()) > 1, 10, "a program that it runs")
    return process


@row("SIGINT: it ends what it started, says so, and ends by SIGINT")
def interrupted(bench):
    process = start(bench)
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


if __name__ == "__main__":
    sys.exit(harness.main())
