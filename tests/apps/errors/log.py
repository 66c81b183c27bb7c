# SPDX-License-Identifier: MIT
"""The log says what became of devices, connections and calls, in one line each."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, pings
from support.harness import check, one_line, row

LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (\d+) uiw: (.+)$")


def read(path):
    """(process id, text) of each line."""
    lines = pathlib.Path(path).read_text().splitlines()
    found = [LINE.match(line) for line in lines]
    check(all(found), f"not a line of the log: {[line for line, one in zip(lines, found) if not one]}")
    return [one.groups() for one in found]


def said(lines, pattern):
    check(any(re.search(pattern, text) for _, text in lines), f"no line says '{pattern}': {lines}")


def rping(bench, *options, status=0):
    return pings.pair(bench, "-C", 3, options=options)


@row("a connection: opened, called, connected and how, ended; two processes, one file")
def connection(bench):
    path = os.path.join(bench.tmp, "log")
    rping(bench, "--log", path)
    lines = read(path)
    check(len({process for process, _ in lines}) == 2, "not two processes")
    said(lines, r"^device uiw_lo is opened: interface lo, iWARP view, version \d")
    said(lines, r"^queue pair 0x[0-9a-f]{6}: calls 127\.0\.0\.1:\d+$")
    said(lines, r"^call of 127\.0\.0\.1:\d+ arrives at 127\.0\.0\.1:\d+ \(MPA revision 2\)$")
    said(lines, r"^queue pair 0x[0-9a-f]{6}: connected to 127\.0\.0\.1:\d+ \(rdma_cm, calling; MPA revision 2, CRC off, "
                r"IRD \d+, ORD \d+; Sends and Writes complete when TCP has them; through shared memory\)$")
    said(lines, r"^queue pair 0x[0-9a-f]{6}: connected to .* \(rdma_cm, called; ")
    said(lines, r"^queue pair 0x[0-9a-f]{6}: its connection ends: the program disconnects$")


@row("each setting of a connection stands in the lines of both ends; by MPA revision 1 it goes through TCP")
def agreed(bench):
    path = os.path.join(bench.tmp, "log")
    rping(bench, "--log", path, "--crc", "on", "--mpa-revision", "1", "--completion", "remote")
    for end in "calling", "called":
        said(read(path), end + r"; MPA revision 1, CRC on, .* complete when the peer has placed them; through TCP\)$")


@row("connections that fail: who was called, and why it failed; by level `error` nothing else")
def failed(bench):
    path = os.path.join(bench.tmp, "log")
    port = bench.port()
    bench.run(pings.client(port), status=None, options=("--log", path, "--log-level", "error"))
    (_, text), = read(path)
    check(text == f"connection with 127.0.0.1:{port} failed: no process listens there", text)


@row("a Terminate in words, at both ends")
def terminate(bench):
    path = os.path.join(bench.tmp, "log")
    cases.run(bench, "uiw_bad_input", "remote_bounds_write", options=("--log", path, "--log-level", "error"))
    lines = read(path)
    said(lines, r"its connection ends: what has arrived is wrong: (RDMAP|DDP) error: base or bounds violation \(type 1, code 0x01\)$")
    said(lines, r"its connection ends: the peer has sent a Terminate: (RDMAP|DDP) error: base or bounds violation")


@row("calls that are refused, with their errors")
def refused(bench):
    path = os.path.join(bench.tmp, "log")
    bench.run([bench.helper("uiw_every_op")], timeout=30, options=("--log", path))
    said(read(path), r"^ibv_create_qp\(\) is refused: Operation not supported$")
    check("poll_cq" not in pathlib.Path(path).read_text(), "polls are logged")


@row("-: to standard error, unless the program has put another file in its place")
def standard_error(bench):
    run = bench.run(["ibv_devinfo"], options=("--log", "-"))
    check("uiw: device uiw_lo is opened" in run.stderr and "is opened" not in run.stdout, "not in standard error")
    path = os.path.join(bench.tmp, "its-own")
    run = bench.run(["sh", "-c", f"exec 2>{path}; exec ibv_devinfo"], options=("--log", "-"))
    check("is opened" in pathlib.Path(path).read_text(), "what execs is another program, whose standard error this is")


@row("a relative path is one of the directory where the program starts")
def relative(bench):
    bench.run(["ibv_devinfo"], options=("--log", "here.log"), cwd=bench.tmp)
    said(read(os.path.join(bench.tmp, "here.log")), "is opened")


@row("without a log there is no line, and no file that cannot be written is taken")
def none(bench):
    check("opened" not in bench.run(["ibv_devinfo"]).output, "there is a log that nobody wanted")
    run = bench.run(["true"], status=125, options=("--log", "/nonexistent/log"))
    one_line(run, "/nonexistent/log", "No such file or directory")
    run = bench.run(["ibv_devinfo"], uiw=False,
                    env={"LD_PRELOAD": bench.preload, "UIW_LOG": "/nonexistent/log", "UIW_MESSAGES": "on"})
    check(run.stderr.count("uiw: the log /nonexistent/log cannot be written: No such file or directory") == 1, run.stderr)


@row("a FIFO: without a reader the program runs, and its lines are lost; with one they come")
def fifo(bench):
    path = os.path.join(bench.tmp, "fifo")
    os.mkfifo(path)
    run = bench.run(["ibv_devinfo"], options=("--log", path))
    check(run.stderr.count(f"uiw: the log {path} cannot be written: nobody reads it") == 1, run.stderr)
    bench.run(["sh", "-c", f"exec 3<>{path}; {bench.uiw} run --log {path} ibv_devinfo >/dev/null; head -n 1 <&3 >heard"], uiw=False)
    said(read(os.path.join(bench.tmp, "heard")), "^device uiw_")


if __name__ == "__main__":
    sys.exit(harness.main())
