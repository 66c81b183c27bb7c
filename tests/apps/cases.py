# SPDX-License-Identifier: MIT
"""Rows for the cases of a program of our own (cases.h)."""

import argparse
import os
import subprocess

import harness
from harness import check


def run(bench, program, name, timeout=60, address="127.0.0.1", **more):
    """One case of it."""
    ended = bench.run([bench.helper(program), address, bench.port(), name], timeout=timeout, **more)
    check("as documented" in ended.stdout, "it did not finish")
    return ended


def add_rows(program, prefix="", timeout=60):
    """A row for each case that the program has; where it is not built, one that is skipped."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", default=os.environ.get("UIW_BUILD", "build"))
    path = os.path.join(parser.parse_known_args()[0].build, "tests", "apps", program)
    if not os.access(path, os.X_OK):
        harness.add_row(prefix + program, lambda bench: bench.helper(program))
        return
    for name in subprocess.run([path, "--list"], check=True, capture_output=True, text=True).stdout.split():
        harness.add_row(prefix + name, lambda bench, name=name: run(bench, program, name, timeout))
