# SPDX-License-Identifier: MIT
"""Two hosts: network namespaces joined by veth with an MTU of 1500. hosts_loss.py runs the same rows over a line
that delays by 1 ms and loses 0.1 %."""

import hashlib
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.harness import check


def copied(bench, left, right, size, timeout):
    """A file of this size goes from the right host to the left one by rcopy."""
    source, sink = os.path.join(bench.tmp, "source"), os.path.join(bench.tmp, "sink")
    content = os.urandom(size)
    with open(source, "wb") as file:
        file.write(content)
    port = bench.port()
    bench.pair(["rcopy", "-p", port], ["rcopy", source, f"10.77.0.1:{sink}", "-p", port], port, timeout=timeout,
               server_ends=False, server_more=left, client_more=right)
    with open(sink, "rb") as file:
        check(hashlib.file_digest(file, "sha256").digest() == hashlib.sha256(content).digest(), "the copy differs")


def rows(line, title, scale):
    """line(bench) -> (left, right); scale divides the work."""

    def add(name, function):
        def run(bench):
            left, right = line(bench)
            function(bench, {"namespace": left}, {"namespace": right})

        harness.add_row(f"{name}, {title}", run)

    def devices(bench, left, right):
        for side, address in ((left, "10.77.0.1"), (right, "10.77.0.2")):
            text = bench.run(["ibv_devinfo", "-v"], **side).stdout
            check("uiw_v0" in text and "active_mtu:\t\t1024" in text, "no uiw_v0 with an active MTU of 1024")
            last = address.rsplit(".", 1)[1]
            check(f"::ffff:{address}" in text or f"0000:0000:0000:0000:0000:ffff:0a4d:000{last}" in text,
                  f"no GID of {address}")

    def rping(bench, left, right, address):
        pings.pair(bench, "-C", 1000 // scale, "-S", 65535, "-V", host=address, timeout=30, server_more=left,
                   client_more=right)

    def ucmatose(bench, left, right):
        port = bench.port()
        options = ["-p", port, "-c", 20, "-C", 50, "-S", 20000]
        bench.pair(["ucmatose", *options], ["ucmatose", "-s", "10.77.0.1", *options], port, timeout=30,
                   server_more=left, client_more=right)

    def rstream(bench, left, right, address):
        port = bench.port()
        options = ["-p", port, "-S", 65536, "-C", 1000 // scale, "-T", "v", "-T", "b"]
        bench.pair(["rstream", "-b", address, *options], ["rstream", "-s", address, *options], port, timeout=30,
                   server_more=left, client_more=right)

    def perf(bench, left, right, program, options):
        perftest.one(bench, program, *options, address="10.77.0.1", timeout=30, server_more=left,
                     client_more=right)

    def patterns(bench, left, right):
        program, port = bench.helper("uiw_patterns"), bench.port()
        bench.pair([program, "server", "10.77.0.1", port, "--brief"],
                   [program, "client", "10.77.0.1", port, "--brief"], port, timeout=40, server_more=left,
                   client_more=right)

    add("ibv_devinfo", devices)
    add("rping", lambda *a: rping(*a, "10.77.0.1"))
    add("rping, IPv6", lambda *a: rping(*a, "fd77::1"))
    add("ucmatose", ucmatose)
    add("rcopy", lambda *a: copied(*a, 40_000_000 // scale, 30))
    add("rstream", lambda *a: rstream(*a, "10.77.0.1"))
    add("rstream, IPv6", lambda *a: rstream(*a, "fd77::1"))
    for verb in ("send", "write", "read"):
        for options in (("-s", 65536, "-n", 1000 // scale), ("-s", 65536, "-b", "-q", 4, "-n", 500 // scale),
                        ("-s", 1048576, "-n", 100 // scale)):
            add(f"ib_{verb}_bw -R {' '.join(map(str, options))}",
                lambda *a, v=verb, o=options: perf(*a, f"ib_{v}_bw", o))
        add(f"ib_{verb}_lat -R", lambda *a, v=verb: perf(*a, f"ib_{v}_lat", ("-n", 1000 // scale)))
    add("patterns", patterns)


def removal(bench):
    left, right = bench.two_hosts()
    server, _ = pings.serve(bench, host="10.77.0.1", namespace=left)
    asyncwatch = bench.start(["stdbuf", "-oL", "ibv_asyncwatch", "-d", "uiw_v0"], namespace=left)
    asyncwatch.wait_output("async event")
    left.ip("link", "del", "v0")
    server.wait_output("device removal")
    check(server.wait(10) != 0, "rping takes the loss of its device for success")


if __name__ == "__main__":
    harness.add_row("the interface goes away: DEVICE_REMOVAL", removal)
    rows(lambda bench: bench.two_hosts(), "MTU 1500", 1)
    sys.exit(harness.main())
