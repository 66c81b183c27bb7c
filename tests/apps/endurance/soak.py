# SPDX-License-Identifier: MIT
"""Mixed work of all operations on up to 80 connections between two processes (soak.cc): nothing fails, every octet is
right, and memory, descriptors and threads stay as they are.

usage: soak.py --build build [--seconds N] [--seed N] [--row WORDS]     N seconds for all rows together
The seed is printed; the same one repeats the work. What each lap has done is in the standard output of both programs,
which is shown as it comes with --show.
"""

import argparse
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check, wait_until

ROWS = {
    "shared memory": {"UIW_STARTUP_TIMEOUT": "600000"},
    "TCP with CRCs": {"UIW_STARTUP_TIMEOUT": "600000", "UIW_SAME_HOST": "tcp", "UIW_CRC": "on"},
}


def spare(seconds):
    """Seconds beyond those of a row: its last laps, and the start."""
    return max(90, seconds / 4)


def own_arguments():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seconds", type=float, default=100, help="for all rows together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--show", action="store_true", help="print what each lap has done")
    arguments, rest = parser.parse_known_args()
    if "--deadline" not in " ".join(rest):
        rest += ["--deadline", str(arguments.seconds + len(ROWS) * spare(arguments.seconds))]
    sys.argv[1:] = rest
    return arguments


class Follower:
    """Prints what a program says, while it runs."""

    def __init__(self, process):
        self.output = open(process.stdout_path, errors="replace")

    def show(self):
        for line in self.output:
            print("     ", line.rstrip(), flush=True)


def soak(bench, seconds, seed, show, env):
    port = bench.port()
    print(f"      seed {seed}, {seconds:g} s", flush=True)
    words = ["127.0.0.1", port, seconds, seed]
    listener = bench.start([bench.helper("uiw_soak"), "listen", *words], env=env).wait_listen(port)
    caller = bench.start([bench.helper("uiw_soak"), "call", *words], env=env)
    followers = [Follower(each) for each in (caller, listener)] if show else []

    def over():
        for follower in followers:
            follower.show()
        return not caller.running() or not listener.running()

    wait_until(over, seconds + spare(seconds), "the end of a program")
    for end in (caller, listener):
        check(end.wait(spare(seconds)) == 0, f"ended with {harness.describe(end.status())}: {end.name()}; seed {seed}")
        check("as documented" in end.stdout, f"it did not finish; seed {seed}")
    over()


if __name__ == "__main__":
    own = own_arguments()
    for title, settings in ROWS.items():
        add_row(title, lambda bench, env=settings: soak(bench, own.seconds / len(ROWS), own.seed, own.show, env))
    sys.exit(harness.main())
