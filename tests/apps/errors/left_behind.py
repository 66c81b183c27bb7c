# SPDX-License-Identifier: MIT
"""kill -9 of either end of a manual connection: a row for each case of uiw_left_behind, by each completion rule,
with the survivor as the end that calls, and as the one that is called."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness
from support.harness import check

HOST = "127.0.0.1"


def killed(bench, program, case, rule, calls):
    # The smaller number calls, and numbers are made of ports.
    lower, higher = sorted((bench.port(), bench.port()))
    own, other = (lower, higher) if calls else (higher, lower)
    path, line = bench.helper(program), bench.port()

    def start(side, port):
        env = {"UIW_COMPLETION": rule, "UIW_PORT_RANGE": f"{port}-{port}"}
        return bench.start([path, side, HOST, line, case], env=env)

    survivor = start("listen", own).wait_listen(line)
    victim = start("call", other)
    victim.may_die = True
    survivor.succeed(40)
    check("as documented" in survivor.stdout, "it did not finish")
    check(victim.wait(5) == -9, "the victim was not killed")


if __name__ == "__main__":
    # Where the victim dies before there is a connection, there is no rule.
    for rule in ("remote", "local"):
        for calls in (True, False):
            cases.add_rows("uiw_left_behind", f"{rule} rule, the survivor {'calls' if calls else 'is called'}: ", 40,
                           lambda bench, program, name, timeout, rule=rule, calls=calls:
                           killed(bench, program, name, rule, calls), () if rule == "remote" else ("before_rtr",))
    sys.exit(harness.main())
