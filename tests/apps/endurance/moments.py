# SPDX-License-Identifier: MIT
"""A peer is killed, or stopped and killed, or stopped and continued, at random moments (moments.cc): the survivor's
connection to it ends in bounded time and in the right way, and its other connections do not notice.

usage: moments.py --build build [--moments N] [--seed N] [--row WORDS]     N moments for each row
Without --moments, a few hundred through shared memory; with it, by TCP and in the RoCE view too.
The seed is printed; the same one repeats the choice of moments, though not the timing of the machine.
"""

import argparse
import pathlib
import random
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import add_row, check

ROWS = {"shared memory": {}}
BY_HAND = {
    "TCP": {"UIW_SAME_HOST": "tcp"},
    "the RoCE view": {"UIW_TRANSPORT": "roce"},
}
EACH = 0.5  # seconds at most that a moment takes on a slow machine
SPARE = 40
CONNECTING = "40000"  # milliseconds at most; see moments_link.h


def own_arguments():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--moments", type=int, help="of each row")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments, rest = parser.parse_known_args()
    if arguments.moments:
        ROWS.update(BY_HAND)
    arguments.moments = arguments.moments or 400
    if "--deadline" not in rest:
        rest += ["--deadline", str(len(ROWS) * (arguments.moments * EACH + SPARE))]
    sys.argv[1:] = rest
    return arguments


def moments(bench, count, seed, env):
    print(f"      seed {seed}", flush=True)
    run = bench.run([bench.helper("uiw_moments"), "survive", "127.0.0.1", count, seed], timeout=count * EACH + SPARE,
                    env={"UIW_STARTUP_TIMEOUT": CONNECTING, **env})
    check("as documented" in run.stdout, "it did not finish")
    for line in run.stdout.splitlines()[-4:-1]:
        print("     ", line, flush=True)


if __name__ == "__main__":
    own = own_arguments()
    for title, settings in ROWS.items():
        add_row(title, lambda bench, env=settings: moments(bench, own.moments, own.seed, env))
    sys.exit(harness.main())
