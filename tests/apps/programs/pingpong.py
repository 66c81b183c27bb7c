# SPDX-License-Identifier: MIT
"""ibv_rc_pingpong, ibv_srq_pingpong and ibv_uc_pingpong: queue pairs connected without rdma_cm, LID, number and GID exchanged
over a TCP connection of the programs' own."""

import importlib
import ipaddress
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check, row

devices = harness.borrow(lambda: importlib.import_module("programs.devices"))
RC, SRQ, UC = "ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_uc_pingpong"


def talk(bench, program, *options, device="uiw_lo", gid=0, iterations=1000, address="127.0.0.1", server_options=None,
         **more):
    """Runs a pair; both must end well and have exchanged all that was asked for. Returns both.

    server_options: device, GID index and options of the server, where they are others than the client's.
    """
    port = bench.port()
    common = [program, "-p", port, "-n", iterations]
    client = ["-d", device, "-g", gid, *options]
    both = bench.pair([*common, *(server_options or client)], [*common, *client, address], port, **more)
    for process in both:
        check(f"\n{iterations} iters in " in process.stdout, f"no line of results from {process.name()}")
        check("invalid data" not in process.output, f"not the data that was sent, by {process.name()}")
    return both


def gids_of(process):
    """Those of both ends, as this one tells them."""
    return {ipaddress.IPv6Address(gid) for gid in re.findall(r"address: .* GID (\S+)$", process.stdout, re.M)}


def add(program, *options, **more):
    settings = [f"{name}={value}" for name, value in more.get("env", {}).items()]
    count = ("-n", more["iterations"]) if "iterations" in more else ()
    add_row(" ".join(str(word) for word in (program, "-g", more.get("gid", 0), *count, *options, *settings)),
            lambda bench: talk(bench, program, *options, **more))


def each_gid(bench, program, view, option="-c"):
    env = {"UIW_TRANSPORT": view}
    for device, shown in devices.parse_devinfo(bench.run(["ibv_devinfo", "-v"], env=env).stdout).items():
        for index, gid in enumerate(shown["gids"]):
            for process in talk(bench, program, option, device=device, gid=index, iterations=100, env=env):
                check(gids_of(process) == {gid}, f"GIDs {gids_of(process)}, not {gid}")


def refused(bench, program, server, client):
    """The server's ibv_modify_qp to RTR fails, and the program with it. Its client gets no answer; that of
    ibv_srq_pingpong then waits for one for ever."""
    port = bench.port()
    first = bench.start([program, "-p", port, "-d", "uiw_lo", *server]).wait_listen(port)
    second = bench.start([program, "-p", port, "-d", "uiw_lo", *client, "127.0.0.1"])
    check(first.wait(10) == 1, f"ended with {harness.describe(first.status())}: {first.name()}")
    check(re.search(r"Failed to modify QP(\[0\])? to RTR", first.stderr), "the server fails elsewhere")
    if program != SRQ:
        check(second.wait(10) == 1, f"ended with {harness.describe(second.status())}: {second.name()}")


for _program in (RC, SRQ, UC):
    for _view in ("iwarp", "roce"):
        add_row(f"{_program}: each GID of each device, --transport {_view}",
                lambda bench, p=_program, v=_view: each_gid(bench, p, v))
    add_row(f"{_program} with LIDs alone: no way to RTR", lambda bench, p=_program: refused(bench, p, (), ()))
    add_row(f"{_program}, an IPv4 GID and one of IPv6: no way to RTR",
            lambda bench, p=_program: refused(bench, p, ("-g", 0), ("-g", 1)))
    for _gid in (0, 1):  # IPv4, IPv6
        add(_program, "-s", 1048576, "-c", gid=_gid, iterations=200)
        add(_program, "-e", "-c", gid=_gid)
    add(_program, "-s", 1048576, "-e", "-c", iterations=200, env={"UIW_CRC": "on"})
    add(_program, "-s", 1, "-c", iterations=20000)
    add(_program, "-m", 256)
    for _rule in ("local", "remote"):
        add(_program, "-c", iterations=2000, env={"UIW_COMPLETION": _rule})
add(RC, "-r", 1, "-c")  # one receive at a time
for _options in (("-o",), ("-o", "-P"), ("-O",), ("-O", "-P"), ("-t",), ("-j",), ("-N",)):
    add(RC, "-c", *_options)
add(SRQ, "-q", 16, "-c", "-e", "-s", 65536)
add(SRQ, "-q", 16, "-o", "-c")
add(SRQ, "-q", 1, "-r", 20, "-c")
add(SRQ, "-q", 16, "-r", 20, "-c", gid=1, iterations=5000)


def mixed(bench, server, client):
    """The wire is the same: either end may have either view."""
    talk(bench, SRQ, "-c", server_more={"env": {"UIW_TRANSPORT": server}},
         client_more={"env": {"UIW_TRANSPORT": client}})


for _server, _client in (("iwarp", "roce"), ("roce", "iwarp")):
    add_row(f"{SRQ}, server {_server}, client {_client}", lambda bench, s=_server, c=_client: mixed(bench, s, c))


@row("UIW_PORT_RANGE: the queue pairs' numbers name its ports")
def port_range(bench):
    first = bench.port()
    for process in talk(bench, RC, env={"UIW_PORT_RANGE": f"{first}-{first + 20}"}):
        ports = [int(number, 16) >> 8 for number in re.findall("QPN 0x([0-9a-f]{6})", process.stdout)]
        check(len(ports) == 2 and all(first <= port <= first + 20 for port in ports), f"{ports}")


@row("two programs one after the other find nothing left by each other")
def again(bench):
    for _ in range(20):
        talk(bench, RC, "-c", iterations=10)


UD, ROCE = "ibv_ud_pingpong", {"UIW_TRANSPORT": "roce"}
add(UD, env=ROCE)
add(UD, "-e", "-s", 1024, env=ROCE)
add_row("ibv_ud_pingpong: each GID of each device", lambda bench: each_gid(bench, UD, "roce", "-e"))


@row("datagrams in the iWARP view, and XRC: refused where the queue pair is made")
def others(bench):
    for program, reason in (("ibv_ud_pingpong", "Couldn't create QP"), ("ibv_xsrq_pingpong", "Couldn't")):
        ended = bench.run([program, "-d", "uiw_lo", "-g", 0, "-p", bench.port()], status=1)
        check(reason in ended.stderr, f"no word of why from {program}")


@row("an index beyond the GID table: refused")
def beyond(bench):
    ended = bench.run([RC, "-d", "uiw_lo", "-g", 99, "-p", bench.port()], status=1)
    check("can't read sgid of index 99" in ended.stderr, "no word of why")


if __name__ == "__main__":
    sys.exit(harness.main())
