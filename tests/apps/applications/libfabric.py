# SPDX-License-Identifier: MIT
"""libfabric's providers over verbs: fi_pingpong between two hosts, since libfabric leaves loopback interfaces out where it
connects."""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

SIZE, COUNT = 1024, 100

# Endpoints for datagrams (dgram, and rxd over them) need queue pairs of type UD.
CASES = {"iwarp": (("verbs", "msg"), ("verbs;ofi_rxm", "rdm")),
         "roce": (("verbs", "msg"), ("verbs", "dgram"), ("verbs;ofi_rxm", "rdm"), ("verbs;ofi_rxd", "rdm"))}


def pingpong(bench, view, provider, endpoint):
    harness.need_program("fi_pingpong")
    left, right = bench.two_hosts()
    port = bench.port()
    # Of datagrams it would take the loopback device, which it lists first.
    domain = "uiw_v0-dgram" if endpoint == "dgram" or "rxd" in provider else "uiw_v0"
    words = ["fi_pingpong", "-p", provider, "-e", endpoint, "-d", domain, "-I", COUNT, "-S", SIZE]
    _, client = bench.pair([*words, "-B", port], [*words, "-P", port, "10.77.0.1"], port, timeout=30,
                           env={"UIW_TRANSPORT": view}, server_more={"namespace": left},
                           client_more={"namespace": right})
    check(re.search(rf"^1k +{COUNT} +={COUNT} ", client.stdout, re.M), f"no result: {client.output[-300:]}")


for _view, _cases in CASES.items():
    for _provider, _endpoint in _cases:
        add_row(f"fi_pingpong -p '{_provider}' -e {_endpoint}, {_view}",
                lambda bench, case=(_view, _provider, _endpoint): pingpong(bench, *case))

if __name__ == "__main__":
    sys.exit(harness.main())
