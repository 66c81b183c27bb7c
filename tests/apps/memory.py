# SPDX-License-Identifier: MIT
"""Memory regions of every kind, memory windows, invalidation, fences, device memory: a row for each case of uiw_memory."""

import argparse
import os
import subprocess
import sys

import harness
from harness import check


def case(name):
    def run(bench):
        program, port = bench.helper("uiw_memory"), bench.port()
        check("as documented" in bench.run([program, "127.0.0.1", port, name], timeout=60).stdout, "it did not finish")

    return run


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", default=os.environ.get("UIW_BUILD", "build"))
    build = parser.parse_known_args()[0].build
    program = os.path.join(build, "tests", "apps", "uiw_memory")
    if not os.access(program, os.X_OK):
        harness.add_row("memory", lambda bench: bench.helper("uiw_memory"))
    else:
        for name in subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split():
            harness.add_row(name, case(name))
    return harness.main()


if __name__ == "__main__":
    sys.exit(main())
