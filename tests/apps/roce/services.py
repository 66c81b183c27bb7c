# SPDX-License-Identifier: MIT
"""rdma_cm's port space UDP in the RoCE view: services of datagrams are found, and answer or reject."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, machine, perftest
from support.harness import add_row, check, row

UDADDY = 7174  # the port that udaddy has, always
UNREACHABLE = "RDMA_CM_EVENT_UNREACHABLE, error: 1"


def udaddy(bench, *options, server=("udaddy",), client=("udaddy", "-s", "127.0.0.1"), **more):
    first = bench.start([*server, *options], **more)
    machine.wait_until(lambda: machine.receiving(UDADDY, first.pid) or not first.running(), 10, "udaddy's port")
    second = bench.run([*client, *options], timeout=40, **more)
    check(first.wait(10) == 0, f"the server ended with {first.status()}")
    for process in (first, second):
        check("data transfers complete" in process.output, f"no data transfers: {process.name()}")


for _words in ((), ("-c", "10", "-C", "100"), ("-C", "1000", "-S", "4096"), ("-c", "3", "-C", "5", "-S", "1")):
    add_row(" ".join(("udaddy", *_words)), lambda bench, words=_words: udaddy(bench, *words))
add_row("udaddy, IPv6", lambda bench: udaddy(bench, server=("udaddy", "-b", "::1", "-f", "ipv6"),
                                             client=("udaddy", "-s", "::1", "-f", "ipv6")))
add_row("udaddy, the server at one address", lambda bench: udaddy(bench, server=("udaddy", "-b", "127.0.0.1")))


@row("udaddy without a server: unreachable at once")
def nobody(bench):
    client = bench.run(["udaddy", "-s", "127.0.0.1"], status=None, timeout=10)
    check(client.status() > 0 and UNREACHABLE in client.output, f"{client.status()}: {client.output}")


@row("the iWARP view has no datagrams: udaddy is refused")
def iwarp(bench):
    client = bench.run(["udaddy", "-s", "127.0.0.1"], status=None, timeout=20, env={"UIW_TRANSPORT": "iwarp"})
    check(client.status() > 0, "udaddy gets a queue pair for datagrams")


for _program in ("ib_send_bw", "ib_send_lat"):
    for _words in (("-n", 1000), ("-n", 1000, "-s", 1), ("-n", 100, "-e")):
        add_row(" ".join(str(word) for word in (_program, "-c", "UD", "-R", *_words)),
                lambda bench, program=_program, words=_words: perftest.one(
                    bench, program, "-c", "UD", *words))

if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
