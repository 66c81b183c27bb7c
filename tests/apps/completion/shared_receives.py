# SPDX-License-Identifier: MIT
"""Shared receive queues: perftest, a program of our own, and XRC refused."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, perftest
from support.harness import check, describe, row


def add(program, *options, run=perftest.one, **more):
    words = [program, "--use-srq", *options]
    every = ("-a",) if run is perftest.every_size else ()
    harness.add_row(" ".join(str(word) for word in (program, "-R", *every, *words[1:])),
                    lambda bench: run(bench, *words, **more))


add("ib_send_bw", "-n", 1000)
add("ib_send_bw", "-n", 1000, "-s", 8, "-r", 16)
add("ib_send_bw", "-n", 1000, "-s", 1048576, "-r", 8)
add("ib_send_bw", "-b", "-n", 1000)
add("ib_send_bw", "-n", 20, run=perftest.every_size, timeout=45)
add("ib_send_lat", "-n", 2000)
harness.known("ib_send_bw -R --use-srq -q 16",
              "over iWARP its server gives credits by wr_id, which does not name the sender's queue pair where "
              "receives are shared: some senders wait for good, on any adapter",
              lambda bench: perftest.one(bench, "ib_send_bw", "--use-srq", "-q", 16, "-n", 500))


for _case in ("share", "share-one", "share-sleeping", "limit", "last", "acknowledge", "refused"):
    row(f"program: {_case}", program="uiw_shared_receives", name=_case)(cases.run)


@row("ibv_xsrq_pingpong: refused before anything is made")
def xrc(bench):
    harness.need_program("ibv_xsrq_pingpong")
    run = bench.run(["ibv_xsrq_pingpong", "-p", bench.port()], status=None, timeout=20)
    check(run.status() > 0, f"ended with {describe(run.status())}")


@row("rdma_xclient -c x: refused before it connects")
def xrc_by_rdma_cm(bench):
    harness.need_program("rdma_xclient")
    run = bench.run(["rdma_xclient", "-c", "x", "-s", "127.0.0.1", "-p", bench.port()], status=None, timeout=20)
    check(run.status() > 0, f"ended with {describe(run.status())}")
    check("Operation not supported" in run.output, "it does not say why")


if __name__ == "__main__":
    sys.exit(harness.main())
