# SPDX-License-Identifier: MIT
"""ucmatose, cmtime, rdma_server and rdma_client, rdma_xserver and rdma_xclient: connection management."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


def ucmatose(bench, *options, address="127.0.0.1", timeout=15):
    port = bench.port()
    first, second = bench.pair(["ucmatose", "-b", address, "-p", port, *options],
                               ["ucmatose", "-s", address, "-p", port, *options], port, timeout=timeout)
    for process in (first, second):
        check("test complete" in process.stdout and "return status 0" in process.stdout,
              f"not complete: {process.name()}")


row("ucmatose")(ucmatose)
row("ucmatose, IPv6")(lambda bench: ucmatose(bench, address="::1"))
row("ucmatose -c 100 -C 100 -S 65536")(lambda bench: ucmatose(bench, "-c", 100, "-C", 100, "-S", 65536, timeout=20))
row("ucmatose -c 500 -C 0: many connections, no data")(lambda bench: ucmatose(bench, "-c", 500, "-C", 0, timeout=20))
row("ucmatose -m: ids migrate to another channel")(lambda bench: ucmatose(bench, "-m", "-c", 4))


@row("ucmatose -t and -a: options of an id")
def id_options(bench):
    port = bench.port()
    _, client = bench.pair(["ucmatose", "-b", "127.0.0.1", "-p", port],
                           ["ucmatose", "-s", "127.0.0.1", "-p", port, "-t", "0x20"], port)
    check("option failed" not in client.output, "rdma_set_option failed")


@row("ucmatose: server on the wildcard, client with a source address")
def bound(bench):
    port = bench.port()
    bench.pair(["ucmatose", "-p", port], ["ucmatose", "-s", "127.0.0.1", "-b", "127.0.0.1", "-p", port], port)


@row("cmtime -c 1000: so many callers at once, and none is refused")
def cmtime(bench):
    port = bench.port()
    _, client = bench.pair(["cmtime", "-b", "127.0.0.1", "-p", port],
                           ["cmtime", "-s", "127.0.0.1", "-p", port, "-c", 1000], port, server_ends=False)
    for step in ("create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"):
        line = re.search(rf"^{step}\s*:\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", client.stdout, re.M)
        check(line, f"no line for {step}")
        check(float(line[3]) < 999999999, f"no connection came past {step}")
    check("event:" not in client.stdout and "error" not in client.output, "an event tells of an error")


def ep_pair(bench, server, client, *options, address="127.0.0.1", bind=True):
    port = bench.port()
    listen = [server, "-p", port, *options] + (["-s", address] if bind else [])
    first, second = bench.pair(listen, [client, "-s", address, "-p", port, *options], port)
    for process in (first, second):
        check(re.search(r": end 0$", process.stdout, re.M), f"did not end with 0: {process.name()}")


row("rdma_server and rdma_client")(lambda bench: ep_pair(bench, "rdma_server", "rdma_client"))
row("rdma_server and rdma_client, IPv6")(lambda bench: ep_pair(bench, "rdma_server", "rdma_client", address="::1"))
row("rdma_server and rdma_client, twenty times on one port")(
    lambda bench: [ep_again(bench, port) for port in [bench.port()] for _ in range(20)])
row("rdma_xserver and rdma_xclient")(lambda bench: ep_pair(bench, "rdma_xserver", "rdma_xclient", bind=False))
row("rdma_xserver and rdma_xclient, -c r")(
    lambda bench: ep_pair(bench, "rdma_xserver", "rdma_xclient", "-c", "r", bind=False))


def ep_again(bench, port):
    bench.pair(["rdma_server", "-p", port], ["rdma_client", "-s", "127.0.0.1", "-p", port], port, timeout=20)


CLEAR = ("Operation not supported|Function not implemented|Protocol not supported|Invalid argument|"
         "Protocol not available|Cannot assign requested address|Address family not supported")


@row("rdma_xclient -c x: XRC is refused with a clear errno")
def xrc(bench):
    port = bench.port()
    client = bench.run(["rdma_xclient", "-s", "127.0.0.1", "-p", port, "-c", "x"], status=None, timeout=20)
    check(client.status() > 0, "the client does not fail")
    check(re.search(rf"rdma_\w+: ({CLEAR})", client.output), "the client names no clear errno")


if __name__ == "__main__":
    sys.exit(harness.main())
