# SPDX-License-Identifier: MIT
"""qperf and fio, which have RDMA among other things, and a program over librpma, in both views."""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

VIEWS = ("iwarp", "roce")
# Without -cm 1 qperf addresses its peer by a LID, which no adapter with an Ethernet link layer has; so has it no datagrams.
QPERF = ("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw",
         "rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")


def qperf(bench, view):
    harness.need_program("qperf")
    port, env = bench.port(), {"UIW_TRANSPORT": view}
    server = bench.start(["qperf", "-lp", port], env=env)
    server.wait_listen(port)
    for test in QPERF:
        text = bench.run(["qperf", "-lp", port, "-t", 1, "-cm", 1, "127.0.0.1", test], env=env).stdout
        found = re.search(r"^ +(?:latency|bw|send_bw|msg_rate) += +([\d.]+)", text, re.M)
        check(found and float(found[1]) > 0, f"{test}: {text}")
    server.end()


def fio(bench, view, verb):
    harness.need_program("fio")
    port = bench.port()
    words = ["fio", "--name=job", "--ioengine=rdma", f"--port={port}", "--bs=64k", "--size=16m", "--iodepth=16"]
    _, client = bench.pair([*words, "--rw=read"], [*words, "--rw=write", "--hostname=127.0.0.1", f"--verb={verb}"],
                           port, env={"UIW_TRANSPORT": view})
    check("err= 0" in client.stdout and "io=16.0MiB" in client.stdout, f"no result: {client.output[-300:]}")


def rpma(bench, view):
    harness.need_program("g++")
    if not os.path.exists("/usr/include/librpma.h"):
        raise harness.Skip("librpma-dev is not installed")
    program = os.path.join(bench.tmp, "patterns")
    source = pathlib.Path(__file__).resolve().with_name("rpma_patterns.cc")
    bench.command(["g++", "-O1", "-o", program, source, "-lrpma", "-libverbs"], timeout=60)
    port = bench.port()
    # librpma looks for a device by a bind to port 0, which gives none to a loopback address, as in the kernel.
    host = bench.two_hosts()[0]
    for run in bench.pair([program, "server", "10.77.0.1", port], [program, "client", "10.77.0.1", port], port,
                          env={"UIW_TRANSPORT": view}, namespace=host):
        check("right" in run.stdout, f"wrong data: {run.output[-300:]}")


for _view in VIEWS:
    add_row(f"librpma: write, flush, atomic write, read, send, {_view}", lambda bench, view=_view: rpma(bench, view))
    add_row(f"qperf -cm 1, {_view}", lambda bench, view=_view: qperf(bench, view))
    for _verb in ("write", "read", "send"):
        add_row(f"fio --ioengine=rdma --verb={_verb}, {_view}",
                lambda bench, view=_view, verb=_verb: fio(bench, view, verb))

if __name__ == "__main__":
    sys.exit(harness.main())
