# SPDX-License-Identifier: MIT
"""pyverbs asks for the state of the port of uiw_lo until it is down, after SIGUSR1 to itself, and up again, after SIGUSR2.
Prints each state. Run under uiw with faults at these signals."""

import os
import signal
import sys
import time

from pyverbs.device import Context

STATES = {1: "DOWN", 4: "ACTIVE"}  # of ibv_port_state


def wait_for(context, state):
    end = time.monotonic() + 20
    while context.query_port(1).state != state:
        if time.monotonic() > end:
            sys.exit(f"the port is still {STATES[context.query_port(1).state]}")
        time.sleep(0.001)
    print(STATES[state])


with Context(name="uiw_lo") as opened:
    wait_for(opened, 4)
    os.kill(os.getpid(), signal.SIGUSR1)
    wait_for(opened, 1)
    os.kill(os.getpid(), signal.SIGUSR2)
    wait_for(opened, 4)
