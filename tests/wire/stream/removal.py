# SPDX-License-Identifier: MIT
"""The network interface of a device goes away under a program that listens on it."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer.sut import PATIENCE, Sut, main, row

DEVICE_FATAL = 8  # enum ibv_event_type


@row("the interface goes away: IBV_EVENT_DEVICE_FATAL and RDMA_CM_EVENT_DEVICE_REMOVAL")
def removal(bench):
    left, _ = bench.two_hosts()
    sut = Sut(bench, address="10.77.0.1", namespace=left)
    sut.listen()
    left.ip("link", "del", "v0")
    sut.wait(lambda: True if (DEVICE_FATAL, 0) in sut.asyncs else None, PATIENCE, "IBV_EVENT_DEVICE_FATAL")
    sut.wait(lambda: True if ("DEVICE_REMOVAL", "l") in [(event.name, event.conn) for event in sut.events] else None,
             PATIENCE, "RDMA_CM_EVENT_DEVICE_REMOVAL of the listener")


if __name__ == "__main__":
    sys.exit(main())
