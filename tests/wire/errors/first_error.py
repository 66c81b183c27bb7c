# SPDX-License-Identifier: MIT
"""Which error does the Terminate name where the peer sends several, and what comes before it? The first one (RFC 5040
section 7.1, rule 4), by one Terminate that nothing follows (section 5.4)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, event_of, expected, last_word, prepare
from peer.sut import FLUSHED, LOC_LEN_ERR, Session, check, main, row
from peer.wire import READ_RESPONSE, SEND, TERMINATE, WRITE, pattern, tagged, untagged

CRC_ERROR = 0x2002
TOO_LONG = 0x1205


def _place(session, name, offset=0):
    memory = session.sut.memories[name]
    return memory.rkey, memory.addr + offset


# What is wrong, the error, and the segment.
ERRORS = {
    "a Write with STag 0": (0x1100, lambda s: tagged(WRITE, 0, 5, b"data")),
    "a Write beyond the end": (0x1101, lambda s: tagged(WRITE, *_place(s, "rw", 4096), b"data")),
    "a Write into another PD": (0x1102, lambda s: tagged(WRITE, *_place(s, "foreign"), b"data")),
    "a Write with DDP version 2": (0x1104, lambda s: tagged(WRITE, *_place(s, "rw"), b"data", dv=2)),
    "a Write with RDMAP version 2": (0x0205, lambda s: tagged(WRITE, *_place(s, "rw"), b"data", rv=2)),
    "a Read Request with STag 0": (0x0100, lambda s: wire.read_request(1, 7, 8, 10, 0, 0)),
    "a Read Request of MSN 2": (0x1203, lambda s: wire.read_request(2, 7, 8, 10, *_place(s, "rw"))),
    "a Read Response": (0x0206, lambda s: tagged(READ_RESPONSE, 7, 8, b"data")),
    "a Send of MSN 7": (0x1203, lambda s: untagged(SEND, 0, 7, 0, b"data")),
    "a Send of MO 4": (0x1204, lambda s: untagged(SEND, 0, 1, 4, b"data")),
    "a Send longer than its receive": (TOO_LONG, lambda s: untagged(SEND, 0, 1, 0, bytes(257))),
    "a Send on queue 9": (0x1201, lambda s: untagged(SEND, 9, 1, 0, b"data")),
    "a Terminate on queue 0": (0x0206, lambda s: untagged(TERMINATE, 0, 1, 0, bytes(4))),
    "a ULPDU of 5 octets": (0x1000, lambda s: tagged(WRITE, 1, 2)[:5]),
    "a wrong CRC": (CRC_ERROR, lambda s: tagged(WRITE, *_place(s, "rw"), b"data")),
}


class Victims:
    """One connection after another to the same program, each with the receives 1 and 2."""

    def __init__(self, bench, crc=True):
        self.bench, self.crc, self.sut = bench, crc, None

    def next(self):
        def receives(session):
            for number in (1, 2):
                session.sut.recv(session.conn, number, f"in:{number * 1000}:256")

        session = Session(self.bench, before=receives if self.sut else prepare, crc=self.crc, sut=self.sut)
        self.sut = session.sut
        self.sut.asyncs.clear()
        return session

    def octets(self, session, name):
        error, build = ERRORS[name]
        return wire.fpdu(build(session), self.crc, damage=1 if error == CRC_ERROR else 0)

    def judge(self, session, name):
        """This error, and no other, has ended the stream."""
        error, build = ERRORS[name]
        last_word(session.peer, expected(error, build(session)))
        ended(session, None if error == TOO_LONG else event_of(error),
              ((1, LOC_LEN_ERR if error == TOO_LONG else FLUSHED), (2, FLUSHED)))
        for kept in ("rw", "foreign", "in"):
            self.sut.memories[kept].untouched()
        session.peer.close()
        self.sut.command(f"destroy {session.conn}")


def pairs(bench, first, crc, piece):
    victims = Victims(bench, crc)
    for second, (error, _) in ERRORS.items():
        if error == CRC_ERROR and not crc:
            continue
        session = victims.next()
        right = wire.fpdu(tagged(WRITE, *_place(session, "rw"), b"behind"), crc)
        session.peer.send(victims.octets(session, first) + victims.octets(session, second) + right, piece)
        victims.judge(session, first)


for _first, (_error, _) in ERRORS.items():
    row(f"in one TCP segment: {_first}, and each other error behind it", first=_first, crc=True, piece=None)(pairs)
    if _first in ("a Write with STag 0", "a Read Request with STag 0", "a Send longer than its receive", "a Send of MO 4"):
        row(f"in one TCP segment, CRC off: {_first}, and each other error behind it", first=_first, crc=False,
            piece=None)(pairs)
row("octet by octet: a Send of MO 4, and each other error behind it", first="a Send of MO 4", crc=True,
    piece=1)(pairs)


@row("an error behind the Terminate: nothing is said any more")
def behind(bench):
    victims = Victims(bench)
    for second in ERRORS:
        session = victims.next()
        first = "a Write with STag 0"
        session.peer.send(victims.octets(session, first))
        segment = session.peer.segment()
        check(segment.ulpdu == expected(0x1100, ERRORS[first][1](session)), f"{segment}")
        session.peer.send(victims.octets(session, second))
        check(session.peer.gone() == "fin", "reset")
        ended(session, event_of(0x1100))
        session.peer.close()
        victims.sut.command(f"destroy {session.conn}")


def one_segment(bench, error, build, damage=0):
    """Two things are wrong with one segment: the lower layer finds its own first."""
    session = Session(bench, before=prepare)
    ulpdu = build(session)
    session.peer.fpdu(ulpdu, damage=damage)
    last_word(session.peer, expected(error, ulpdu))
    ended(session, event_of(error))


for _title, _error, _build, _damage in (
        ("CRC and DDP version", CRC_ERROR, lambda s: tagged(WRITE, *_place(s, "rw"), b"data", dv=2), 1),
        ("CRC and a ULPDU of 5 octets", CRC_ERROR, lambda s: tagged(WRITE, *_place(s, "rw"))[:5], 1),
        ("DDP and RDMAP version, tagged", 0x1104, lambda s: tagged(WRITE, *_place(s, "rw"), b"data", dv=2, rv=2), 0),
        ("DDP and RDMAP version, untagged", 0x1206, lambda s: untagged(SEND, 0, 1, 0, b"data", dv=2, rv=2), 0),
        ("queue number and RDMAP version", 0x1201, lambda s: untagged(SEND, 9, 1, 0, b"data", rv=2), 0),
        ("DDP version and opcode", 0x1206, lambda s: untagged(15, 0, 1, 0, b"data", dv=0), 0)):
    row(f"two errors in one segment: {_title}", error=_error, build=_build, damage=_damage)(one_segment)


@row("the Terminate waits for a peer that does not read: an error that comes meanwhile is not named", crc=True)
@row("the Terminate waits for a peer that does not read: an error that comes meanwhile is not named, CRC off", crc=False)
def waiting(bench, crc):
    session, sut, peer = Session(bench, before=prepare, crc=crc, rcvbuf=8192)
    session.alive()
    big = sut.memory("big", 6 << 20, "l", seed=1)
    sut.post(session.conn, 10, "send", f"big:0:{big.size}")
    for name in ("a Send on queue 9", "a Write with STag 0", "a Read Request with STag 0"):
        peer.fpdu(ERRORS[name][1](session))
        peer.taken()
    first = ERRORS["a Send on queue 9"][1](session)
    sent = last_word(peer, expected(0x1201, first), skip=(SEND,))
    check(sent < big.size, "6 MiB went into a window of 8 KiB")
    ended(session, event_of(0x1201), [(number, FLUSHED) for number in (10, 1, 2)])


@row("an error and FIN in the same moment: the Terminate comes", crc=True)
@row("an error and FIN in the same moment: the Terminate comes, CRC off", crc=False)
def and_fin(bench, crc):
    session = Session(bench, before=prepare, crc=crc)
    ulpdu = ERRORS["a Send on queue 9"][1](session)
    session.peer.fpdu(ulpdu)
    session.peer.finish()
    last_word(session.peer, expected(0x1201, ulpdu))
    ended(session, event_of(0x1201))


@row("the Terminate waits for a peer that does not read, and closes its half meanwhile: it comes")
def waiting_and_fin(bench):
    session, sut, peer = Session(bench, before=prepare, rcvbuf=8192)
    session.alive()
    big = sut.memory("big", 6 << 20, "lr", seed=1)
    session.read(7, 0, big.size, big.rkey, big.addr)
    ulpdu = ERRORS["a Send on queue 9"][1](session)
    peer.fpdu(ulpdu)
    peer.finish()
    ended(session, event_of(0x1201))
    check(last_word(peer, expected(0x1201, ulpdu), skip=(READ_RESPONSE,)) == big.size, "the answer")


# ---- what is answered before the Terminate -------------------------------------------------------------------------------


def answered_before(bench, name, answers):
    """Two Reads and, in the same TCP segment, an error. A request that is right is answered (RFC 5040 section 5.2.1); behind
    an error of MPA the octets before are not trusted, and nothing is."""
    session = Session(bench, before=prepare)
    peer = session.peer
    reads = b"".join(wire.fpdu(wire.read_request(msn, msn, 50, 100, *_place(session, "rw", msn))) for msn in (1, 2))
    error, build = ERRORS[name]
    peer.send(reads + wire.fpdu(build(session), damage=1 if error == CRC_ERROR else 0))
    for number in (1, 2) if answers else ():
        first, payload = peer.message(READ_RESPONSE)
        check((first.stag, first.to, payload) == (number, 50, pattern(number, 100)), f"answer {number}: {first}")
    last_word(peer, expected(error, build(session)))
    ended(session, event_of(error))


row("Reads and a Write with STag 0: they are answered first", name="a Write with STag 0", answers=True)(answered_before)
row("Reads and a Send of MO 4: they are answered first", name="a Send of MO 4", answers=True)(answered_before)
row("Reads and an RDMAP version: they are answered first", name="a Write with RDMAP version 2",
    answers=True)(answered_before)
row("Reads and a wrong CRC: nothing is answered", name="a wrong CRC", answers=False)(answered_before)


def answering(bench, name, whole):
    """The error comes in the middle of a long answer."""
    session = Session(bench, before=prepare, rcvbuf=8192)
    peer = session.peer
    big = session.sut.memory("big", 6 << 20, "lr", seed=3)
    peer.fpdu(wire.read_request(1, 7, 0, big.size, big.rkey, big.addr))
    peer.fpdu(wire.read_request(2, 8, 0, 100, big.rkey, big.addr))
    peer.taken()
    error, build = ERRORS[name]
    peer.fpdu(build(session), damage=1 if error == CRC_ERROR else 0)
    peer.taken()
    got = last_word(peer, expected(error, build(session)), skip=(READ_RESPONSE,))
    check((got == big.size + 100) == whole, f"{got} octets of {big.size + 100}")
    ended(session, event_of(error))


row("in the middle of an answer, a Write with STag 0: all answers come first", name="a Write with STag 0",
    whole=True)(answering)
row("in the middle of an answer, a wrong CRC: it breaks off behind a whole FPDU", name="a wrong CRC",
    whole=False)(answering)


if __name__ == "__main__":
    sys.exit(main())
