# SPDX-License-Identifier: MIT
"""perftest: what the tests of ib_{send,write,read,atomic}_{bw,lat} share. Not a test itself."""

import re

from support import harness
from support.harness import check


# What rdma_cm says where nobody listens: of a connection in the iWARP and the RoCE view, and of a service of datagrams.
TOO_SOON = "RDMA_CM_EVENT_(REJECTED; error: (-111|8)|UNREACHABLE; error: 1)[.]"


def called_too_soon(client):
    """Whether the client failed as perftest 4.5 does on any adapter when its server is not quick enough.

    perftest makes two connections, and does not wait until its server listens for the second. A client that is refused
    tries again with ids that it has just destroyed; what comes of that is chance.
    """
    return (client.status() not in (None, 0) and re.search(TOO_SOON, client.output)
            and "Failed to connect RDMA CM events" in client.output)


def patient(bench, attempt):
    """attempt() again, up to three times, if it fails because a client of perftest's called too soon."""
    for last in (False, False, True):
        before = len(bench.processes)
        try:
            return attempt()
        except harness.Failure:
            fresh = bench.processes[before:]
            for process in fresh:
                process.may_die = process.may_die or called_too_soon(process)
            if last or not any(called_too_soon(process) for process in fresh):
                raise
            for process in fresh:
                process.end()
            print(f"note  perftest called too soon, once more: {fresh[-1].name()}", flush=True)
    return None


# Over iWARP ib_send_bw keeps memory for its receiver's credits. perftest 4.5 gives it back with -R alone: without it
# ibv_dealloc_pd rightly fails at the end, and with it the program, on any adapter.
KEEPS_CREDITS = "Failed to deallocate PD - .*\nCouldn't destroy all SEND resources\n"


def talk(bench, program, *options, address="127.0.0.1", way=("-R",), keeps_credits=False, timeout=20, **more):
    """Runs a pair, with -R unless told another way; both must end well. Returns both."""
    status = 1 if keeps_credits else 0

    def attempt():
        port = bench.port()
        words = [program, *way, "-F", "-p", port, *options]
        return bench.pair(words, [*words, address], port, timeout=timeout, server_status=(status,),
                          client_status=(status,), **more)

    server, client = patient(bench, attempt)
    for process in (server, client):
        if keeps_credits:
            check(re.fullmatch(KEEPS_CREDITS, process.stderr), f"not the known error of {process.name()}")
            check(values(process), f"no line of results from {process.name()}")
        said = process.stdout if keeps_credits else process.output
        check(not re.search("Completion with error|Failed status|Couldn't", said),
              f"an error in the output of {process.name()}")
    return server, client


def values(process):
    """The lines of the table of results. perftest's standard deviation of times that differ much is not a number."""
    table = re.findall(r"^ \d+[ \t]+\d+[ \t]+[\d.]+(?:[ \t]+(?:[\d.]+|-?nan))+[ \t]*$", process.stdout, re.M)
    return [[float(word) for word in line.split()] for line in table]


def sizes(process):
    """The first column of the table of results: message sizes, in order."""
    return [int(line[0]) for line in values(process)]


def one(bench, program, *options, **more):
    """One size: one line, and no rate or time of zero in it."""
    _, client = talk(bench, program, *options, **more)
    lines = values(client)
    check(len(lines) == 1, f"{len(lines)} lines of results, not 1")
    # Of bandwidths the message rate: a few octets a second are none in perftest's unit.
    average = max(lines[0][3:]) if program.endswith("bw") else lines[0][min(5, len(lines[0]) - 1)]
    # perftest measures the processor's clock when it begins. On a machine where other programs come in between it says that
    # its samples do not fit a line, takes the clock for 0, and shows 0 for everything.
    if "Correlation coefficient" not in client.stderr:
        check(average > 0, f"a result of 0: {lines[0]}")


def every_size(bench, program, *options, **more):
    _, client = talk(bench, program, "-a", *options, **more)
    wanted = [1 << power for power in range(1, 24)]
    check(sizes(client) == wanted, f"sizes {sizes(client)}, not 2 to 8388608")


def rows(verb):
    """The rows that ib_<verb>_bw and ib_<verb>_lat have in common."""
    bw, lat = f"ib_{verb}_bw", f"ib_{verb}_lat"

    def add(program, *options, run=one, **more):
        settings = [f"{name}={value}" for name, value in more.get("env", {}).items()]
        words = (program, "-R", *(("-a",) if run is every_size else ()), *options, *settings)
        title = " ".join(str(word) for word in words)
        harness.add_row(title, lambda bench: run(bench, program, *options, **more))

    add(bw, "-n", 20, run=every_size, timeout=45)
    add(lat, "-n", 20, run=every_size, timeout=45)
    add(bw, "-b", "-n", 20, run=every_size, timeout=45)
    add(bw, "-q", 1, "-n", 1000)
    add(bw, "-q", 16, "-n", 1000)
    add(bw, "-q", 16, "-n", 5, run=every_size, timeout=45)
    add(bw, "-q", 16, "-b", "-n", 200)
    add(bw, "-b", "-s", 1048576, "-n", 200)
    add(bw, "-D", 1)
    add(lat, "-D", 1)
    add(bw, "-n", 5)
    add(lat, "-n", 5)
    add(lat, "-n", 5000, "-s", 8)
    add(bw, "-n", 1000, "-s", 1)
    add(bw, "-n", 1000, "-s", 4097)
    add(bw, "-n", 1000, "-l", 10)
    add(bw, "-n", 1000, "-t", 1)
    add(bw, "-n", 1000, "-Q", 1)
    add(bw, "-n", 1000, "--use_old_post_send")
    add(bw, "-n", 200, "--mr_per_qp", "-q", 4)
    if verb != "write":  # perftest has no -e for RDMA Write
        # Over iWARP a sender of perftest's needs its receiver's credits, Writes that wake nobody. With -e it sleeps on
        # its own completions all the same when it is so far ahead (-r, at most -n) that it may not send: both ends
        # then sleep for good, on any adapter. Messages so large that it cannot come so far ahead make it a test.
        if verb == "send":
            add(bw, "-e", "-s", 1048576, "-n", 500)
        else:
            add(bw, "-e", "-n", 1000)
            add(bw, "-e", "-q", 4, "-n", 200)
            add(bw, "-e", "-n", 100, run=every_size, timeout=45)
        add(lat, "-e", "-n", 1000)
    if verb != "read":  # nor -I for RDMA Read
        for size in (0, 1, 64, 220):
            add(bw, "-I", size, "-s", max(size, 1), "-n", 1000)
            add(lat, "-I", size, "-s", max(size, 1), "-n", 1000)
        add(bw, "-I", 128, "-n", 20, run=every_size, timeout=45)
    remote = {"UIW_COMPLETION": "remote"}
    add(bw, "-n", 20, run=every_size, timeout=45, env=remote)
    add(bw, "-b", "-q", 4, "-n", 1000, env=remote)
    add(bw, "-n", 1000, "-Q", 1, env=remote)
    add(lat, "-n", 1000, env=remote)
    if verb == "send":
        add(bw, "-n", 1000, "--use-srq", env=remote)
        add(lat, "-e", "-n", 1000, env=remote)
    if verb == "read":
        add(bw, "-o", 1, "-n", 500)
        add(lat, "-o", 1, "-n", 500)

    def ipv6(bench):
        # perftest 4.5 asks its resolver for AF_INET alone when it has -R: an IPv6 address is refused before a
        # device is touched. rping, ucmatose, rsockets and our own patterns cover IPv6.
        port = bench.port()
        bench.start([bw, "-R", "-F", "-p", port, "--ipv6"]).wait_listen(port)
        client = bench.run([bw, "-R", "-F", "-p", port, "--ipv6", "::1"], status=None, timeout=30)
        check(client.status() > 0, "perftest takes an IPv6 address now: make this row a real one")

    def ipv6_gid(bench):
        one(bench, bw, "--ipv6", "-n", 500)

    harness.add_row(f"{bw} -R --ipv6: GID choice", ipv6_gid)
    harness.add_row(f"{bw} -R ::1: refused by perftest itself", ipv6)
