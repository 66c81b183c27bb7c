# SPDX-License-Identifier: MIT
"""What a connection within a host goes through: shared memory, or TCP where one end does not want it, belongs to another
user, or cannot have the memory."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import add_row, check, row

NOBODY = 65534
STRANGER = 4242
LINE = re.compile(r"connected to \S+ \((?:rdma_cm|without rdma_cm), (calling|called);.*; through ([a-z A-Z]+)\)$", re.M)


def ways(bench, server, client, address="127.0.0.1", **both):
    """How each end says that it is connected, by rping with some megabytes; server, client: more for Bench.start()."""
    logs = {}
    for end, more in (("called", server), ("calling", client)):
        logs[end] = os.path.join(bench.tmp, f"{end}{len(os.listdir(bench.tmp))}")
        pathlib.Path(logs[end]).touch()
        os.chmod(logs[end], 0o666)
        more["options"] = ("--log", logs[end], *more.get("options", ()))
    os.chmod(bench.tmp, 0o777)
    pings.pair(bench, "-S", 65535, "-C", 100, "-V", host=address, server_more={**server, **both},
               client_more={**client, **both})
    found = {}
    for end, path in logs.items():
        lines = LINE.findall(pathlib.Path(path).read_text())
        check(len(lines) == 1 and lines[0][0] == end, f"the {end} end says {lines}")
        found[end] = lines[0][1]
    return found


SHARED = {"calling": "shared memory", "called": "shared memory offered"}
TCP = {"calling": "TCP", "called": "TCP"}


def expect(found, wanted):
    check(found == wanted, f"{found}, not {wanted}")


for _address in ("127.0.0.1", "::1"):
    add_row(f"two processes of one user: shared memory, {_address}",
            lambda bench, address=_address: expect(ways(bench, {}, {}, address), SHARED))
add_row("with CRCs: shared memory too",
        lambda bench: expect(ways(bench, {"options": ("--crc", "on")}, {}), SHARED))


@row("an end that says --same-host tcp: TCP")
def refused(bench):
    tcp = {"options": ("--same-host", "tcp")}
    expect(ways(bench, dict(tcp), {}), TCP)
    expect(ways(bench, {}, dict(tcp)), TCP)
    expect(ways(bench, dict(tcp), dict(tcp)), TCP)


@row("an end that wants markers: TCP, whose streams have them")
def markers(bench):
    wanted = {"options": ("--markers", "on")}
    expect(ways(bench, dict(wanted), {}), TCP)
    expect(ways(bench, {}, dict(wanted)), TCP)
    for crc in ("auto", "on"):
        expect(ways(bench, {"options": ("--markers", "on", "--crc", crc)}, dict(wanted)), TCP)


def as_user(user):
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


@row("processes of two users, and of one user that is not root")
def users(bench):
    harness.need_root()
    harness.need_program("setpriv")
    os.chmod(bench.runtime, 0o777)
    usual = {"UIW_RUNTIME_DIR": None, "XDG_RUNTIME_DIR": None}
    expect(ways(bench, {"wrap": as_user(NOBODY), "env": usual}, {}), TCP)
    expect(ways(bench, {}, {"wrap": as_user(NOBODY), "env": usual}), TCP)
    expect(ways(bench, {"wrap": as_user(STRANGER)}, {"wrap": as_user(STRANGER)}, env=usual), SHARED)


@row("two network namespaces: TCP")
def namespaces(bench):
    left, right = bench.two_hosts()
    expect(ways(bench, {"namespace": left}, {"namespace": right}, "10.77.0.1"), TCP)
    expect(ways(bench, {"namespace": left}, {"namespace": left}, "10.77.0.1"), SHARED)


@row("no memory to be had, or no file as long as it: TCP")
def no_memory(bench):
    harness.need_program("prlimit")
    short = {"wrap": ["prlimit", "--fsize=100000"]}
    expect(ways(bench, short, {}), TCP)
    expect(ways(bench, {}, {"wrap": ["prlimit", "--fsize=100000"]}), SHARED)  # the other end makes it


@row("few descriptors: connections in shared memory need no more of them than those over TCP")
def few_descriptors(bench):
    path = os.path.join(bench.tmp, "log")
    port = bench.port()
    few = {"wrap": ["prlimit", "--nofile=220"], "options": ("--log", path)}
    bench.pair(["ucmatose", "-p", port, "-c", 150, "-C", 5], ["ucmatose", "-s", "127.0.0.1", "-p", port, "-c", 150, "-C", 5], port,
               server_more=few, timeout=30)
    found = [way for _, way in LINE.findall(pathlib.Path(path).read_text())]
    # Some get none while they are set up, which takes two more for a moment.
    check(len(found) == 150 and found.count("shared memory offered") >= 100, f"150 connections: {found}")


if __name__ == "__main__":
    sys.exit(harness.main())
