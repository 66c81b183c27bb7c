# SPDX-License-Identifier: MIT
"""Every byte at its place and no other byte changed: uiw_patterns, of every size and alignment."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


def two(bench, *options, address="127.0.0.1", timeout=40, env=None):
    program, port = bench.helper("uiw_patterns"), bench.port()
    server, client = bench.pair([program, "server", address, port, *options],
                                [program, "client", address, port, *options], port, timeout=timeout, env=env)
    check(re.search(r"^patterns: \d+ cases$", server.stdout + client.stdout, re.M), "the active end did not finish")
    check("all octets right" in server.stdout + client.stdout, "the verifying end did not finish")


row("every size and alignment, two processes")(two)
row("every size and alignment, CRC on")(lambda bench: two(bench, env={"UIW_CRC": "on"}))
row("every size and alignment, the connecting end verifies")(lambda bench: two(bench, "--reverse"))
row("completion channels instead of polling")(lambda bench: two(bench, "--events", "--brief"))
row("completion channels, the connecting end verifies")(lambda bench: two(bench, "--events", "--brief", "--reverse"))
row("IPv6")(lambda bench: two(bench, "--brief", address="::1"))
row("small ULPDUs, CRC on")(lambda bench: two(bench, "--brief", env={"UIW_CRC": "on", "UIW_MULPDU": "512"}))
row("CRC off")(lambda bench: two(bench, "--brief", env={"UIW_CRC": "off"}))
row("MPA revision 1")(lambda bench: two(bench, "--brief", env={"UIW_MPA_REVISION": "1"}))


@row("both ends in one process")
def one_process(bench):
    bench.run([bench.helper("uiw_patterns"), "self", "127.0.0.1", bench.port(), "--brief"], timeout=20)


@row("CRC demanded by one end only")
def one_demands(bench):
    program, port = bench.helper("uiw_patterns"), bench.port()
    for server, client in (("on", "off"), ("off", "on")):
        bench.pair([program, "server", "127.0.0.1", port, "--few"], [program, "client", "127.0.0.1", port, "--few"],
                   port, server_more={"env": {"UIW_CRC": server}}, client_more={"env": {"UIW_CRC": client}})


if __name__ == "__main__":
    sys.exit(harness.main())
