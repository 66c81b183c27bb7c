# SPDX-License-Identifier: MIT
"""Allocations and system calls of uiw's that fail, one in each run of a program's life (uiw_faults): the call that met it
says so, or work and events do, with an errno or a status that fits; nothing is left behind, another connection goes on, and
the next life is as any.

Each row takes some of the places in uiw that make such calls. `--setting FAULTS=all` takes every call, which takes some
hours, and `--setting FAULTS=sites` every place once; both want a longer --deadline."""

import os
import re
import sys

from places import readable  # also makes support importable
from support import harness
from support.harness import add_row, check

COUNTS = re.compile(r"^(\d+) calls, (\d+) faults, (\d+) met, (\d+) made no difference, (\d+) wrong$", re.M)


def sweep(bench, life, options=(), every=1, start=0, settings=None):
    folder = os.path.join(bench.build, "tests", "faults")
    preloaded = os.path.join(folder, "libfaults.so") + " " + bench.preload
    extent = {"all": [], "sites": ["--sites"]}.get(bench.settings.get("FAULTS"),
                                                   ["--sites", "--every", every, "--from", start])
    run = bench.run([os.path.join(folder, "uiw_faults"), life, *options, *extent, "--jobs", len(os.sched_getaffinity(0))],
                    timeout=24 * 3600, status=None, uiw=False, env={"LD_PRELOAD": preloaded, **(settings or {})})
    wrong = [line for line in run.stdout.splitlines() if line.startswith("WRONG")]
    check(not wrong, readable(bench, "\n".join(wrong)))
    counts = COUNTS.search(run.stdout)
    check(counts and run.status() == 0, f"ended with {harness.describe(run.status())}")
    check(int(counts[3]) * 10 > int(counts[2]) * 9, f"few of the faults were met: {counts[0]}")
    print(f"      {counts[0]}")


MEMORY = {"options": ["--allocations"]}  # what is allocated is counted too; connections of rdma_cm leave more or less of it
TCP, ROCE = {"UIW_SAME_HOST": "tcp"}, {"UIW_TRANSPORT": "roce"}
for number, (title, life, every, more) in enumerate([
        ("two queue pairs that ibv_modify_qp connects", "manual", 20, MEMORY),
        ("the same by TCP, beside another connection", "manual", 20, {"options": ["--warm"], "settings": TCP}),
        ("a connection of rdma_cm", "cm", 40, {}),
        ("the same by TCP, beside another connection", "cm", 20, {"options": ["--warm"], "settings": TCP}),
        ("objects of every kind", "objects", 20, MEMORY),
        ("datagrams", "datagram", 20, {"settings": ROCE}),
        ("a connection of rdma_cm, each place that allocates", "cm", 1, {"options": ["--function", "memory"]}),
        ("datagrams, each place that allocates", "datagram", 1, {"options": ["--function", "memory"], "settings": ROCE}),
        ("an empty runtime directory", "objects", 40, {"options": ["--fresh"]})]):
    add_row(f"{life}: {title}",
            lambda bench, life=life, every=every, start=number, more=more: sweep(bench, life, every=every, start=start,
                                                                                 **more))

if __name__ == "__main__":
    sys.exit(harness.main())
