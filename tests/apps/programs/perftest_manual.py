# SPDX-License-Identifier: MIT
"""perftest without -R: its programs tell each other queue pair numbers and GIDs, and go to RTR by themselves.

perftest_manual_roce.py has the same rows in the RoCE view, perftest_manual_sizes.py those with -a in both.
"""

import importlib
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest
from support.harness import add_row, check

devices = harness.borrow(lambda: importlib.import_module("programs.devices"))
PROGRAMS = [f"ib_{verb}_{kind}" for verb in ("send", "write", "read", "atomic") for kind in ("bw", "lat")]


def talk(bench, program, *options, view, run=perftest.one, device="uiw_lo", gid=0, **more):
    """run: how perftest.py judges it. The GID has the same index on both sides."""
    run(bench, program, *options, way=("-d", device, "-x", gid),
        keeps_credits=view == "iwarp" and program == "ib_send_bw", **more)


def each_gid(bench, program, view):
    for device, shown in devices.parse_devinfo(bench.run(["ibv_devinfo", "-v"]).stdout).items():
        for index in range(len(shown["gids"])):
            talk(bench, program, "-n", 50, view=view, device=device, gid=index)


def refused(bench, program, *options, reason):
    """Both ends with an error of perftest's own that says why."""
    port = bench.port()
    words = [program, "-F", "-p", port, "-d", "uiw_lo", *options]
    for process in bench.pair(words, [*words, "127.0.0.1"], port, server_status=(1,), client_status=(1,)):
        check(reason in process.output, f"no word of \"{reason}\": {process.name()}")


def rows(view):
    def add(program, *options, **more):
        settings = [f"{name}={value}" for name, value in more.get("env", {}).items()]
        add_row(" ".join(str(word) for word in (program, *options, *settings)),
                lambda bench: talk(bench, program, *options, view=view, **more))

    for program in PROGRAMS:
        add(program, "-n", 1000)
        add_row(f"{program}: each GID of each device", lambda bench, program=program: each_gid(bench, program, view))
        if program.endswith("bw"):
            add(program, "-b", "-n", 500)
            add(program, "-q", 16, "-n", 200)
            add(program, "-q", 16, "-b", "-n", 100)
    add("ib_write_bw", "-q", 300, "-n", 5)  # more than one port names
    for program in ("ib_send_lat", "ib_read_bw", "ib_atomic_lat"):
        add(program, "-e", "-n", 500)
    add("ib_send_bw", "-e", "-s", 1048576, "-n", 200)  # as large as in perftest.py, for the credits' sake
    add("ib_send_lat", "--use-srq", "-n", 500)
    add("ib_send_bw", "--use-srq", "-n", 500)
    if view == "roce":
        add("ib_send_bw", "--use-srq", "-q", 16, "-n", 100)
        for program in ("ib_send_bw", "ib_send_lat"):
            add(program, "-c", "UD", "-n", 100)
        add("ib_send_bw", "-c", "UD", "-q", 16, "-n", 20)
        add("ib_send_bw", "--use-srq", "-q", 4, "-b", "-n", 100)
    else:
        harness.known("ib_send_bw --use-srq -q 2", "perftest counts an iWARP sender's credits by the numbers of its "
                      "receives, which a shared queue hands out in any order: it waits for ever, on any adapter",
                      lambda bench: talk(bench, "ib_send_bw", "--use-srq", "-q", 2, "-n", 500, view=view))
    for program in ("ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat"):
        add(program, "-c", "UC", "-n", 500)
    add("ib_send_bw", "-l", 10, "-n", 500)
    add("ib_write_bw", "-t", 1, "-n", 500)
    add("ib_send_bw", "-r", 6, "-n", 200)
    add("ib_write_bw", "--odp", "-n", 500)
    add("ib_read_bw", "--mr_per_qp", "-q", 4, "-n", 100)
    add("ib_send_bw", "--use_old_post_send", "-n", 500)
    add("ib_write_bw", "--reversed", "-n", 500)
    add("ib_atomic_bw", "-A", "CMP_AND_SWAP", "-q", 4, "-n", 100)
    add("ib_write_bw", "-z", "-q", 4, "-n", 100)  # rdma_cm carries the numbers, and connects nothing else
    for setting in ({"UIW_COMPLETION": "local"}, {"UIW_CRC": "on"}):
        add("ib_send_lat", "-n", 500, env=setting)
        add("ib_write_bw", "-q", 4, "-b", "-n", 100, env=setting)
    for kind, reason in (("XRC", "Error opening XRC domain"), ("UD", "Failed to create QP")) if view == "iwarp" else ():
        add_row(f"ib_send_bw -c {kind}: refused",
                lambda bench, kind=kind, reason=reason: refused(bench, "ib_send_bw", "-c", kind, reason=reason))


if __name__ == "__main__":
    rows("iwarp")
    sys.exit(harness.main())
