# SPDX-License-Identifier: MIT
"""The ordering table of RFC 7306 section 7, a row for each of its rows.

Each runs with uiw as the Local Peer, which issues the two operations (`issue`), and with uiw as the Remote Peer, at
which they arrive (the function of the row). Where the table says MAY, gives no guarantee or does not apply, uiw may do
what it likes, and all must be right in the end. TCP delivers in order, so nothing is Placed out of order here."""

import pathlib
import sys
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import WC_RECV, WC_RECV_IMMEDIATE, Responder, Session, check, main, row
from peer.wire import (ATOMIC_REQUEST, IMMEDIATE, READ_REQUEST, READ_RESPONSE, SEND, WRITE, pattern, tagged, untagged,
                       verbs_immediate)

ORDER = sys.byteorder
BIG = 8 << 20


# ---- uiw is the Local Peer -------------------------------------------------------------------------------------------

POSTED = {"Immediate Data": "write_imm", "Send": "send", "RDMA Write": "write", "RDMA Read": "read",
          "Atomic": "fetch_add"}
SENT = {"Immediate Data": (WRITE, IMMEDIATE), "Send": (SEND,), "RDMA Write": (WRITE,), "RDMA Read": (READ_REQUEST,),
        "Atomic": (ATOMIC_REQUEST,)}
ANSWERED = ("RDMA Read", "Atomic")


def issue(bench, first, second):
    """Messages leave in the order posted, whatever is still unanswered, and complete in that order."""
    session, sut, peer = Session(bench, initiator=True)
    sut.memory("m", 4096, "l", seed=9)
    responder = Responder(peer)
    number = 0
    for turn in range(12):
        names = (first, second) if turn % 3 else (first, second, first, second, second)
        for place, name in enumerate(names):
            number += 1
            sut.post("call", number, POSTED[name], f"m:{place * 8}:8", rkey=turn + 1, addr=number << 8, imm=number,
                     add=number, flags="-" if turn % 2 or place == len(names) - 1 else "c")
        # Nothing is answered before all has come.
        for name in names:
            for opcode in SENT[name]:
                if opcode in (READ_REQUEST, ATOMIC_REQUEST):
                    responder.hear(opcode)
                else:
                    peer.message(opcode)
        oldest = number - len(names) + 1
        for place, name in enumerate(names):
            if name in ANSWERED:
                sut.wait(lambda want=place: True if len(sut.completions) == want else None, 15,
                         f"{place} completions, and no more, before the {name} is answered")
                responder.answer(bytes(8) if name == "RDMA Read" else number)
            sut.wait(lambda want=place + 1: True if len(sut.completions) >= want else None, 15,
                     f"completion {place + 1} of {len(names)}: {', '.join(names)}")
        for wr_id in range(oldest, number + 1):
            sut.completion(wr_id)
    sut.nothing(0.02)
    session.hang_up()


# ---- uiw is the Remote Peer ------------------------------------------------------------------------------------------


class Remote:
    """uiw with memory "at", where everything goes. What the peer sends is collected, then sent in one piece."""

    def __init__(self, bench, receives=0, **more):
        def before(session):
            session.sut.memory("at", 65536, "lrwa", seed=17)
            session.sut.memory("in", 65536, "l", seed=29)
            for number in range(1, receives + 1):
                self.receive(session, number)

        self.session, self.sut, self.peer = Session(bench, before=before, **more)
        self.memory = self.sut.memories["at"]
        self.octets, self.stuck = b"", False

    @staticmethod
    def receive(session, number):
        session.sut.recv(session.conn, number, f"in:{number * 100}:100")

    def add(self, *ulpdus):
        self.octets += b"".join(wire.fpdu(ulpdu, self.peer.crc) for ulpdu in ulpdus)

    def send(self, payload):
        self.add(untagged(SEND, 0, self.session.send_msn, 0, payload))
        self.session.send_msn += 1

    def immediate(self, value):
        self.add(wire.immediate(self.session.send_msn, verbs_immediate(value)))
        self.session.send_msn += 1

    def write(self, offset, payload, chunk=1000):
        for at in range(0, len(payload), chunk):
            part = payload[at:at + chunk]
            self.add(tagged(WRITE, self.memory.rkey, self.memory.addr + offset + at, part, at + chunk >= len(payload)))

    def read(self, sink, offset, size, memory=None):
        memory = memory or self.memory
        self.add(wire.read_request(self.session.read_msn, sink, 0, size, memory.rkey, memory.addr + offset))
        self.session.read_msn += 1

    def fetch_add(self, identifier, offset, add):
        self.add(wire.fetch_add(self.session.read_msn, identifier, self.memory.rkey, self.memory.addr + offset, add))
        self.session.read_msn += 1

    def go(self):
        self.peer.send(self.octets)
        self.octets = b""

    def read_answer(self, sink):
        first, payload = self.peer.message(READ_RESPONSE)
        check(first.stag == sink, f"the answer to another Read: {first}")
        return payload

    def told(self, number, opcode):
        wc = self.sut.completion(number)
        check(wc.opcode == opcode, f"{wc}: opcode {opcode} should come")
        return wc

    def waits(self):
        """Nothing is answered, nothing completes."""
        self.peer.quiet(0.15)
        self.sut.nothing(0.02)


def stuck(bench, receives, **more):
    """The peer has asked for more than the window takes and does not read: what uiw answers next stays behind it."""
    remote = Remote(bench, receives, crc=False, rcvbuf=8192, **more)
    remote.stuck = True
    big = remote.sut.memory("big", BIG, "lr", seed=3)
    remote.read(0xB16, 0, BIG, big)
    return remote


def unstick(remote):
    if not remote.stuck:
        return
    check(zlib.crc32(remote.read_answer(0xB16)) == zlib.crc32(pattern(3, BIG)), "the big Read")


def soon(remote):
    """Completions MAY come now: uiw has read what should make them."""
    remote.peer.taken()
    remote.sut.pump()


# One for each row of the table, named by its first and second operation.


def immediate_send(bench):
    """Completed in order."""
    remote = Remote(bench, 20)
    for number in range(1, 21, 2):
        remote.immediate(number)
        remote.send(pattern(number, 60))
    remote.go()
    for number in range(1, 21, 2):
        check(remote.told(number, WC_RECV_IMMEDIATE).extra == number, f"Immediate Data {number}")
        remote.told(number + 1, WC_RECV)
        check(remote.sut.memories["in"].dump((number + 1) * 100, 60) == pattern(number, 60), f"Send {number + 1}")
    remote = Remote(bench)  # and where the Immediate Data waits
    remote.immediate(1)
    remote.send(b"behind")
    remote.go()
    remote.waits()
    remote.receive(remote.session, 1)
    remote.told(1, WC_RECV_IMMEDIATE)
    remote.waits()
    remote.receive(remote.session, 2)
    remote.told(2, WC_RECV)


def immediate_write(bench):
    """Not applicable: while the Immediate Data waits for a receive, anything may stand where the Write goes."""
    remote = Remote(bench)
    remote.immediate(1)
    remote.write(0, pattern(50, 5000))
    remote.go()
    remote.waits()
    remote.receive(remote.session, 1)
    remote.told(1, WC_RECV_IMMEDIATE)
    remote.session.alive()
    check(remote.memory.dump(0, 5000) == pattern(50, 5000), "the Write")


def immediate_read(bench):
    """The Read Response is not generated until the Immediate Data has been Completed."""
    remote = Remote(bench)
    remote.immediate(1)
    remote.read(5, 0, 100)
    remote.go()
    remote.waits()
    remote.memory.fill(88)  # read after the Completion, so this is what must come
    remote.receive(remote.session, 1)
    remote.told(1, WC_RECV_IMMEDIATE)
    check(remote.read_answer(5) == pattern(88, 100), "what was read before the Immediate Data was Completed")


def immediate_atomic(bench):
    """The Atomic Response is not generated until the Immediate Data has been Completed."""
    remote = Remote(bench)
    remote.memory.put(0, 10)
    remote.immediate(1)
    remote.fetch_add(5, 0, 1)
    remote.go()
    remote.waits()
    check(remote.memory.word(0) == 10, "the atomic was carried out before it was Delivered (RFC 7306 5.4 rule 5)")
    remote.receive(remote.session, 1)
    remote.told(1, WC_RECV_IMMEDIATE)
    check(remote.session.original(5) == 10, "original value")


def immediate_immediate(bench):
    """Immediate Data or Send, then Immediate Data: Completed in order."""
    remote = Remote(bench, 30)
    for number in range(1, 31):
        if number % 3 == 1:
            remote.send(pattern(number, 60))
        else:
            remote.immediate(number)
    remote.go()
    for number in range(1, 31):
        wc = remote.told(number, WC_RECV if number % 3 == 1 else WC_RECV_IMMEDIATE)
        check(number % 3 == 1 or wc.extra == number, f"Immediate Data {wc.extra} where {number} should come")
    remote = Remote(bench)
    remote.send(b"first")
    remote.immediate(2)
    remote.immediate(3)
    remote.go()
    for number, opcode in ((1, WC_RECV), (2, WC_RECV_IMMEDIATE), (3, WC_RECV_IMMEDIATE)):
        remote.waits()
        remote.receive(remote.session, number)
        remote.told(number, opcode)


def write_immediate(bench):
    """Immediate Data is Completed after the Write is Placed."""
    remote = Remote(bench, 20)
    for number in range(1, 21):
        data = pattern(number * 9, 30000)
        remote.write(number, data)
        remote.immediate(number)
        remote.go()
        check(remote.told(number, WC_RECV_IMMEDIATE).length == 30000, "length")
        check(remote.memory.hash(number, 30000) == zlib.crc32(data), f"round {number}: the Write is not in memory")


def read_immediate(bench):
    """Immediate Data MAY be placed before the Read Response is generated, and may be Completed then."""
    remote = stuck(bench, 1)
    remote.read(7, 0, 50)
    remote.immediate(1)
    remote.go()
    soon(remote)
    unstick(remote)
    check(remote.read_answer(7) == pattern(17, 50), "the Read")
    remote.told(1, WC_RECV_IMMEDIATE)


def atomic_immediate(bench):
    """Immediate Data MAY be placed before the Atomic Response is generated, and may be Completed then."""
    remote = stuck(bench, 1)
    remote.memory.put(0, 30)
    remote.fetch_add(7, 0, 5)
    remote.immediate(1)
    remote.go()
    soon(remote)
    unstick(remote)
    check(remote.session.original(7) == 30, "original value")
    remote.told(1, WC_RECV_IMMEDIATE)
    check(remote.memory.word(0) == 35, "the sum")


def atomic_send(bench):
    """The Send MAY be placed before the Atomic Response is generated, and may be Completed then (5.4 rule 6)."""
    remote = stuck(bench, 1)
    remote.memory.put(0, 30)
    remote.fetch_add(7, 0, 5)
    remote.send(b"behind")
    remote.go()
    soon(remote)
    unstick(remote)
    check(remote.session.original(7) == 30, "original value")
    remote.told(1, WC_RECV)
    check(remote.sut.memories["in"].dump(100, 6) == b"behind", "the Send")


def atomic_write(bench):
    """The Write MAY be placed before the Atomic Response is generated: the atomic finds the word as it was, or as the
    Write left it; never a mixture."""
    remote = stuck(bench, 0)
    old, new = 0x1111111111111111, 0x2222222222222222
    remote.memory.put(0, old)
    remote.fetch_add(7, 0, 5)
    remote.write(0, new.to_bytes(8, ORDER))
    remote.go()
    unstick(remote)
    original = remote.session.original(7)
    remote.session.alive()
    word = remote.memory.word(0)
    check((original, word) in ((old, new), (new, new + 5)), f"original value {original:#x}, then the word is {word:#x}")


def rounds(bench, count, ask, word):
    """Asks `count` times at once, of memory that begins with `word`; then gives each number whose answers are due. Once
    where the answers can leave at once, once where they wait."""
    for remote in (Remote(bench), stuck(bench, 0)):
        remote.memory.put(0, word)
        for number in range(count):
            ask(remote, number)
        remote.go()
        unstick(remote)
        for number in range(count):
            yield remote, number


def add_then_read(remote, number):
    remote.fetch_add(number, 0, 5)
    remote.read(number, 0, 8)


def swap(remote, number):
    """Finds what the one before has left, so in no other order do all succeed."""
    remote.add(wire.compare_swap(remote.session.read_msn, number, remote.memory.rkey, remote.memory.addr, number + 1,
                                 number))
    remote.session.read_msn += 1


def read_then_add(remote, number):
    remote.read(number, 8, 900)
    remote.fetch_add(number, 0, 5)


def atomic_read(bench):
    """The Read Response is not generated until the Atomic Response has been generated."""
    for remote, number in rounds(bench, 3, add_then_read, 30):
        check(remote.session.original(number) == 30 + 5 * number, f"original value {number}")
        value = int.from_bytes(remote.read_answer(number), ORDER)
        # What the Read finds is the sum, or that of an atomic behind it (RFC 5040 5.5 rule 20).
        check(value in range(35 + 5 * number, 46, 5), f"Read {number} found {value}")


def atomic_atomic(bench):
    """Placed in order; the second is not processed until the first Response has been generated."""
    for remote, number in rounds(bench, 7, swap, 0):
        check(remote.session.original(number) == number, f"original value {number}")
        if number == 6:
            check(remote.memory.word(0) == 7, f"the word is {remote.memory.word(0)}")


def send_atomic(bench):
    """The Atomic Response is not generated until the Send has been Completed."""
    remote = Remote(bench)
    remote.memory.put(0, 10)
    remote.send(b"waits")
    remote.fetch_add(5, 0, 1)
    remote.go()
    remote.waits()
    check(remote.memory.word(0) == 10, "the atomic was carried out before it was Delivered (RFC 7306 5.4 rule 5)")
    remote.receive(remote.session, 1)
    remote.told(1, WC_RECV)
    check(remote.sut.memories["in"].dump(100, 5) == b"waits", "the Send")
    check(remote.session.original(5) == 10, "original value")


def write_atomic(bench):
    """The Atomic Response is not placed at the Local Peer until the Write is placed at the Remote Peer."""
    remote = Remote(bench)
    for number in range(1, 21):
        data = pattern(number * 9, 30000)
        remote.write(0, data)
        remote.fetch_add(number, 20000, 0)
        remote.go()
        original = remote.session.original(number)
        check(original == int.from_bytes(data[20000:20008], ORDER), f"round {number}: the atomic finds {original:#x}")
        check(remote.memory.hash(0, 30000) == zlib.crc32(data), f"round {number}: the Write is not in memory")


def read_atomic(bench):
    """The Atomic Response is not generated until the Read Response has been generated."""
    for remote, number in rounds(bench, 3, read_then_add, 30):
        check(remote.read_answer(number) == pattern(25, 900), f"Read {number}")
        check(remote.session.original(number) == 30 + 5 * number, f"original value {number}")


TABLE = (("Immediate Data", "Send", immediate_send), ("Immediate Data", "RDMA Write", immediate_write),
         ("Immediate Data", "RDMA Read", immediate_read), ("Immediate Data", "Atomic", immediate_atomic),
         ("Immediate Data or Send", "Immediate Data", immediate_immediate),
         ("RDMA Write", "Immediate Data", write_immediate), ("RDMA Read", "Immediate Data", read_immediate),
         ("Atomic", "Immediate Data", atomic_immediate), ("Atomic", "Send", atomic_send),
         ("Atomic", "RDMA Write", atomic_write), ("Atomic", "RDMA Read", atomic_read),
         ("Atomic", "Atomic", atomic_atomic), ("Send", "Atomic", send_atomic), ("RDMA Write", "Atomic", write_atomic),
         ("RDMA Read", "Atomic", read_atomic))


def both_ways(bench, first, second, arrive):
    """The Send of "Immediate Data or Send" is issued too."""
    for name in first.split(" or "):
        issue(bench, name, second)
    arrive(bench)


for _first, _second, _arrive in TABLE:
    row(f"{_first}, then {_second}", first=_first, second=_second, arrive=_arrive)(both_ways)


if __name__ == "__main__":
    sys.exit(main())
