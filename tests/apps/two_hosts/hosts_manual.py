# SPDX-License-Identifier: MIT
"""Queue pairs connected without rdma_cm between two hosts: network namespaces joined by veth with an MTU of 1500.
hosts_manual_loss.py runs the same rows over a line that delays by 1 ms and loses 0.1 %."""

import importlib
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from programs import perftest_manual
from support import harness
from support.harness import check

pingpong = harness.borrow(lambda: importlib.import_module("programs.pingpong"))
FIRST = "10.77.0.1"


def gids(bench, side):
    shown = bench.run(["ibv_devinfo", "-v", "-d", "uiw_v0"], namespace=side).stdout
    return perftest_manual.devices.parse_devinfo(shown)["uiw_v0"]["gids"]


def rows(line, title, scale):
    """line(bench) -> (left, right); scale divides the work."""

    def add(name, function):
        def run(bench):
            left, right = line(bench)
            function(bench, {"server_more": {"namespace": left}, "client_more": {"namespace": right}, "address": FIRST,
                             "timeout": 40})

        harness.add_row(f"{name}, {title}", run)

    def each_gid(bench, where, programs):
        table = gids(bench, where["server_more"]["namespace"])
        check(len(table) == 3, f"GIDs {table}, not a link-local, an IPv4 and an IPv6 address")
        for index in range(len(table)):
            for program in programs:
                if "pingpong" in program:
                    pingpong.talk(bench, program, "-c", device="uiw_v0", gid=index, iterations=500 // scale, **where)
                else:
                    perftest_manual.talk(bench, program, "-n", 500 // scale, view="iwarp", device="uiw_v0", gid=index,
                                          **where)

    add("pingpongs with each GID", lambda *a: each_gid(*a, (pingpong.RC, pingpong.SRQ, pingpong.UC)))
    for kind in ("bw", "lat"):
        programs = [name for name in perftest_manual.PROGRAMS if name.endswith(kind)]
        add(f"ib_*_{kind} with each GID", lambda *a, programs=programs: each_gid(*a, programs))

    def ping(bench, where, program, *options, iterations=1000 // scale, **more):
        pingpong.talk(bench, program, *options, device="uiw_v0", gid=1, iterations=iterations, **where, **more)

    add("ibv_rc_pingpong -s 1048576 -c", lambda *a: ping(*a, pingpong.RC, "-s", 1048576, "-c", iterations=100 // scale))
    add("ibv_rc_pingpong -e -c", lambda *a: ping(*a, pingpong.RC, "-e", "-c"))
    add("ibv_srq_pingpong -q 16 -e -c", lambda *a: ping(*a, pingpong.SRQ, "-q", 16, "-e", "-c"))
    add("ibv_uc_pingpong -s 1048576 -c", lambda *a: ping(*a, pingpong.UC, "-s", 1048576, "-c", iterations=100 // scale))

    def perf(bench, where, view, program, *options):
        perftest_manual.talk(bench, program, *options, view=view, device="uiw_v0", gid=1,
                              env={"UIW_TRANSPORT": view}, **where)

    for view in ("iwarp", "roce"):
        for verb in ("send", "write", "read", "atomic"):
            many = ("-b", "-q", 16, "-n", 200 // scale)
            add(f"ib_{verb}_bw {' '.join(map(str, many))}, --transport {view}",
                lambda *a, verb=verb, view=view, many=many: perf(*a, view, f"ib_{verb}_bw", *many))
        add(f"ib_write_bw -s 1048576, --transport {view}",
            lambda *a, view=view: perf(*a, view, "ib_write_bw", "-s", 1048576, "-n", 100 // scale))
        add(f"ib_send_lat, --transport {view}",
            lambda *a, view=view: perf(*a, view, "ib_send_lat", "-n", 1000 // scale))
    add("ib_send_bw --use-srq -q 16, --transport roce",
        lambda *a: perf(*a, "roce", "ib_send_bw", "--use-srq", "-q", 16, "-n", 200 // scale))


def address_pairs(bench):
    """Several addresses on both hosts: the GID of the index is the one that is called and that calls."""
    left, right = bench.two_hosts()
    for number, side in ((1, left), (2, right)):
        for address in (f"10.77.0.10{number}/24", f"fd77::10{number}/64"):
            side.ip("address", "add", address, "dev", "v0", *(("nodad",) if ":" in address else ()))
    tables = [gids(bench, side) for side in (left, right)]
    kind = [[(gid.is_link_local, gid.ipv4_mapped is None) for gid in table] for table in tables]
    pairs = [(one, other) for one in range(5) for other in range(5) if kind[0][one] == kind[1][other]]
    check(len(pairs) == 9, f"GIDs {tables}")
    for one, other in pairs:
        for process in pingpong.talk(bench, pingpong.RC, "-c", device="uiw_v0", gid=other, iterations=10, address=FIRST,
                                     server_options=("-d", "uiw_v0", "-g", one, "-c"),
                                     server_more={"namespace": left}, client_more={"namespace": right}):
            for gid in (tables[0][one], tables[1][other]):
                check(gid in pingpong.gids_of(process), f"not {gid}")


if __name__ == "__main__":
    rows(lambda bench: bench.two_hosts(), "MTU 1500", 1)
    harness.add_row("each GID of one host with each of the other that it can reach", address_pairs)
    sys.exit(harness.main())
