# SPDX-License-Identifier: MIT
"""Extended completion queues, timestamps, resize, moderation, overrun and parent domains, over a connection: a row for
each case of uiw_queues."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_rows("uiw_queues")
    sys.exit(harness.main())
