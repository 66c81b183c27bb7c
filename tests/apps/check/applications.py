# SPDX-License-Identifier: MIT
"""`uiw run --check` over stock programs and libraries, both ends: it finds what is known, and nothing else. What they do is
tested elsewhere (applications/, programs/, roce/); here they run for a short while, one row for each program."""

import importlib
import os
import pathlib
import re
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest
from support.harness import add_row, check, row

APPLICATIONS = pathlib.Path(__file__).resolve().parents[1] / "applications"
SUPPRESSIONS = pathlib.Path(__file__).resolve().parents[3] / "tools/check/stock-programs.supp"
STATUS = 9
KNOWN = ("--check", "--check-exit", STATUS, "--check-suppress", SUPPRESSIONS)
HOST = "127.0.0.1"
VIEWS = ("iwarp", "roce")
ROCE = {"UIW_TRANSPORT": "roce"}


def summaries(process):
    return re.findall(r"^uiw check: process \d+: (\d+) faults?\b", process.stderr, re.M)


def sound(*processes, count=None):
    """Each of the processes has ended with a report that has no fault but known ones, and so have its children."""
    for process in processes:
        found = summaries(process)
        check(found and set(found) == {"0"}, f"faults of {process.name()}: {process.stderr[-2000:]}")
        check(count is None or len(found) == count, f"{len(found)} reports, not {count}: {process.name()}")


def silent(process):
    """A process that did not end by exit(3), and so has no report: nothing was found while it ran."""
    check("uiw check: " not in process.stderr, f"faults of {process.name()}: {process.stderr[-2000:]}")


def pair(bench, server, client, port, **more):
    """Both ends under the check. Returns them."""
    harness.need_program(server[0], client[0])
    ends = bench.pair(server, client, port, options=KNOWN, **{"timeout": 40, **more})
    sound(*ends)
    return ends


# ---- The utilities of rdma-core ----

def pingpong(bench, program, *options, view="roce"):
    port = bench.port()
    words = [program, "-d", "uiw_lo", "-g", 0, "-p", port, "-n", 200, *options]
    pair(bench, words, [*words, HOST], port, env={"UIW_TRANSPORT": view})


for _program, _view in (("ibv_uc_pingpong", "iwarp"), ("ibv_ud_pingpong", "roce")):
    add_row(f"{_program} -e, {_view}", lambda bench, p=_program, v=_view: pingpong(bench, p, "-e", view=v))


@row("ibv_rc_pingpong -j: device memory, which is not the program's")
def device_memory(bench):
    pingpong(bench, "ibv_rc_pingpong", "-j")


@row("ibv_xsrq_pingpong, which gets no XRC domain, leaves what it has made")
def xsrq(bench):
    harness.need_program("ibv_xsrq_pingpong")
    sound(bench.run(["ibv_xsrq_pingpong", "-d", "uiw_lo", "-g", 0, "-p", bench.port()], options=KNOWN, status=1))


for _view in VIEWS:
    def _managed(bench, server, client, *options, env={"UIW_TRANSPORT": _view}, **more):
        port = bench.port()
        pair(bench, [server, "-p", port, *options], [client, "-s", HOST, "-p", port, *options], port, env=env, **more)

    for _server, _client, *_options in (("ucmatose", "ucmatose", "-c", 4, "-C", 20), ("rdma_server", "rdma_client"),
                                        ("rdma_xserver", "rdma_xclient"),
                                        ("riostream", "riostream", "-S", 4096, "-C", 50)):
        add_row(f"{' '.join(str(word) for word in (_client, *_options))}, {_view}",
                lambda bench, managed=_managed, s=_server, c=_client, o=tuple(_options): managed(bench, s, c, *o))


def without_end(bench, server, client, port, **more):
    """A server that never ends by itself, and so has no report."""
    harness.need_program(server[0])
    first, second = bench.pair(server, client, port, options=KNOWN, server_ends=False, timeout=30, **more)
    silent(first)
    sound(second)


@row("cmtime -c 20")
def cmtime(bench):
    port = bench.port()
    without_end(bench, ["cmtime", "-b", HOST, "-p", port], ["cmtime", "-s", HOST, "-p", port, "-c", 20], port)


@row("rcopy of 3 MB")
def rcopy(bench):
    source, port = os.path.join(bench.tmp, "source"), bench.port()
    content = os.urandom(3000000)
    pathlib.Path(source).write_bytes(content)
    without_end(bench, ["rcopy", "-p", port], ["rcopy", source, f"{HOST}:{source}.copy", "-p", port], port)
    check(pathlib.Path(f"{source}.copy").read_bytes() == content, "the copy differs")


# In a network namespace of their own, since udaddy has the same number always.
@row("udaddy, roce")
def udaddy(bench):
    harness.need_program("udaddy")
    host = {"namespace": bench.namespace(), "env": ROCE, "options": KNOWN}
    server = bench.start(["udaddy"], **host)
    harness.wait_until(lambda: "@uiw-rdma-service/" in pathlib.Path(f"/proc/{server.pid}/net/unix").read_text(
        encoding="utf-8", errors="replace") or not server.running(), 10, "udaddy's number")
    client = bench.run(["udaddy", "-s", HOST], timeout=30, **host)
    server.succeed(10)
    sound(server, client)


@row("mckey, roce")
def mckey(bench):
    harness.need_program("mckey", "stdbuf")
    host = {"namespace": bench.namespace(), "env": ROCE, "options": KNOWN}
    words = ["stdbuf", "-oL", "mckey", "-m", "239.1.2.3", "-b", HOST]
    receiver = bench.start(words, **host)
    receiver.wait_output("^mckey: joined dgid: ")
    sender = bench.run([*words, "-s"], timeout=30, **host)
    receiver.succeed(10)
    sound(receiver, sender)


# ---- perftest ----

def benchmark(bench, program, *options, view="iwarp", way=("-R",)):
    harness.need_program(program)
    sound(*perftest.talk(bench, program, *options, way=way, options=KNOWN, env={"UIW_TRANSPORT": view}))


# Without -R ib_send_bw fails over iWARP, on any adapter: it does not give the memory of its credits back.
MANUAL = ("-d", "uiw_lo", "-x", 0)
for _words, _more in ((("ib_send_bw", "-n", 500, "--use-srq"), {}),
                      (("ib_send_bw", "-n", 500, "--use-srq", "-q", 4), {"view": "roce", "way": MANUAL}),
                      (("ib_send_lat", "-n", 200, "-e"), {}),
                      (("ib_send_bw", "-c", "UD", "-n", 300), {"view": "roce", "way": MANUAL}),
                      (("ib_send_bw", "-c", "UC", "-n", 300, "-b"), {"view": "roce", "way": MANUAL}),
                      (("ib_write_lat", "-n", 200), {}),
                      (("ib_read_lat", "-n", 200, "-e"), {}),
                      (("ib_read_bw", "-n", 300, "-q", 4, "-b"), {"view": "roce", "way": MANUAL}),
                      (("ib_atomic_bw", "-n", 300, "-q", 4), {})):
    _title = " ".join(str(word) for word in (*_words, *_more.get("way", ("-R",))))
    add_row(f"{_title}, {_more.get('view', 'iwarp')}",
            lambda bench, words=_words, more=_more: benchmark(bench, *words, **more))


# ---- UCX ----

TRANSPORTS = {"RC and UD": "rc_verbs,ud_verbs,self", "UD": "ud_verbs,self"}


def ucx(bench, transports):
    for test in (("tag_lat",), ("tag_bw", "-s", 1000000), ("stream_bw", "-s", 10000), ("ucp_put_bw", "-s", 65536),
                 ("ucp_get", "-s", 10000), ("ucp_fadd",)):
        port = bench.port()
        words = ["ucx_perftest", "-p", port]
        pair(bench, words, [*words, HOST, "-n", 50, "-t", *test], port,
             env={**ROCE, "UCX_TLS": transports, "UCX_NET_DEVICES": "uiw_lo:1"})


for _name, _transports in TRANSPORTS.items():
    add_row(f"ucx_perftest over {_name}", lambda bench, transports=_transports: ucx(bench, transports))


@row("io_demo of UCX, roce")
def io_demo(bench):
    harness.need_program("io_demo")
    left, _ = bench.two_hosts()
    more = {"namespace": left, "options": KNOWN,
            "env": {**ROCE, "UCX_NET_DEVICES": "uiw_v0:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}}
    port = bench.port()
    server = bench.start(["io_demo", "-p", port], **more)
    server.wait_listen(port)
    client = bench.run(["io_demo", "-p", port, "-i", 20, "-l", 1, "10.77.0.1"], timeout=40, **more)
    server.kill(signal.SIGINT)  # at which it ends by exit(3)
    server.succeed(10)
    sound(server, client)


# ---- Open MPI ----

UCX = ("--mca", "pml", "ucx", "--mca", "osc", "ucx")
OFI = ("--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm")
PROCESSES = 4


def mpi(bench, options, transports):
    harness.need_program("mpirun", "mpicxx")
    program = os.path.join(bench.tmp, "patterns")
    bench.command(["mpicxx", "-O1", "-o", program, APPLICATIONS / "mpi_patterns.cc"], timeout=60)
    env = {**ROCE, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": bench.tmp}
    if transports:
        env |= {"UCX_TLS": transports, "UCX_NET_DEVICES": "uiw_lo:1"}
    ended = bench.run(["mpirun", "-np", PROCESSES, "--oversubscribe", "--mca", "mpi_yield_when_idle", 1, "--mca", "btl",
                       "^openib", *options, bench.uiw, "run", *KNOWN, "--", program], uiw=False, timeout=60, env=env,
                      namespace=bench.two_hosts()[0], status=None)  # libfabric leaves loopback interfaces out
    sound(ended, count=PROCESSES)
    check(ended.status() == 0 and "right" in ended.stdout, f"wrong data: {ended.output[-300:]}")


for _name, _transports in TRANSPORTS.items():
    add_row(f"Open MPI over UCX, {_name}", lambda bench, transports=_transports: mpi(bench, UCX, transports))
# Open MPI unloads libfabric and librdmacm before it ends.
add_row("Open MPI over libfabric", lambda bench: mpi(bench, OFI, None))


# ---- libfabric ----

def fabric(bench, view, provider, endpoint):
    left, right = bench.two_hosts()
    port = bench.port()
    domain = "uiw_v0-dgram" if endpoint == "dgram" or "rxd" in provider else "uiw_v0"
    words = ["fi_pingpong", "-p", provider, "-e", endpoint, "-d", domain, "-I", 100, "-S", 1024]
    pair(bench, [*words, "-B", port], [*words, "-P", port, "10.77.0.1"], port, env={"UIW_TRANSPORT": view},
         server_more={"namespace": left}, client_more={"namespace": right})


for _view, _provider, _endpoint in (("iwarp", "verbs", "msg"), ("iwarp", "verbs;ofi_rxm", "rdm"),
                                    ("roce", "verbs", "dgram"), ("roce", "verbs;ofi_rxd", "rdm")):
    add_row(f"fi_pingpong -p '{_provider}' -e {_endpoint}, {_view}",
            lambda bench, case=(_view, _provider, _endpoint): fabric(bench, *case))


@row("programs that look at devices: ibv_devinfo, fi_info, ucx_info")
def listing(bench):
    for words in (["ibv_devinfo", "-v"], ["fi_info", "-p", "verbs"], ["ucx_info", "-d"]):
        harness.need_program(words[0])
        sound(bench.run(words, options=KNOWN, env=ROCE))


# ---- fio, qperf, librpma ----

# The processes that fio starts for its jobs end by _exit(2), without a report; threads have one.
def fio(bench, view):
    for verb in ("write", "read", "send"):
        port = bench.port()
        words = ["fio", "--name=job", "--ioengine=rdma", f"--port={port}", "--bs=64k", "--size=4m", "--iodepth=16",
                 "--thread"]
        pair(bench, [*words, "--rw=read"], [*words, "--rw=write", f"--hostname={HOST}", f"--verb={verb}"], port,
             env={"UIW_TRANSPORT": view})


# The process that serves a test ends by a signal, on any adapter: it destroys the queue pair of an id that has none.
def qperf(bench, view, tests):
    harness.need_program("qperf")
    port, env = bench.port(), {"UIW_TRANSPORT": view}
    server = bench.start(["qperf", "-lp", port], env=env, options=KNOWN)
    server.wait_listen(port)
    for test in tests:
        sound(bench.run(["qperf", "-lp", port, "-t", 1, "-cm", 1, HOST, test], env=env, options=KNOWN))
    server.end()
    silent(server)


def rpma(bench, view):
    harness.need_program("g++")
    if not os.path.exists("/usr/include/librpma.h"):
        raise harness.Skip("librpma-dev is not installed")
    program = os.path.join(bench.tmp, "patterns")
    bench.command(["g++", "-O1", "-o", program, APPLICATIONS / "rpma_patterns.cc", "-lrpma", "-libverbs"], timeout=60)
    port = bench.port()
    pair(bench, [program, "server", "10.77.0.1", port], [program, "client", "10.77.0.1", port], port,
         env={"UIW_TRANSPORT": view}, namespace=bench.two_hosts()[0])


QPERF = {"iwarp": ("rc_lat", "rc_bw", "rc_rdma_read_bw", "rc_rdma_write_lat"),
         "roce": ("rc_rdma_write_bw", "rc_compare_swap_mr", "ver_rc_fetch_add")}
for _view in VIEWS:
    add_row(f"fio --ioengine=rdma, {_view}", lambda bench, view=_view: fio(bench, view))
    add_row(f"qperf -cm 1, {_view}", lambda bench, view=_view: qperf(bench, view, QPERF[view]))
    add_row(f"librpma, {_view}", lambda bench, view=_view: rpma(bench, view))

# ---- uDAPL and QEMU: what their own tests do ----

CHECKED = {"UIW_CHECK": "on", "UIW_CHECK_EXIT": str(STATUS), "UIW_CHECK_SUPPRESS": str(SUPPRESSIONS)}
sys.path.append(str(APPLICATIONS))  # the folder has the name of this file
udapl, migration = (harness.borrow(lambda name=name: importlib.import_module(name)) for name in ("udapl", "migration"))


def as_tested(what, *words):
    """A program in which a fault is found ends with a status that fails the test."""
    def checked(bench):
        bench.settings = {**bench.settings, **CHECKED}
        what(bench, *words)
    return checked


for _title, _what, *_words in (("dtest, cma, iwarp", udapl.exchange, "iwarp", "dtest", "cma"),
                               ("dtestsrq, cma, roce", udapl.exchange, "roce", "dtestsrq", "cma"),
                               ("dapltest, scm, roce", udapl.dapltest, "roce", "scm"),
                               ("QEMU's migration, iwarp", migration.migrate, "iwarp", True),
                               ("QEMU's migration, roce", migration.migrate, "roce", False)):
    add_row(_title, as_tested(_what, *_words))

if __name__ == "__main__":
    sys.exit(harness.main())
