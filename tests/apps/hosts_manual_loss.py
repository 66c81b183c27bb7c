# SPDX-License-Identifier: MIT
"""Queue pairs connected without rdma_cm between two hosts, over a line that delays by 1 ms and loses 0.1 %."""

import sys

import harness
import hosts_manual
import hosts_loss

if __name__ == "__main__":
    hosts_manual.rows(hosts_loss.lossy, "1 ms, 0.1 % loss", 10)
    sys.exit(harness.main())
