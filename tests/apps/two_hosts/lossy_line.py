# SPDX-License-Identifier: MIT
"""A line between two network namespaces that delays and loses, for kernels without tc netem. Not a test.

  lossy_line.py PID PID SECONDS LOSS

Makes a TAP device v0 in the namespaces of both processes and carries frames between the two: each arrives SECONDS
later, or with the probability LOSS not at all. Says "ready" when both devices are there. Frames are at most the MTU:
TAP devices without offloads are given no larger ones.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
QUEUE = 20000  # frames on their way, as netem's limit


def tap(pid):
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"v0", IFF_TAP | IFF_NO_PI))
    return device


def main():
    left, right = tap(sys.argv[1]), tap(sys.argv[2])
    delay, loss = float(sys.argv[3]), float(sys.argv[4])
    dice = random.Random(5040)
    other = {left: right, right: left}
    poller = select.epoll()
    for device in other:
        poller.register(device, select.EPOLLIN)
    print("ready", flush=True)
    travelling = collections.deque()
    while True:
        wait = max(0, travelling[0][0] - time.monotonic()) if travelling else 1
        for device, _ in poller.poll(wait):
            for _ in range(64):
                try:
                    frame = os.read(device, 65536)
                except OSError:
                    break
                if dice.random() >= loss and len(travelling) < QUEUE:
                    travelling.append((time.monotonic() + delay, other[device], frame))
        now = time.monotonic()
        while travelling and travelling[0][0] <= now:
            _, device, frame = travelling.popleft()
            try:
                os.write(device, frame)
            except OSError:
                pass  # the device is down, or full


if __name__ == "__main__":
    main()
