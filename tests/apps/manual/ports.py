# SPDX-License-Identifier: MIT
"""UIW_PORT_RANGE confines the ports of manual connections; queue pairs connected without rdma_cm and fork."""

import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness
from support.harness import check, row


def said_ports(process):
    return {int(port) for line in re.findall(r"^ports:(.*)", process.stdout, re.M) for port in line.split()}


def text_of(ports):
    return f"{ports[0]}-{ports[-1]}"


@row("exhausted: 256 queue pairs a port, ENOMEM beyond, one more after one is destroyed", counts=(1, 3))
def exhausted(bench, counts):
    for count in counts:
        ports = bench.ports_in_a_row(count)
        ended = cases.run(bench, "uiw_ports", "exhausted", env={"UIW_PORT_RANGE": text_of(ports)})
        check(said_ports(ended) == set(ports), f"{said_ports(ended)}, not {ports}")
        check(f"queue pairs: {256 * count}\n" in ended.stdout, "another number of queue pairs")


@row("two processes share a range; a third finds no port until one of them has ended")
def shared(bench):
    ports = bench.ports_in_a_row(2)
    words = [bench.helper("uiw_ports"), "127.0.0.1", bench.port(), "hold"]
    more = {"options": ("--port-range", text_of(ports)), "stdin": subprocess.PIPE}
    first, second = bench.start(words, **more), bench.start(words, **more)
    for process in (first, second):
        process.wait_output("^ports: ")
    check(said_ports(first) | said_ports(second) == set(ports), "they do not share the range")
    for port in ports:
        check(harness.listening(port), f"nobody listens on {port}")
    third = bench.run(words, status=1, **more)
    check("ibv_create_qp: Cannot allocate memory" in third.stderr, "it does not say what has failed")
    first.popen.stdin.close()
    first.succeed(20)
    port = said_ports(first).pop()
    check(not harness.listening(port), f"{port} is still in LISTEN")
    fourth = bench.start(words, **more)
    fourth.wait_output("^ports: ")
    check(said_ports(fourth) == {port}, "it has another port")
    for process in (second, fourth):
        process.popen.stdin.close()
        process.succeed(20)


@row("after the program has ended no port of the range is held")
def nothing_held(bench):
    ports = bench.ports_in_a_row(1)
    for _ in range(5):
        cases.run(bench, "uiw_ports", "exhausted", env={"UIW_PORT_RANGE": text_of(ports)})


@row("a value that is no range is refused, by the option and by the variable")
def refused(bench):
    for value in ("1", "1024", "1023-2000", "2000-1999", "2000-65536", "2000-", "-2000", "a-b", "2000-2001,3000-3001",
                  " 2000-2001", "2000-0x1000", "2000--2001"):
        by_option = bench.run(["true"], status=None, options=(f"--port-range={value}",))
        check(by_option.status() not in (0, None), f"--port-range={value} is taken")
        ended = bench.run([bench.helper("uiw_ports"), "127.0.0.1", bench.port(), "exhausted"], status=None,
                          env={"UIW_PORT_RANGE": value})
        check(ended.status() != 0 and "UIW_PORT_RANGE" in ended.stderr, f"UIW_PORT_RANGE={value} is taken")


for _name in ("fork_exit", "fork_exec", "fork_use", "fork_connect", "fork_busy"):
    row(_name, program="uiw_ports", name=_name)(cases.run)


@row("fork: the child outlives its parent; no process listens on the parent's port any more")
def outlive(bench):
    process = bench.start([bench.helper("uiw_ports"), "127.0.0.1", bench.port(), "fork_outlive"], stdin=subprocess.PIPE)
    process.wait_output("^child lives")
    process.wait_output("^parent has ended")
    for port in said_ports(process):
        check(not harness.listening(port), f"{port} is still in LISTEN")
    process.popen.stdin.close()
    process.succeed(20)


if __name__ == "__main__":
    sys.exit(harness.main())
