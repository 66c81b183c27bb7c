# SPDX-License-Identifier: MIT
"""Exit is clean under valgrind: no invalid access, nothing definitely lost."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row


def words(bench, name):
    harness.need_program("valgrind")
    return ["valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite", "--num-callers=30", "--track-origins=yes",
            "--child-silent-after-fork=yes",
            f"--log-file={os.path.join(bench.tmp, name)}",
            f"--suppressions={os.path.join(os.path.dirname(os.path.abspath(__file__)), 'valgrind.supp')}"]


def programs_own(complaint):
    """Whether the complaint is that octets go to the wire which the program itself never wrote (ucmatose sends such).

    The octets may have gone through a buffer of ours: what counts is where valgrind saw them made.
    """
    head, _, origin = complaint.partition("Uninitialised value was created by ")
    return bool(re.match(r"Syscall param sendmsg\(msg\.msg_iov\[\d+\]\) points to uninitialised byte", head)
                and origin and "uiw" not in origin)


def clean(bench, *names):
    for name in names:
        path = os.path.join(bench.tmp, name)
        check(os.path.exists(path), f"valgrind left no log of {name}")
        with open(path, errors="replace") as log:
            text = re.sub(r"^==\d+== ?", "", log.read(), flags=re.M)
        # A blank line between complaints; one that begins with a blank belongs to the one before.
        complaints = re.split(r"\n\s*\n(?! )", text)
        text = "\n\n".join(one for one in complaints if one.strip() and not programs_own(one.strip()))
        check(not text, f"valgrind on {name}:\n{text[:6000]}")


def alone(bench, program, *options):
    run = bench.run([*words(bench, "log"), program, *options], timeout=30, status=None)
    clean(bench, "log")
    check(run.status() == 0, f"ended with {harness.describe(run.status())}")


row("ibv_devices")(lambda bench: alone(bench, "ibv_devices"))
row("ibv_devinfo -v")(lambda bench: alone(bench, "ibv_devinfo", "-v"))
row("true: a program that does no RDMA")(lambda bench: alone(bench, "/bin/true"))


def pair(bench, server, client, timeout=40):
    port = client[client.index("-p") + 1]
    one = bench.start([*words(bench, "server"), *server]).wait_listen(port, 60)
    two = bench.start([*words(bench, "client"), *client])
    two.wait(timeout)
    one.wait(60)
    clean(bench, "client", "server")
    for process in (one, two):
        check(process.status() == 0, f"ended with {harness.describe(process.status())}: {process.name()}")


@row("rping, both sides")
def rping(bench):
    port = bench.port()
    pair(bench, pings.server(port), pings.client(port, "-C", 20, "-S", 5000, "-V"))


@row("rdma_server and rdma_client")
def endpoints(bench):
    port = bench.port()
    pair(bench, ["rdma_server", "-s", "127.0.0.1", "-p", port], ["rdma_client", "-s", "127.0.0.1", "-p", port])


@row("ucmatose -c 10")
def ucmatose(bench):
    port = bench.port()
    pair(bench, ["ucmatose", "-b", "127.0.0.1", "-p", port, "-c", 10],
         ["ucmatose", "-s", "127.0.0.1", "-p", port, "-c", 10])


@row("patterns, a few of each kind, client and server in one process")
def patterns(bench):
    run = bench.run([*words(bench, "log"), bench.helper("uiw_patterns"), "self", "127.0.0.1", bench.port(), "--few"],
                    timeout=60, status=None)
    clean(bench, "log")
    check(run.status() == 0, f"ended with {harness.describe(run.status())}")


@row("a device closed with its objects left over, then exit")
def closed_first(bench):
    leaks_anyway = [word for word in words(bench, "log") if "leak" not in word]
    run = bench.run([*leaks_anyway, bench.helper("uiw_harmless"), "127.0.0.1", bench.port(), "device_closed_first"],
                    timeout=60, status=None)
    clean(bench, "log")
    check(run.status() == 0, f"ended with {harness.describe(run.status())}")


if __name__ == "__main__":
    sys.exit(harness.main())
