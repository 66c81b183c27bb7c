# SPDX-License-Identifier: MIT
"""The format of docs/datagrams.md written down once more, from that text alone, to test uiw's datagrams from outside.

The encoder takes what it is told, also what the text forbids. The decoder holds every octet against the text and raises
Failure. DatagramPeer is a UDP socket that holds a queue pair number, and DatagramSession one beside a queue pair of
type UD in a program under uiw."""

import select
import socket
import struct

from peer.sut import INIT, RTR, RTS, WC_GRH, WC_RECV, WC_WITH_IMM, Sut
from peer.wire import PATIENCE, Failure, check, crc32c, wait_until

KEY, VERSION = b"uiwd", 1
DDP = 0x41
SEND, SEND_SE, SEND_IMM, SEND_SE_IMM = 0x43, 0x45, 0x4F, 0x4E
HEADER, CRC, OVERHEAD = 38, 4, 42
GRH = 40
MULTICAST = 0xFFFFFF
LAYOUT = ">4sB3sIIIBBIIII"
assert struct.calcsize(LAYOUT) == HEADER
# The names of the fields, in the order of the layout.
FIELDS = ("key", "version", "reserved", "destination", "source", "qkey", "ddp", "rdmap", "inv", "qn", "msn", "mo")


def sealed(octets):
    """With the CRC behind it."""
    return octets + struct.pack("<I", crc32c(octets))


def datagram(destination, source, qkey, payload=b"", **other):
    """other: fields by name, which are otherwise as they should be; `damage` is XORed into the CRC."""
    field = {"key": KEY, "version": VERSION, "reserved": bytes(3), "destination": destination, "source": source,
             "qkey": qkey, "ddp": DDP, "rdmap": SEND, "inv": 0, "qn": 0, "msn": 1, "mo": 0}
    damage = other.pop("damage", 0)
    assert set(other) <= set(field), other
    field.update(other)
    body = struct.pack(LAYOUT, *(field[name] for name in FIELDS)) + payload
    return body + struct.pack("<I", crc32c(body) ^ damage)


class Datagram:
    """One that was received. immediate: the four octets, or None."""

    def __init__(self, octets, port=None):
        check(len(octets) >= OVERHEAD, f"a datagram of {len(octets)} octets: {octets.hex()}")
        self.raw, self.port = octets, port
        for name, value in zip(FIELDS, struct.unpack(LAYOUT, octets[:HEADER])):
            setattr(self, name, value)
        self.payload = octets[HEADER:-CRC]
        check(octets[-CRC:] == struct.pack("<I", crc32c(octets[:-CRC])), f"CRC: {self}")
        check((self.key, self.version, self.reserved) == (KEY, VERSION, bytes(3)), f"first octets: {self}")
        check(self.destination >> 24 == 0 and self.source >> 24 == 0, f"more than 24 bits: {self}")
        check(self.source != MULTICAST, f"the source is multicast's number: {self}")
        check(self.ddp == DDP, f"DDP control: {self}")
        check(self.rdmap in (SEND, SEND_SE, SEND_IMM, SEND_SE_IMM), f"RDMAP control: {self}")
        self.solicited = self.rdmap in (SEND_SE, SEND_SE_IMM)
        self.immediate = struct.pack(">I", self.inv) if self.rdmap in (SEND_IMM, SEND_SE_IMM) else None
        check(self.immediate is not None or self.inv == 0, f"Invalidate STag: {self}")
        check((self.qn, self.mo) == (0, 0), f"queue number and message offset: {self}")
        check(port in (None, self.source >> 8), f"from port {port}: {self}")

    def __repr__(self):
        return f"datagram {self.raw[:HEADER].hex()} {len(self.raw)} octets"


class DatagramPeer:
    def __init__(self, bench, address="127.0.0.1", port=0):
        self.address = address
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        bench.closers.append(self.socket.close)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind((address, port))
        self.port = self.socket.getsockname()[1]
        self.qp = self.port << 8 | 0x5A
        self.record = []  # (sent by the peer, port of the other end, octets)

    def send(self, octets, port):
        self.record.append((True, port, octets))
        self.socket.sendto(octets, (self.address, port))

    def receive(self, timeout=PATIENCE):
        if not select.select([self.socket], [], [], timeout)[0]:
            raise Failure(f"no datagram within {timeout:g} s")
        octets, (address, port, *_) = self.socket.recvfrom(1 << 16)
        check(address == self.address, f"a datagram comes from {address}")
        self.record.append((False, port, octets))
        return Datagram(octets, port)

    def quiet(self):
        """What has been sent on this host is here already."""
        if select.select([self.socket], [], [], 0)[0]:
            raise Failure(f"a datagram that should not come: {self.receive()}")


def udp_queue(port):
    """What a UDP port of this host has not read yet, in octets, and how many datagrams found it full."""
    waiting = drops = 0
    for family in ("udp", "udp6"):
        with open(f"/proc/net/{family}", encoding="ascii") as table:
            for words in map(str.split, list(table)[1:]):
                if int(words[1].rpartition(":")[2], 16) == port:
                    waiting += int(words[4].partition(":")[2], 16)
                    drops += int(words[-1])
    return waiting, drops


class DatagramSession:
    """A queue pair "u" of a program under uiw in RTS, with memory "in" and "m", and a peer that knows it."""

    QKEY = 0x11223344

    def __init__(self, bench, address="127.0.0.1"):
        self.address = address
        self.sut = Sut(bench, {"UIW_TRANSPORT": "roce"}, address)
        self.sut.memory("m", 65536, "lrw", seed=11)
        self.inbox = self.sut.memory("in", 1 << 20, "l", seed=29)
        self.qp = self.make("u")
        self.peer = DatagramPeer(bench, address)
        self.sut.command(f"ah a {address} {address}")

    def make(self, name, qkey=QKEY):
        """A queue pair in RTS."""
        number = int(self.sut.command(f"ud {name}"), 0)
        check(0 < number < MULTICAST, f"queue pair number {number:#x}")
        self.step(name, INIT, RTR, RTS, qkey=qkey)
        return number

    def step(self, name, *states, qkey=QKEY):
        for state in states:
            self.sut.command(f"ud_step {name} {state} {qkey:#x}")

    @property
    def port(self):
        return self.qp >> 8

    def good(self, payload=b"", **other):
        """A datagram for "u" that is as it should be, but for what `other` says."""
        field = {"destination": self.qp, "source": self.peer.qp, "qkey": self.QKEY, **other}
        return datagram(payload=payload, **field)

    def deliver(self, payload, wr_id=None, **other):
        """Sends a good datagram, which the next receive must get; its memory is where receive() has put it."""
        self.peer.send(self.good(payload, **other), self.port)
        return self.arrives(payload, wr_id, **other)

    def receive(self, wr_id, size=4096, name="u"):
        """Posts a receive for messages of `size` octets; number n takes the memory from 8192 n on."""
        self.sut.recv(name, wr_id, f"in:{wr_id * 8192}:{GRH + size}")

    def arrives(self, payload, wr_id=None, source=None, name_qp=None, rdmap=SEND, inv=0, **_):
        """The next completion must tell of this message."""
        wc = self.sut.completion(wr_id)
        check((wc.opcode, wc.length) == (WC_RECV, GRH + len(payload)), f"{wc}: not {len(payload)} octets")
        check(wc.source == (self.peer.qp if source is None else source), f"{wc}: its source is {wc.source:#x}")
        check(wc.qp == (name_qp or self.qp), f"{wc}: of queue pair {wc.qp:#x}")
        with_immediate = rdmap in (SEND_IMM, SEND_SE_IMM)
        check(wc.flags == WC_GRH | (WC_WITH_IMM if with_immediate else 0), f"{wc}: flags")
        check(not with_immediate or wc.extra == inv, f"{wc}: immediate data {wc.extra:#x}, not {inv:#x}")
        octets = self.inbox.dump(wc.wr_id * 8192, GRH + len(payload))
        check(octets[GRH:] == payload, f"{wc}: other octets than were sent")
        self.check_grh(octets[:GRH])
        return wc

    def check_grh(self, grh):
        """The IP header, at the end of the 40 octets (RoCE v2, A17.4.5.2 of the InfiniBand specification)."""
        if ":" in self.address:
            host = socket.inet_pton(socket.AF_INET6, self.address)
            check((grh[0] >> 4, grh[6]) == (6, 17), f"GRH: {grh.hex()}")
            check((grh[8:24], grh[24:40]) == (host, host), f"GRH: {grh.hex()}")
        else:
            host = socket.inet_aton(self.address)
            check((grh[20], grh[29]) == (0x45, 17), f"GRH: {grh.hex()}")
            check((grh[32:36], grh[36:40]) == (host, host), f"GRH: {grh.hex()}")

    def drained(self):
        """Waits until uiw has read all that was sent. Returns how many datagrams found its socket full."""
        wait_until(lambda: udp_queue(self.port)[0] == 0, PATIENCE, "uiw reads its UDP port")
        return udp_queue(self.port)[1]

    def anonymous_memory(self):
        """KiB of the program under test that are in memory and of no file."""
        kib = 0
        for one in self.sut.process.family():
            with open(f"/proc/{one}/status", encoding="ascii") as file:
                kib += next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
        return kib


def send(session, wr_id, *sges, name="u", destination=None, qkey=0x55667788, flags="-", **imm):
    """The program sends to the peer. imm: immediate data, for a Send with immediate."""
    words = [*sges, *(f"{key}={value:#x}" for key, value in imm.items())]
    target = session.peer.qp if destination is None else destination
    session.sut.command(f"ud_send {name} {wr_id} {flags} a {target:#x} {qkey:#x} " + " ".join(words))

