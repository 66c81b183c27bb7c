# SPDX-License-Identifier: MIT
"""uDAPL's tests over its two providers for verbs: cma connects by rdma_cm, scm by ibv_modify_qp."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

LIBRARIES = {"cma": ("ofa", "v0 0"), "scm": ("oscm", "uiw_v0 1")}
PORTS = {"dtest": 15828, "dtestx": 15828}  # by which a client asks for the server's parameters
TRANSACTIONS = (("client", "SR", 4096, 2, "server", "SR", 4096, 2), ("client", "RW", 65536, "server", "RR", 8192))
PERFORMANCE = (("b", "RW", 65536, 2), ("p", "RR", 4096, 1))


def environment(bench, view):
    path = os.path.join(bench.tmp, "dat.conf")
    with open(path, "w") as file:
        for name, (library, device) in LIBRARIES.items():
            file.write(f'{name} u2.0 nonthreadsafe default libdapl{library}.so.2 dapl.2.0 "{device}" ""\n')
    return {"UIW_TRANSPORT": view, "DAT_OVERRIDE": path, "DAPL_SCM_NETDEV": "v0"}


def hosts(bench, provider):
    """Two hosts. For scm they have no IPv6: it uses the first GID, and crashes in libdaploscm where that is link-local."""
    both = bench.two_hosts()
    if provider == "scm":
        for host in both:
            host.ip("-6", "address", "flush", "dev", "v0")
    return both


def exchange(bench, view, program, provider):
    """Sends, RDMA Writes and Reads, and events; each program checks what has come."""
    harness.need_program(program)
    left, right = hosts(bench, provider)
    port = PORTS.get(program, 45248)
    size = ("-b", 65536) if program == "dtest" else ()
    words = [program, "-P", provider, *size]
    for end in bench.pair(words, [*words, "-h", "10.77.0.1"], port, timeout=30, env=environment(bench, view),
                          server_more={"namespace": left}, client_more={"namespace": right}):
        check(re.search("PASSED|Test Complete", end.stdout), f"it has not passed: {end.output[-300:]}")


def dapltest(bench, view, provider):
    harness.need_program("dapltest")
    left, right = hosts(bench, provider)
    env = environment(bench, view)
    client = ("-s", "10.77.0.1", "-D", provider)
    runs = [("-T", "T", *client, "-i", 100, "-t", 2, "-w", 2, "-V", *words) for words in TRANSACTIONS]
    runs += [("-T", "P", *client, "-i", 200, "-p", 16, "-m", mode, *words) for mode, *words in PERFORMANCE]
    server = bench.start(["dapltest", "-T", "S", "-D", provider], env=env, namespace=left)
    server.wait_output("Service Point Ready")
    for words in runs:
        bench.run(["dapltest", *words], timeout=30, env=env, namespace=right)
    bench.run(["dapltest", "-T", "Q", *client], env=env, namespace=right)
    server.end()


for _view in ("iwarp", "roce"):
    for _provider in LIBRARIES:
        add_row(f"dapltest, {_provider}, {_view}",
                lambda bench, view=_view, provider=_provider: dapltest(bench, view, provider))
    for _program in ("dtest", "dtestsrq"):
        add_row(f"{_program}, cma, {_view}",
                lambda bench, view=_view, program=_program: exchange(bench, view, program, "cma"))
add_row("dtest, scm, roce", lambda bench: exchange(bench, "roce", "dtest", "scm"))
add_row("dtestx: atomics and immediate data, cma, roce", lambda bench: exchange(bench, "roce", "dtestx", "cma"))

if __name__ == "__main__":
    sys.exit(harness.main())
