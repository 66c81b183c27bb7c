# SPDX-License-Identifier: MIT
"""gdb and strace on programs under uiw, started by them or attached to."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row
from support.processes import rping_ended_late


def call(port, count=20):
    return pings.client(port, "-C", count, "-S", 3000, "-V")


GDB = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "set pagination off"]


@row("gdb: break in a program that it starts under uiw, then go on to the end")
def gdb_start(bench):
    harness.need_program("gdb")
    peer, port = pings.serve(bench)
    run = bench.run([*GDB, "-ex", "set breakpoint pending on", "-ex", "break rdma_connect", "-ex", "run", "-ex", "bt",
                     "-ex", "delete", "-ex", "continue", "--args", *call(port)], status=None, timeout=30)
    if "ptrace: Operation not permitted" in run.output:
        raise harness.Skip("ptrace is not permitted here")
    check(re.search(r"^(Thread \d+ .*hit )?Breakpoint 1", run.stdout, re.M), "the breakpoint was not reached")
    check(re.search(r"#0 .*rdma_connect", run.stdout), "no backtrace")
    late = "exited with code 0377" in run.stdout and rping_ended_late(run.stderr)
    check("exited normally" in run.stdout or late, "the program did not end normally under gdb")
    peer.succeed(15)


@row("gdb: attach to a server, look at all threads, detach; the server serves on")
def gdb_attach(bench):
    harness.need_program("gdb")
    peer, port = pings.serve(bench, "-P")
    bench.run(call(port))
    shown = bench.command([*GDB, "-p", peer.pid, "-ex", "thread apply all bt 5", "-ex", "detach"], timeout=30,
                          status=None)
    if "Operation not permitted" in shown.output:
        raise harness.Skip("ptrace is not permitted here")
    check(re.search(r'"?uiw-', shown.stdout), "no thread of uiw's by its name")
    bench.run(call(port))
    check(peer.running(), "the server ended")


@row("strace -f: a program under uiw ends well, and so does uiw run itself")
def strace(bench):
    harness.need_program("strace")
    for under in (True, False):
        peer, port = pings.serve(bench)
        trace = os.path.join(bench.tmp, f"trace{under}")
        words = ["strace", "-f", "-o", trace]
        if under:  # strace is the program that uiw runs
            run = bench.run([*words, *call(port, 5)], timeout=30, status=None)
        else:  # strace runs uiw
            run = bench.run(call(port, 5), wrap=words, timeout=30, status=None)
        if "Operation not permitted" in run.output:
            raise harness.Skip("ptrace is not permitted here")
        check(run.status() == 0, f"ended with {harness.describe(run.status())}: {run.name()}")
        with open(trace, errors="replace") as text:
            check(re.search("exited with (0|255) ", text.read()), "the trace has no end")  # 255: rping_ended_late()
        peer.succeed(15)


@row("strace -p: attach to a server during transfers, and detach")
def strace_attach(bench):
    harness.need_program("strace")
    peer, port = pings.serve(bench, "-P")
    client = bench.start(call(port, 3000))
    trace = os.path.join(bench.tmp, "trace")
    tracer = bench.start(["strace", "-f", "-o", trace, "-p", peer.pid], uiw=False)
    if not harness.wait_until(lambda: "attached" in tracer.stderr or not tracer.running(), 20, "strace attached") \
            or not tracer.running():
        raise harness.Skip("strace cannot attach: " + tracer.stderr.strip())
    harness.wait_until(lambda: os.path.getsize(trace) > 10000 or not client.running(), 20, "a trace of the talk")
    tracer.kill(harness.signal.SIGINT)
    tracer.wait(20)
    client.succeed(30)
    check(peer.running(), "the server ended")


@row("ltrace-like auditing: LD_DEBUG and LD_BIND_NOW")
def loader(bench):
    bench.run(["ibv_devinfo"], env={"LD_BIND_NOW": "1"})
    debug = bench.run(["ibv_devices"], env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": os.path.join(bench.tmp, "ld")})
    check("uiw_" in debug.stdout, "no device")


if __name__ == "__main__":
    sys.exit(harness.main())
