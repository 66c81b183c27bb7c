# SPDX-License-Identifier: MIT
"""XRC in the RoCE view: a program of our own, libibverbs' pingpong, perftest and librdmacm's example."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness, perftest
from support.harness import add_row, row

ROCE = {"UIW_TRANSPORT": "roce"}
LEFT = [pathlib.Path("/tmp", name) for name in ("xrc_domain", "xrc_domain_server", "xrc_domain_client")]


def tidies_up(talk):
    """ibv_xsrq_pingpong and perftest name their domains by files, which they leave."""
    def row_of(bench):
        before = [path for path in LEFT if path.exists()]
        try:
            talk(bench)
        finally:
            for path in LEFT:
                if path not in before:
                    path.unlink(missing_ok=True)
    return row_of


cases.add_rows("uiw_xrc", "program: ", run_one=lambda bench, *words: cases.run(bench, *words, env=ROCE))


@row("ibv_xsrq_pingpong")
@tidies_up
def pingpong(bench):
    port = bench.port()
    words = ["ibv_xsrq_pingpong", "-d", "uiw_lo", "-g", 0, "-n", 200, "-p", port]
    bench.pair(words, [*words, "127.0.0.1"], port, timeout=30, env=ROCE)


def add(program, *options):
    words = (program, "-c", "XRC", *options)
    add_row(" ".join(str(word) for word in words),
            tidies_up(lambda bench: perftest.one(bench, *words, way=("-d", "uiw_lo", "-x", 0), env=ROCE)))


for _verb in ("send", "write", "read", "atomic"):
    add(f"ib_{_verb}_bw", "-n", 500)
    add(f"ib_{_verb}_lat", "-n", 200)
add("ib_send_bw", "-b", "-q", 4, "-n", 200)
add("ib_send_bw", "-e", "-n", 200)
add("ib_send_bw", "--use_old_post_send", "-n", 200)


@row("rdma_xserver and rdma_xclient, -c x")
def by_rdma_cm(bench):
    port = bench.port()
    bench.pair(["rdma_xserver", "-p", port, "-c", "x"], ["rdma_xclient", "-s", "127.0.0.1", "-p", port, "-c", "x"],
               port, timeout=20, env=ROCE)


if __name__ == "__main__":
    sys.exit(harness.main())
