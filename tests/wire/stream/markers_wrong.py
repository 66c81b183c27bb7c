# SPDX-License-Identifier: MIT
"""Markers that are wrong (RFC 5044 section 4.3): which of their octets are checked, wherever they stand?

FPDUPTR has to lead to the ULPDU_Length of its FPDU; a marker before an FPDU has 0. Its two low bits count as zero, and
the 16 bits before it are reserved and ignored. The CRC covers all of it."""

import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, expected, last_word
from peer.sut import QP_FATAL, Session, check, main, row
from peer.wire import MARKER_SPACING, SEND, WRITE, crc32c, pattern, tagged, untagged

MARKER_ERROR, CRC_ERROR = 0x2003, 0x2002


def prepare(session):
    session.sut.memory("m", 4096, "lrw", seed=17)
    for number in (1, 2):
        session.sut.recv(session.conn, number, f"m:{3000 + number * 100}:100")


def session_of(bench, crc):
    session = Session(bench, before=prepare, env={"UIW_MARKERS": "on"}, crc=crc)
    check(session.peer.marks, "uiw asks for no markers")
    return session, session.peer, session.sut.memories["m"]


def changed(peer, ulpdu, number, change, fix=True):
    """The FPDU that comes next, with its marker `number` (reserved bits, FPDUPTR) changed; fix: with the CRC of that."""
    at = peer.octets_out
    octets = bytearray(peer.frame(ulpdu))
    places = [i for i in range(len(octets)) if (at + i) % MARKER_SPACING == 0]
    place = places[number]
    struct.pack_into(">HH", octets, place, *change(*struct.unpack_from(">HH", octets, place)))
    if fix and peer.crc:
        check(max(places) < len(octets) - 4, "a marker stands in the CRC field")
        struct.pack_into("<I", octets, len(octets) - 4, crc32c(bytes(octets[:-4])))
    return bytes(octets)


def before_it(session, peer, memory, where):
    """The stream up to the FPDU whose marker is changed, and that marker's number in the FPDU. Returns what was placed."""
    if where == "first":  # the first octets of the stream
        return 0, 0
    if where == "between":  # exactly between two FPDUs
        peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, pattern(1, 512 - 4 - 2 - 14 - 4)))
        check(peer.octets_out == MARKER_SPACING, f"{peer.octets_out} octets")
        return 0, 512 - 4 - 2 - 14 - 4
    if where == "inside":
        peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, pattern(1, 300)))
        return 0, 300
    return 1, 0  # the second one in the stream's first FPDU


WHERE = ("first", "between", "inside", "second")
WHERE_TEXT = {"first": "the first octets of the stream", "between": "between two FPDUs", "inside": "inside an FPDU",
              "second": "the second one of an FPDU"}


def refused(bench, where, crc, change):
    session, peer, memory = session_of(bench, crc)
    number, placed = before_it(session, peer, memory, where)
    ulpdu = tagged(WRITE, memory.rkey, memory.addr + 1000, pattern(2, 600))
    peer.send(changed(peer, ulpdu, number, change))
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr + 2000, pattern(3, 600)))
    last_word(peer, expected(MARKER_ERROR))
    ended(session, QP_FATAL)
    check(memory.dump(0, placed) == pattern(1, placed) if placed else True, "the Write before it")
    memory.untouched((0, placed))


def accepted(bench, where, crc, change):
    session, peer, memory = session_of(bench, crc)
    number, _ = before_it(session, peer, memory, where)
    ulpdu = tagged(WRITE, memory.rkey, memory.addr + 1000, pattern(2, 600))
    peer.send(changed(peer, ulpdu, number, change))
    session.alive()
    check(memory.dump(1000, 600) == pattern(2, 600), "the Write")
    session.send(b"goes on")
    check(session.sut.completion(1).length == 7, "the Send")


WRONG = (("4 more", lambda bits, pointer: (bits, pointer + 4)),
         ("4 less, or 65532", lambda bits, pointer: (bits, (pointer - 4) % 65536)),
         ("65532", lambda bits, pointer: (bits, 0xFFFC)))
for _where in WHERE:
    for _crc in (True, False):
        _end = f"{WHERE_TEXT[_where]}, CRC {'on' if _crc else 'off'}"
        for _text, _change in WRONG:
            row(f"FPDUPTR is {_text}: {_end}", where=_where, crc=_crc, change=_change)(refused)
        row(f"FPDUPTR has its two low bits set: {_end}", where=_where, crc=_crc,
            change=lambda bits, pointer: (bits, pointer | 3))(accepted)
        row(f"reserved bits are set: {_end}", where=_where, crc=_crc,
            change=lambda bits, pointer: (0xFFFF, pointer))(accepted)
for _where in ("inside", "second"):
    for _crc in (True, False):
        row(f"FPDUPTR is 0: {WHERE_TEXT[_where]}, CRC {'on' if _crc else 'off'}", where=_where, crc=_crc,
            change=lambda bits, pointer: (bits, 0))(refused)


def crc_first(bench, where):
    """A marker that was damaged on the way is a CRC error, whichever of its bits are."""
    for bit in (0, 15, 16, 29, 30, 31):
        session, peer, memory = session_of(bench, True)
        number, placed = before_it(session, peer, memory, where)
        flip = 1 << (31 - bit)
        peer.send(changed(peer, tagged(WRITE, memory.rkey, memory.addr + 1000, pattern(2, 600)), number,
                          lambda bits, pointer, flip=flip: (bits ^ flip >> 16, pointer ^ flip & 0xFFFF), fix=False))
        last_word(peer, expected(CRC_ERROR))
        ended(session, QP_FATAL)
        memory.untouched((0, placed))
        session.sut.quit()


for _where in WHERE:
    row(f"a bit is damaged, and the CRC tells: {WHERE_TEXT[_where]}", where=_where)(crc_first)


@row("no markers where uiw asks for some: an FPDU without them is refused", crc=True)
@row("no markers where uiw asks for some: an FPDU without them is refused, CRC off", crc=False)
def missing(bench, crc):
    session, peer, memory = session_of(bench, crc)
    peer.send(wire.fpdu(untagged(SEND, 0, 1, 0, pattern(1, 100)), crc) + bytes(600))
    last_word(peer, expected(CRC_ERROR if crc else MARKER_ERROR))
    ended(session, QP_FATAL)
    memory.untouched()


if __name__ == "__main__":
    sys.exit(main())
