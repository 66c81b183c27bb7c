# SPDX-License-Identifier: MIT
"""Extended completion queues, timestamps, resize, moderation, overrun and parent domains, over a connection: a row for
each case of uiw_queues."""

import sys

import cases
import harness

if __name__ == "__main__":
    cases.add_rows("uiw_queues")
    sys.exit(harness.main())
