# SPDX-License-Identifier: MIT
"""Queue pairs connected without rdma_cm between two hosts, over a line that delays by 1 ms and loses 0.1 %."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from two_hosts import hosts_loss
from two_hosts import hosts_manual

if __name__ == "__main__":
    hosts_manual.rows(hosts_loss.lossy, "1 ms, 0.1 % loss", 10)
    sys.exit(harness.main())
