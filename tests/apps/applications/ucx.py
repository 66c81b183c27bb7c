# SPDX-License-Identifier: MIT
"""UCX in the RoCE view: its benchmark over RC and UD queue pairs of uiw and over UD alone."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check, row

# UCX connects RC queue pairs by messages over UD ones.
TRANSPORTS = {"RC and UD": "rc_verbs,ud_verbs,self", "UD": "ud_verbs,self"}

TESTS = (("tag_lat",), ("tag_bw", "-s", 100000), ("stream_lat",), ("stream_bw", "-s", 10000), ("ucp_am_lat",),
         ("ucp_am_bw", "-s", 100000), ("ucp_put_lat",), ("ucp_put_bw", "-s", 65536), ("ucp_get", "-s", 10000),
         ("ucp_add",), ("ucp_fadd",), ("ucp_swap",), ("ucp_cswap",))


def environment(transports):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": "uiw_lo:1"}


def benchmark(bench, transports, *test):
    harness.need_program("ucx_perftest")
    port = bench.port()
    words = ["ucx_perftest", "-p", port]
    _, client = bench.pair(words, [*words, "127.0.0.1", "-n", 50, "-t", *test], port, timeout=40,
                           env=environment(transports))
    check(re.search(r"^Final: +50 ", client.stdout, re.M), f"no result: {client.stdout[-300:]}")


for _name, _transports in TRANSPORTS.items():
    for _test in TESTS:
        add_row(f"{' '.join(str(word) for word in _test)} over {_name}",
                lambda bench, transports=_transports, test=_test: benchmark(bench, transports, *test))


@row("io_demo: client and server find each other by rdma_cm, one port for RDMA and TCP, UCX's choice of transports")
def by_address(bench):
    harness.need_program("io_demo")
    left, _ = bench.two_hosts()
    more = {"namespace": left, "env": {"UCX_NET_DEVICES": "uiw_v0:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}}
    port = bench.port()
    server = bench.start(["io_demo", "-p", port], **more)
    server.wait_listen(port)
    client = bench.run(["io_demo", "-p", port, "-i", 20, "-l", 1, "10.77.0.1"], timeout=40,
                       options=("--log", "-"), **more)
    check("Client exit with status 'OK'" in client.output, f"no result: {client.output[-500:]}")
    check("(rdma_cm, calling;" in client.output, "the connection was not made by rdma_cm")
    server.end()


@row("ucx_info lists RC and UD of the device")
def listed(bench):
    harness.need_program("ucx_info")
    text = bench.run(["ucx_info", "-d"]).stdout
    for transport in ("rc_verbs", "ud_verbs"):
        check(re.search(rf"Transport: {transport}\n#\s+Device: uiw_lo:1\n", text), f"no {transport} of uiw_lo")


if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
