# SPDX-License-Identifier: MIT
"""Rows for the cases of a program of our own (cases.h)."""

import argparse
import os
import subprocess

from support import harness
from support.harness import check


def run(bench, program, name, timeout=60, address="127.0.0.1", **more):
    """One case of it."""
    ended = bench.run([bench.helper(program), address, bench.port(), name], timeout=timeout, **more)
    check("as documented" in ended.stdout, "it did not finish")
    return ended


def pair(bench, program, name, timeout=60, **env):
    """One case that two programs carry out (two_programs.h)."""
    port = bench.port()
    words = [bench.helper(program), "127.0.0.1", port, name]
    ends = bench.pair([words[0], "listen", *words[1:]], [words[0], "call", *words[1:]], port, timeout=timeout, env=env)
    for end in ends:
        check("as documented" in end.stdout, "it did not finish")
    return ends


def names(program):
    """The cases that the program has; none where it is not built."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", default=os.environ.get("UIW_BUILD", "build"))
    path = os.path.join(parser.parse_known_args()[0].build, "tests", "apps", program)
    if not os.access(path, os.X_OK):
        return []
    return subprocess.run([path, "--list"], check=True, capture_output=True, text=True).stdout.split()


def add_rows(program, prefix="", timeout=60, run_one=run, but=()):
    """A row for each case that the program has, `but` these; where it is not built, one that is skipped."""
    found = names(program)
    if not found:
        harness.add_row(prefix + program, lambda bench: bench.helper(program))
    for name in found:
        if name not in but:
            harness.add_row(prefix + name, lambda bench, name=name: run_one(bench, program, name, timeout))


def add_pair_rows(program, timeout, rule, view="iwarp", but=()):
    """The same for cases of two programs, by a completion rule and in a view."""
    add_rows(program, f"{rule} rule, {view} view: ", timeout,
             lambda bench, program, name, timeout: pair(bench, program, name, timeout, UIW_COMPLETION=rule,
                                                        UIW_TRANSPORT=view), but)
