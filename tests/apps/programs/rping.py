# SPDX-License-Identifier: MIT
"""rping: rdma_cm, Send, RDMA Read and RDMA Write, with the data compared by the client (-V).

rping 44 takes -S up to 65535; it refuses 65536 itself, on any adapter. The server places pings in a buffer of its own
-S, so it is given the largest.
"""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row


def talk(bench, family=4, server=(), client=(), **more):
    first, second = pings.pair(bench, *client, server_options=server, host="127.0.0.1" if family == 4 else "::1", **more)
    check("mismatch" not in second.output, "the client read other data than it sent")
    for process in (first, second):
        check("completion failed" not in process.output, f"a completion failed: {process.name()}")
    return first, second


row("-C 1000 -S 65535 -V, IPv4")(lambda bench: talk(bench, 4, client=("-C", 1000, "-S", 65535, "-V")))
row("-C 1000 -S 65535 -V, IPv6")(lambda bench: talk(bench, 6, client=("-C", 1000, "-S", 65535, "-V")))
row("remote completion")(
    lambda bench: talk(bench, 4, client=("-C", 1000, "-S", 65535, "-V"), env={"UIW_COMPLETION": "remote"}))
row("-q: a QP that the program itself brings to RTS")(
    lambda bench: talk(bench, 4, server=("-q",), client=("-q", "-C", 50, "-S", 1000, "-V")))


@row("every size from 64 to 4096 in steps of 61, -V")
def sizes(bench):
    server, port = pings.serve(bench, "-P")
    for size in range(64, 4097, 61):
        client = bench.run(pings.client(port, "-C", 3, "-S", size, "-V"), timeout=20)
        check("mismatch" not in client.output, f"size {size}: other data")
    check(server.running(), "the server ended")


@row("wildcard server on [::] serves IPv4 and IPv6 clients")
def wildcard(bench):
    _, port = pings.serve(bench, "-P", host="::")
    for address in ("127.0.0.1", "::1"):
        bench.run(pings.client(port, "-C", 20, "-S", 2000, "-V", host=address), timeout=20)


@row("-I: the client chooses its source address")
def source(bench):
    talk(bench, 4, client=("-I", "127.0.0.1", "-C", 10, "-V"))


@row("-P: one server, eight clients in turn and eight at a time")
def persistent(bench):
    server, port = pings.serve(bench, "-P")
    for _ in range(8):
        bench.run(pings.client(port, "-S", 4096, "-V", "-C", 10), timeout=20)
    clients = [pings.start_client(bench, port, "-S", 4096, "-V", "-C", 3000) for _ in range(8)]
    for client in clients:
        client.succeed(30)
        check("mismatch" not in client.output, "other data")
    check(server.running(), "the server ended")
    harness.wait_until(lambda: server.stderr.count("DISCONNECT EVENT") == 16, 5, "one DISCONNECTED for each of 16")


@row("-d -v: the debug output names each step")
def debug(bench):
    server, client = talk(bench, 4, server=("-d", "-v"), client=("-d", "-v", "-C", 3, "-V"))
    for word in ("RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ROUTE_RESOLVED", "ESTABLISHED", "send completion",
                 "recv completion"):
        check(word in client.output, f"the client does not tell of {word}")
    for word in ("RDMA_CM_EVENT_CONNECT_REQUEST", "ESTABLISHED", "rdma read completion", "rdma write completion",
                 "DISCONNECT"):
        check(word in server.output, f"the server does not tell of {word}")
    check(client.output.count("ping data: rdma-ping-") == 3, "not three pings shown")


@row("no listener: refused at once, with an event")
def refused(bench):
    client = bench.run(pings.client(bench.port(), "-C", 1), status=None, timeout=15)
    check(client.status() != 0, "a connection to nobody succeeds")
    check(re.search("RDMA_CM_EVENT_(REJECTED|UNREACHABLE|CONNECT_ERROR)", client.output), "no event says so")


if __name__ == "__main__":
    sys.exit(harness.main())
