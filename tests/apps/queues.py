# SPDX-License-Identifier: MIT
"""Extended completion queues, timestamps, resize, moderation, overrun and parent domains, over a connection."""

import sys

import harness


def case(name):
    def run(bench):
        bench.run([bench.helper("uiw_queues"), "127.0.0.1", bench.port(), name], timeout=60)

    return run


for _name in ("extended", "moderated", "overrun", "parent_domain", "resized"):
    harness.add_row(_name, case(_name))

if __name__ == "__main__":
    sys.exit(harness.main())
