# SPDX-License-Identifier: MIT
"""Work that fails on manual connections: a row for each case of uiw_statuses, by each completion rule."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import cases, harness

if __name__ == "__main__":
    cases.add_pair_rows("uiw_statuses", 40, "remote")
    # Where no connection ever stands, there is no rule.
    cases.add_pair_rows("uiw_statuses", 40, "local", but=("retry_no_queue_pair", "retry_no_rtr", "retry_other_peer"))
    sys.exit(harness.main())
