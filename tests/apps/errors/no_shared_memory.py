# SPDX-License-Identifier: MIT
"""Connections within a host where the system grants no shared memory to one of the ends, or to both: they stay on TCP, and
only the log tells."""

import importlib
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, refusing
from support.harness import add_row, check

out_of_reach = harness.borrow(lambda: importlib.import_module("errors.out_of_reach"))

HOST = "127.0.0.1"
NOBODY = 65534
LINE = re.compile(r"connected to \S+ \((?:rdma_cm|without rdma_cm), (calling|called);.*; through ([a-z A-Z]+)\)$", re.M)
DECISION = re.compile(r": its octets go through ([a-z A-Z]+)$", re.M)
COMPLAINT = re.compile(r"^.*(?:fail|refuse|cannot|wrong).*$", re.M)

# ---- What the two ends say in the end, from the worst to the best ----

CALLED, CALLING = "called", "calling"
TCP = {CALLED: "TCP", CALLING: "TCP"}
NOT_TAKEN = {CALLED: "shared memory offered", CALLING: "TCP"}  # so that the stream is on TCP
SHARED = {CALLED: "shared memory offered", CALLING: "shared memory"}
REFUSED = {**SHARED, "then": "TCP"}  # by the called end, once the caller has taken it


def worse(one, other):
    return min(one, other, key=[TCP, NOT_TAKEN, REFUSED, SHARED].index)


# ---- Programs ----


class Talk:
    """How two programs connect, with rdma_cm or without, and exchange some data. `server_calls`: the caller of the connection
    is not the program's client."""

    def __init__(self, name, server, client, listens=True, server_calls=False):
        self.name, self.server, self.client, self.listens, self.server_calls = name, server, client, listens, server_calls

    def __call__(self, bench, called, calling):
        """How each end says that it is connected, and what they use then if that is not what they say. called, calling: more
        for Bench.start()."""
        mores = {CALLED: dict(called), CALLING: dict(calling)}
        # Of two queue pairs the one with the smaller number calls, and the number begins with the port.
        numbers = {} if self.listens else dict(zip((CALLING, CALLED), bench.ports_in_a_row(2)))
        logs = {}
        os.chmod(bench.tmp, 0o777)
        for end, more in mores.items():
            path = logs[end] = os.path.join(bench.tmp, f"{end}{len(os.listdir(bench.tmp))}")
            pathlib.Path(path).touch()
            os.chmod(path, 0o666)
            ports = ("--port-range", f"{numbers[end]}-{numbers[end]}") if numbers else ()
            more["options"] = ("--log", path, *ports, *more.get("options", ()))
        first, second = (CALLING, CALLED) if self.server_calls else (CALLED, CALLING)
        port = bench.port()
        for process in bench.pair([*self.server, "-p", port], [*self.client, "-p", port], port, server_more=mores[first],
                                  client_more=mores[second]):
            check(not re.search("^uiw", process.stderr, re.M), f"uiw says something: {process.stderr}")
        texts = {end: pathlib.Path(path).read_text() for end, path in logs.items()}
        found = {end: self.way(end, text) for end, text in texts.items()}
        decided = {end: DECISION.findall(text) for end, text in texts.items()}
        last = SHARED[CALLING] if found == SHARED else "TCP"
        if found == SHARED and decided == {CALLED: ["TCP"], CALLING: ["TCP"]}:
            return REFUSED
        check(decided == {end: [] if way == "TCP" else [last] for end, way in found.items()}, f"{found}, and then {decided}")
        return found

    @staticmethod
    def way(end, text):
        lines = LINE.findall(text)
        check(len(lines) == 1 and lines[0][0] == end, f"the {end} end says {lines}")
        complaint = COMPLAINT.search(text)
        check(not complaint, f"the {end} end complains: {complaint and complaint.group()}")
        return lines[0][1]


PINGPONG = ["ibv_rc_pingpong", "-d", "uiw_lo", "-g", 0, "-n", 200, "-c"]
RPING = Talk("rping", ["rping", "-s", "-S", 65535, "-a", HOST], ["rping", "-c", "-S", 65535, "-C", 20, "-V", "-a", HOST])
CLIENT_CALLS = Talk("ibv_rc_pingpong", PINGPONG, [*PINGPONG, HOST], listens=False)
SERVER_CALLS = Talk("ibv_rc_pingpong, whose server calls", PINGPONG, [*PINGPONG, HOST], listens=False, server_calls=True)
UCMATOSE = Talk("ucmatose, whose server sends first", ["ucmatose", "-b", HOST], ["ucmatose", "-s", HOST])
WITH_AND_WITHOUT_CM = (RPING, CLIENT_CALLS)
ALL = (RPING, UCMATOSE, CLIENT_CALLS, SERVER_CALLS)


def expect(bench, talk, wanted, called=None, calling=None):
    found = talk(bench, called or {}, calling or {})
    at = " and ".join(end for end, more in ((CALLED, called), (CALLING, calling)) if more) or "no"
    check(found == wanted, f"at the {at} end: {found}, not {wanted}")


def at_each_end(bench, talk, more, at_called, at_calling):
    """The same at the called end, at the calling one, and at both."""
    expect(bench, talk, at_called, called=more)
    expect(bench, talk, at_calling, calling=more)
    expect(bench, talk, worse(at_called, at_calling), called=more, calling=more)


# ---- Calls that the system refuses ----


def refused(bench, *rules):
    """More for a program to which these calls are refused."""
    words = refusing.words(*rules)
    status = bench.run(["true"], uiw=False, wrap=words, status=None).status()
    if status == refusing.NO_FILTERS:
        raise harness.Skip("no filters of system calls here")
    check(status == 0, "the filter cannot be installed")
    return {"wrap": words}


NO_MAPPING = "mmap:2=3,3=1:ENOMEM"  # PROT_READ | PROT_WRITE, MAP_SHARED
# What is refused, by which rules, and what becomes of it at the called end, which makes the memory, and at the calling one.
REFUSALS = (
    ("a memfd (EPERM)", ["memfd_create:EPERM"], TCP, NOT_TAKEN),
    ("a memfd (ENOSYS)", ["memfd_create:ENOSYS"], TCP, NOT_TAKEN),
    ("a memfd that is not executable (EINVAL), as before Linux 6.3", ["memfd_create:1&8=8:EINVAL"], SHARED, SHARED),
    ("to set or to read the seals of a memfd", ["fcntl:1=1033:EPERM", "fcntl:1=1034:EPERM"], TCP, NOT_TAKEN),
    ("to allocate the first page of the memory", ["fallocate:ENOSPC"], TCP, NOT_TAKEN),
    ("to map shared memory", [NO_MAPPING], TCP, NOT_TAKEN),
    ("to receive a descriptor", ["recvmsg:2&0x40000000=0x40000000:EPERM"], REFUSED, NOT_TAKEN),  # MSG_CMSG_CLOEXEC
    ("to know the user of the other end", ["getsockopt:1=1,2=17:EPERM"], TCP, NOT_TAKEN),  # SOL_SOCKET, SO_PEERCRED
    ("to keep the memory from children, and to free it", ["madvise:2=10:EPERM", "madvise:2=9:EPERM"], SHARED, SHARED),
)
NO_SOCKETS = "socket:0=1,1&15=1:EPERM"  # AF_UNIX, SOCK_STREAM


def sockets(bench, talk):
    """rdma_listen needs such a socket itself."""
    more = refused(bench, NO_SOCKETS)
    if talk.listens:
        return expect(bench, talk, TCP, calling=more)
    return at_each_end(bench, talk, more, TCP, TCP)


def not_taken(bench, talk, options):
    calling = {**refused(bench, NO_MAPPING), "options": options}
    expect(bench, talk, NOT_TAKEN, called={"options": options}, calling=calling)


def revision_1(bench, talk, rules):
    options = {"options": ("--mpa-revision", "1")}
    expect(bench, talk, TCP, called=options, calling={**refused(bench, *rules), **options})


def add_refusals():
    for talk in WITH_AND_WITHOUT_CM:
        add_row(f"nothing is refused: {talk.name}", lambda bench, t=talk: expect(bench, t, SHARED))
    for what, rules, at_called, at_calling in REFUSALS:
        for talk in WITH_AND_WITHOUT_CM:
            add_row(f"refused at either end and at both: {what}: {talk.name}",
                    lambda bench, t=talk, r=rules, a=at_called, b=at_calling: at_each_end(bench, t, refused(bench, *r), a, b))
    for talk in WITH_AND_WITHOUT_CM:
        add_row(f"refused: Unix stream sockets: {talk.name}", lambda bench, t=talk: sockets(bench, t))
    for talk in (RPING, UCMATOSE):  # by revision 1 a caller sends no message of MPA's own, which would tell what it has taken
        for what, rules in (("nothing is refused", []), ("to map shared memory is refused at the calling end", [NO_MAPPING])):
            add_row(f"{what}: --mpa-revision 1: {talk.name}", lambda bench, t=talk, r=rules: revision_1(bench, t, r))
    for options in (("--crc", "on"), ("--completion", "remote"), ("--transport", "roce")):
        for talk in ALL:
            add_row(f"the calling end cannot map the memory that it is offered: {' '.join(options)}: {talk.name}",
                    lambda bench, t=talk, o=options: not_taken(bench, t, o))


# ---- Other ends that want TCP, and those that cannot find out who the other is ----


def no_proc(bench, talk):
    """A user who has a number of his own needs nothing of it."""
    at_each_end(bench, talk, {"wrap": out_of_reach.private_mounts("mount -t tmpfs none /proc")}, SHARED, SHARED)


def nobody_without_proc(bench, talk):
    """A user namespace gives the number of nobody to all users whom it does not know; /proc tells whether this is one. So
    nobody cannot have connections without rdma_cm there, by TCP neither: they are for queue pairs of one user."""
    blind = out_of_reach.private_mounts("mount -t tmpfs none /proc") + out_of_reach.user(bench, NOBODY)
    folder = os.path.join(bench.tmp, "nobodys")
    os.mkdir(folder)
    os.chown(folder, NOBODY, NOBODY)
    own = {"env": {"UIW_RUNTIME_DIR": folder}}
    seeing, blind = {"wrap": out_of_reach.user(bench, NOBODY), **own}, {"wrap": blind, **own}
    expect(bench, talk, SHARED, called=seeing, calling=seeing)
    expect(bench, talk, TCP, called=blind, calling=seeing)
    expect(bench, talk, NOT_TAKEN, called=seeing, calling=blind)
    expect(bench, talk, TCP, called=blind, calling=blind)


def add_other_ends():
    for talk in ALL:
        add_row(f"either end, and both, with --same-host tcp: {talk.name}",
                lambda bench, t=talk: at_each_end(bench, t, {"options": ("--same-host", "tcp")}, TCP, TCP))
    for talk in WITH_AND_WITHOUT_CM:
        add_row(f"/proc is not mounted at either end and at both: shared memory, which does not need it: {talk.name}",
                lambda bench, t=talk: no_proc(bench, t))
    add_row(f"/proc is not mounted, and the user is nobody, who may be any user: {RPING.name}",
            lambda bench: nobody_without_proc(bench, RPING))


add_refusals()
add_other_ends()

if __name__ == "__main__":
    sys.exit(harness.main())
