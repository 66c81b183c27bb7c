# SPDX-License-Identifier: MIT
"""A line between two network namespaces, for kernels without tc netem, and for faults that netem does not have. Not a test.

  lossy_line.py PID PID SECONDS LOSS [FAULT=PROBABILITY...] [rate=BITS]

Makes a TAP device v0 in the namespaces of both processes and carries frames between the two: each arrives SECONDS
later, or with the probability LOSS not at all. Says "ready" when both devices are there. Frames are at most the MTU:
TAP devices without offloads are given no larger ones. Other faults:

  duplicate    a frame arrives twice
  reorder      a frame takes 5 ms more, so that others arrive before it
  flip         one bit of a frame of TCP or UDP is changed, which checksums find; ARP has none, and hosts would remember
               what is wrong
  exchange     two words of 16 bits in the data of TCP change places, which TCP's checksum cannot find

rate: the bits that the line carries in a second, in each direction.
"""

import ctypes
import fcntl
import heapq
import itertools
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
REORDERED = 0.005


def tap(pid):
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"v0", IFF_TAP | IFF_NO_PI))
    return device


def has_checksum(frame):
    """Whether a changed bit in it is found: it is TCP or UDP over IPv4 or IPv6."""
    protocol = {b"\x08\x00": 23, b"\x86\xdd": 20}.get(frame[12:14])
    return protocol is not None and frame[protocol] in (6, 17)


class Line:
    """What is done to frames, each of which is for the device at the other end."""

    def __init__(self, delay, loss, rate=0, duplicate=0, reorder=0, flip=0, exchange=0):
        self.delay, self.loss, self.rate = delay, loss, rate
        self.duplicate, self.reorder, self.flip, self.exchange = duplicate, reorder, flip, exchange
        self.dice = random.Random(5040)
        self.travelling, self.number, self.free = [], itertools.count(), {}

    def happens(self, probability):
        return probability > 0 and self.dice.random() < probability

    def put(self, frame, device):
        if self.happens(self.loss) or len(self.travelling) >= QUEUE:
            return
        now = time.monotonic()
        if self.rate:
            now = self.free[device] = max(now, self.free.get(device, 0)) + len(frame) * 8 / self.rate
        if has_checksum(frame) and self.happens(self.flip):
            frame = self.flipped(frame)
        if self.happens(self.exchange):
            frame = self.exchanged(frame)
        for _ in range(2 if self.happens(self.duplicate) else 1):
            arrival = now + self.delay + (REORDERED if self.happens(self.reorder) else 0)
            heapq.heappush(self.travelling, (arrival, next(self.number), device, frame))

    def flipped(self, frame):
        changed = bytearray(frame)
        changed[self.dice.randrange(14, len(frame))] ^= 1 << self.dice.randrange(8)
        return bytes(changed)

    def exchanged(self, frame):
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            return frame  # not TCP over IPv4
        data = 14 + (frame[14] & 15) * 4
        data += (frame[data + 12] >> 4) * 4
        words = range(data, 14 + int.from_bytes(frame[16:18], "big") - 1, 2)
        if len(words) < 100:  # a large segment: one of data, not of start-up
            return frame
        first, second = self.dice.sample(words, 2)
        changed = bytearray(frame)
        changed[first:first + 2], changed[second:second + 2] = frame[second:second + 2], frame[first:first + 2]
        return bytes(changed)


def main():
    left, right = tap(sys.argv[1]), tap(sys.argv[2])
    line = Line(float(sys.argv[3]), float(sys.argv[4]), **{name: float(value) for name, value in
                                                           (word.split("=") for word in sys.argv[5:])})
    other = {left: right, right: left}
    poller = select.epoll()
    for device in other:
        poller.register(device, select.EPOLLIN)
    print("ready", flush=True)
    while True:
        wait = max(0, line.travelling[0][0] - time.monotonic()) if line.travelling else 1
        for device, _ in poller.poll(wait):
            for _ in range(64):
                try:
                    frame = os.read(device, 65536)
                except OSError:
                    break
                line.put(frame, other[device])
        now = time.monotonic()
        while line.travelling and line.travelling[0][0] <= now:
            _, _, device, frame = heapq.heappop(line.travelling)
            try:
                os.write(device, frame)
            except OSError:
                pass  # the device is down, or full


if __name__ == "__main__":
    main()
