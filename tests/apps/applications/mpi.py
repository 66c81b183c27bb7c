# SPDX-License-Identifier: MIT
"""Open MPI in the RoCE view, eight processes: by UCX, and by libfabric."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

# Debian's BTL openib connects by InfiniBand's addresses alone, so it takes no adapter with an Ethernet link layer.
WAYS = {
    "pml ucx, RC and UD": (["--mca", "pml", "ucx", "--mca", "osc", "ucx"],
                           {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_NET_DEVICES": "uiw_lo:1"}),
    "pml ucx, UD": (["--mca", "pml", "ucx", "--mca", "osc", "ucx"],
                    {"UCX_TLS": "ud_verbs,self", "UCX_NET_DEVICES": "uiw_lo:1"}),
    "mtl ofi": (["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm"],
                {}),
}


def run(bench, options, env):
    harness.need_program("mpirun", "mpicxx")
    program = os.path.join(bench.tmp, "patterns")
    source = pathlib.Path(__file__).resolve().with_name("mpi_patterns.cc")
    bench.command(["mpicxx", "-O1", "-o", program, source], timeout=60)
    host = {"namespace": bench.two_hosts()[0]}  # libfabric leaves loopback interfaces out
    ended = bench.run(["mpirun", "-np", 8, "--oversubscribe", "--mca", "mpi_yield_when_idle", 1, "--mca", "btl",
                       "^openib", *options, bench.uiw, "run", "--", program], uiw=False, timeout=100,
                      env={**env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                           "TMPDIR": bench.tmp}, **host)
    check("right" in ended.stdout, f"wrong data: {ended.output[-300:]}")


for _name, (_options, _env) in WAYS.items():
    add_row(f"ring, all to all, one-sided: {_name}",
            lambda bench, options=_options, env=_env: run(bench, options, env))

if __name__ == "__main__":
    harness.Bench.settings = {"UIW_TRANSPORT": "roce"}
    sys.exit(harness.main())
