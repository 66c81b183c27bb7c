# SPDX-License-Identifier: MIT
"""Programs that make up for lost datagrams themselves, in the RoCE view, and programs over TCP, between two hosts whose line
loses one packet of a hundred."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import add_row, check, row
from two_hosts import hosts_loss

ADDRESS = "10.77.0.1"


def sides(bench):
    left, right = hosts_loss.lossy(bench, 1)
    return {"server_more": {"namespace": left}, "client_more": {"namespace": right}}


def ucx(bench, transports, *test):
    harness.need_program("ucx_perftest")
    port, more = bench.port(), sides(bench)
    env = {"UCX_TLS": transports, "UCX_NET_DEVICES": "uiw_v0:1"}
    words = ["ucx_perftest", "-p", port]
    _, client = bench.pair(words, [*words, ADDRESS, "-n", 300, "-w", 10, "-t", *test], port, timeout=40, env=env, **more)
    check(re.search(r"^Final: +300 ", client.stdout, re.M), f"no result: {client.stdout[-300:]}")


for _name, _transports in (("RC and UD", "rc_verbs,ud_verbs,self"), ("UD", "ud_verbs,self")):
    for _test in (("tag_lat",), ("tag_bw", "-s", 20000)):
        add_row(f"ucx_perftest {' '.join(str(word) for word in _test)} over {_name}",
                lambda bench, transports=_transports, test=_test: ucx(bench, transports, *test))


@row("fi_pingpong over ofi_rxd")
def rxd(bench):
    harness.need_program("fi_pingpong")
    port = bench.port()
    words = ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-d", "uiw_v0-dgram", "-I", 100, "-S", 1024]
    _, client = bench.pair([*words, "-B", port], [*words, "-P", port, ADDRESS], port, timeout=40, **sides(bench))
    check(re.search(r"^1k +100 +=100 ", client.stdout, re.M), f"no result: {client.output[-300:]}")


@row("rping")
def rping(bench):
    pings.pair(bench, "-C", 100, "-V", "-S", 20000, host=ADDRESS, timeout=40, **sides(bench))


if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
