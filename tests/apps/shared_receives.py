# SPDX-License-Identifier: MIT
"""Shared receive queues: perftest --use-srq, a program of our own, and XRC refused."""

import sys

import harness
import perftest
from harness import check, describe, row

BW, LAT = ("ib_send_bw", "--use-srq"), ("ib_send_lat", "--use-srq")


def add(program, *options, run=perftest.one, **more):
    words = [*program, *options]
    harness.add_row(" ".join(str(word) for word in (program[0], "-R", *words[1:])),
                    lambda bench: run(bench, *words, **more))


add(BW, "-n", 1000)
add(BW, "-n", 1000, "-s", 8, "-r", 16)
add(BW, "-q", 16, "-n", 500)
add(BW, "-q", 16, "-n", 500, "-r", 64)
add(BW, "-b", "-q", 4, "-n", 500)
add(BW, "-n", 20, "-a", "-q", 2, run=lambda bench, program, *options: perftest.every_size(
    bench, program, *(option for option in options if option != "-a")), timeout=45)
add(LAT, "-n", 2000)


def case(bench, name):
    program, port = bench.helper("uiw_shared_receives"), bench.port()
    check(bench.run([program, "127.0.0.1", port, name], timeout=60).stdout == "good\n", "it does not say good")


for _case in ("share", "share-one", "share-sleeping", "limit", "last", "acknowledge", "refused"):
    row(f"program: {_case}", name=_case)(case)


@row("ibv_xsrq_pingpong: refused before anything is made")
def xrc(bench):
    harness.need_program("ibv_xsrq_pingpong")
    run = bench.run(["ibv_xsrq_pingpong", "-p", bench.port()], status=None, timeout=20)
    check(run.status() > 0, f"ended with {describe(run.status())}")


@row("rdma_xserver -c x: refused")
def xrc_by_rdma_cm(bench):
    harness.need_program("rdma_xserver")
    run = bench.run(["rdma_xserver", "-c", "x", "-p", bench.port()], status=None, timeout=20)
    check(run.status() > 0, f"ended with {describe(run.status())}")


if __name__ == "__main__":
    sys.exit(harness.main())
