# SPDX-License-Identifier: MIT
"""Memory windows on the wire: what may a peer do through the STag of a window, and which Terminate does it get where it may
not (RFC 5040 sections 4.8 and 7.2, RFC 5041 section 7; Verbs draft sections 7.8 and 7.10)?

A Write that is refused is an error of DDP, a Read Request, an Atomic Request and a Send with Invalidate one of RDMAP. RFC
5041 has no code for access rights: such a Write has an invalid STag."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, event_of, expected, last_word
from peer.sut import FLUSHED, QP_FATAL, WC_WITH_INV, Session, check, main, row
from peer.wire import READ_RESPONSE, SEND_INV, SEND_SE_INV, WRITE, pattern, tagged, untagged

TOP = 1 << 64
AT, SIZE = 1000, 104  # where in the region the window is
TYPES = (1, 2)


def prepare(session):
    session.sut.command("pd other")
    session.sut.memory("m", 4096, "lrwab", seed=5)
    receives(session)


def receives(session):
    for number in (1, 2):
        session.sut.recv(session.conn, number, f"m:{3000 + number * 100}:100")


class Window:
    """A window of this type that the connection has bound, with these rights; zero: its tagged offsets begin at 0."""

    def __init__(self, bench, kind, rights="rwa", zero=False, session=None, **more):
        self.session = session or Session(bench, before=prepare, **more)
        self.sut, self.peer, self.kind, self.zero = self.session.sut, self.session.peer, kind, zero
        self.memory = self.sut.memories["m"]
        self.session.alive()
        self.sut.command(f"mw w {kind}")
        self.stag = self.bind(rights)

    def bind(self, rights="rwa", at=AT, size=SIZE):
        answer = self.sut.command(f"mw_bind {self.session.conn} 90 w m {at} {size} {rights}{'0' if self.zero else ''}")
        self.sut.completion(90)
        return int(answer.split("=")[1], 0)

    def place(self, offset=0):
        return (offset if self.zero else self.memory.addr + AT + offset) % TOP

    def write(self, offset, size, stag=None):
        return tagged(WRITE, self.stag if stag is None else stag, self.place(offset), pattern(1, size))

    def read(self, offset, size, stag=None):
        return wire.read_request(self.session.read_msn, 7, 8, size, self.stag if stag is None else stag,
                                 self.place(offset))

    def add(self, offset, stag=None):
        return wire.fetch_add(self.session.read_msn, 9, self.stag if stag is None else stag, self.place(offset), 1)

    def send_inv(self, stag=None, opcode=SEND_INV):
        return untagged(opcode, 0, 1, 0, b"data", inv=self.stag if stag is None else stag)

    def refused(self, ulpdu, error):
        """What stands behind it in the same TCP segment does not count. The payload of a Send is placed before its STag is
        invalidated."""
        changed = (3100, 3104) if not ulpdu[0] & wire.T and ulpdu[1] & 15 in (SEND_INV, SEND_SE_INV) else (0, 0)
        behind = tagged(WRITE, self.memory.rkey, self.memory.addr, b"behind")
        self.peer.send(self.peer.frame(ulpdu) + self.peer.frame(behind))
        last_word(self.peer, expected(error, ulpdu))
        ended(self.session, event_of(error))
        self.memory.untouched(changed)


# ---- what is allowed -----------------------------------------------------------------------------------------------------


def allowed(bench, kind, zero, crc):
    window = Window(bench, kind, zero=zero, crc=crc)
    session, peer = window.session, window.peer
    for offset, size in ((0, SIZE), (0, 1), (SIZE - 1, 1)):
        peer.fpdu(window.write(offset, size))
        peer.fpdu(window.read(offset, size))
        session.read_msn += 1
        first, payload = peer.message(READ_RESPONSE)
        check((first.stag, first.to, payload) == (7, 8, pattern(1, size)), f"{first}")
        check(window.memory.dump(AT + offset, size) == pattern(1, size), "the Write")
    before = window.memory.word(AT + SIZE - 8)
    peer.fpdu(window.add(SIZE - 8))
    session.read_msn += 1
    check(session.original(9) == before, "the original value")
    check(window.memory.word(AT + SIZE - 8) == (before + 1) % TOP, "the sum")
    window.memory.untouched((AT, AT + SIZE))
    session.alive()


for _kind in TYPES:
    for _zero in (False, True):
        for _crc in (True, False):
            row(f"type {_kind}{', zero-based' if _zero else ''}{'' if _crc else ', CRC off'}: all of the window, and nothing "
                "else changes", kind=_kind, zero=_zero, crc=_crc)(allowed)


@row("Send with Invalidate of a window of type 2: the receive tells, and the window is gone", opcode=SEND_INV)
@row("Send with SE and Invalidate of a window of type 2: the receive tells, and the window is gone", opcode=SEND_SE_INV)
def invalidated(bench, opcode):
    window = Window(bench, 2)
    window.peer.fpdu(window.write(0, 4))
    window.peer.fpdu(window.send_inv(opcode=opcode))
    wc = window.sut.completion(1)
    check((wc.flags, wc.extra) == (WC_WITH_INV, window.stag), f"{wc} {wc.extra:#x}, not {window.stag:#x}")
    check(window.memory.dump(AT, 4) == pattern(1, 4), "the Write before it")
    ulpdu = window.write(8, 4)
    window.peer.fpdu(ulpdu)
    last_word(window.peer, expected(0x1100, ulpdu))
    ended(window.session, event_of(0x1100), ((2, FLUSHED),))
    check(window.memory.dump(AT + 8, 4) == pattern(5 + AT + 8, 4), "the Write behind it")


@row("a window of type 2 that was invalidated is bound again, and has another STag")
def bound_again(bench):
    window = Window(bench, 2)
    window.peer.fpdu(window.send_inv())
    window.sut.completion(1)
    old, window.stag = window.stag, window.bind()
    check(window.stag != old, "the STag of before")
    window.peer.fpdu(window.write(0, 4))
    window.session.alive()
    check(window.memory.dump(AT, 4) == pattern(1, 4), "the Write")
    ulpdu = window.write(0, 4, old)
    window.peer.fpdu(ulpdu)
    last_word(window.peer, expected(0x1100, ulpdu))


# ---- what is refused -----------------------------------------------------------------------------------------------------


def refused(title, error, build, rights="rwa", zeros=(False, True), kinds=TYPES):
    for kind in kinds:
        for zero in zeros:
            def run(bench, kind=kind, zero=zero):
                window = Window(bench, kind, rights, zero)
                window.refused(build(window), error)

            row(f"type {kind}{', zero-based' if zero else ''}: {title}")(run)


refused("a Write ends one octet beyond the window, inside the region", 0x1101, lambda w: w.write(SIZE - 3, 4))
refused("a Write begins one octet before the window, inside the region", 0x1101, lambda w: w.write(-1, 4), zeros=(False,))
refused("a Write begins at the end of the window", 0x1101, lambda w: w.write(SIZE, 1))
refused("a Write to the begin of the region", 0x1101, lambda w: tagged(WRITE, w.stag, w.memory.addr, b"data"))
refused("a Write that wraps", 0x1103, lambda w: tagged(WRITE, w.stag, TOP - 2, b"data"))
refused("a Write without the right", 0x1100, lambda w: w.write(0, 4), rights="ra")
refused("a Read ends one octet beyond the window, inside the region", 0x0101, lambda w: w.read(SIZE - 3, 4))
refused("a Read begins one octet before the window, inside the region", 0x0101, lambda w: w.read(-1, 4), zeros=(False,))
refused("a Read of the whole region", 0x0101,
        lambda w: wire.read_request(2, 7, 8, 4096, w.stag, 0 if w.zero else w.memory.addr))
refused("a Read that wraps", 0x0104, lambda w: wire.read_request(2, 7, 8, 4, w.stag, TOP - 2))
refused("a Read without the right", 0x0102, lambda w: w.read(0, 4), rights="wa")
refused("an atomic operation beyond the window, inside the region", 0x0101, lambda w: w.add(SIZE))
refused("an atomic operation without the right", 0x0102, lambda w: w.add(0), rights="rw")
refused("a Write, and the window has no rights", 0x1100, lambda w: w.write(0, 4), rights="-")
refused("a Read, and the window has no rights", 0x0102, lambda w: w.read(0, 4), rights="-")
refused("the next key", 0x1100, lambda w: w.write(0, 4, w.stag ^ 1))
refused("a Read with the next key", 0x0100, lambda w: w.read(0, 4, w.stag ^ 1))
refused("Send with Invalidate of a window of type 1", 0x0109, lambda w: w.send_inv(), kinds=(1,), zeros=(False,))
refused("Send with SE and Invalidate of a window of type 1", 0x0109, lambda w: w.send_inv(opcode=SEND_SE_INV), kinds=(1,),
        zeros=(False,))
refused("Send with Invalidate with the next key", 0x0100, lambda w: w.send_inv(w.stag ^ 1), kinds=(2,), zeros=(False,))
refused("Send with Invalidate of the region that the window is bound to", 0x0109, lambda w: w.send_inv(w.memory.rkey),
        zeros=(False,))


# What ends a binding, and the type of the window.
ENDS = {
    "local invalidate": (2, lambda w: (w.sut.post(w.session.conn, 91, "local_inv", rkey=w.stag), w.sut.completion(91))),
    "another bind": (1, lambda w: w.bind()),
    "a bind of length 0": (1, lambda w: w.bind(size=0)),
    "ibv_dealloc_mw of type 1": (1, lambda w: w.sut.command("mw_free w")),
    "ibv_dealloc_mw of type 2": (2, lambda w: w.sut.command("mw_free w")),
}
for _name, (_kind, _end) in ENDS.items():
    for _what, _error, _build in (("a Write", 0x1100, lambda w: w.write(0, 4)), ("a Read", 0x0100, lambda w: w.read(0, 4)),
                                  ("an atomic operation", 0x0100, lambda w: w.add(0))):
        def _after(bench, kind, end, build, error):
            window = Window(bench, kind)
            end(window)
            window.refused(build(window), error)

        row(f"{_what} after {_name}", kind=_kind, end=_end, build=_build, error=_error)(_after)


@row("a window that was never bound: a Write", error=0x1100, build=lambda w: w.write(0, 4))
@row("a window that was never bound: a Read", error=0x0100, build=lambda w: w.read(0, 4))
def unbound(bench, error, build):
    window = Window(bench, 2)
    window.stag = int(window.sut.command("mw fresh 2").split("=")[1], 0)
    window.refused(build(window), error)


def of_another(bench, kind, error, build):
    """A window of type 2 belongs to the queue pair that has bound it, one of type 1 to its protection domain: another
    connection of the same domain may use that."""
    window = Window(bench, kind)
    other = Session(bench, sut=window.sut, before=lambda session: window.sut.recv(session.conn, 11, "m:0:100"))
    if kind == 1:
        other.peer.fpdu(window.write(0, 4))
        other.alive()
        return check(window.memory.dump(AT, 4) == pattern(1, 4), "the Write")
    first, window.session = window.session, other
    ulpdu = build(window)
    other.peer.fpdu(ulpdu)
    last_word(other.peer, expected(error, ulpdu))
    ended(other, event_of(error), ((11, FLUSHED),))
    window.memory.untouched((0, 4))  # the payload of a Send
    first.alive()
    window.session, window.sut.asyncs[:] = first, []
    first.peer.fpdu(window.write(0, 4))
    first.alive()
    check(window.memory.dump(AT, 4) == pattern(1, 4), "the window of the connection that has bound it")


row("type 1: another connection of the domain", kind=1, error=None, build=None)(of_another)
row("type 2: a Write by another connection", kind=2, error=0x1102, build=lambda w: w.write(0, 4))(of_another)
row("type 2: a Read by another connection", kind=2, error=0x0103, build=lambda w: w.read(0, 4))(of_another)
row("type 2: an atomic operation by another connection", kind=2, error=0x0103, build=lambda w: w.add(0))(of_another)
row("type 2: Send with Invalidate by another connection", kind=2, error=0x0103,
    build=lambda w: w.send_inv())(of_another)


@row("an answer goes out through the window, which is invalidated: it stops with the place that it has reached", crc=True)
@row("an answer goes out through the window, which is invalidated: it stops with the place that it has reached, CRC off",
     crc=False)
def answering(bench, crc):
    session, sut, peer = Session(bench, before=prepare, rcvbuf=8192, crc=crc)
    big = sut.memory("big", 6 << 20, "lrwb", seed=3)
    sut.command("mw w 2")
    session.alive()
    stag = int(sut.command(f"mw_bind {session.conn} 90 w big 0 {big.size} r").split("=")[1], 0)
    sut.completion(90)
    request = wire.read_request(session.read_msn, 0xAA, 1000, big.size, stag, big.addr)
    peer.fpdu(request)
    peer.taken()
    peer.fpdu(untagged(SEND_INV, 0, 1, 0, b"stop", inv=stag))
    sut.completion(1)
    segment = peer.segment()
    got = 0
    while segment.opcode == READ_RESPONSE:
        got += len(segment.payload)
        segment = peer.segment()
    check(0 < got < big.size, f"{got} octets of {big.size}")
    rdma = wire.read_header(0xAA, 1000 + got, big.size - got, stag, big.addr + got)
    want = wire.terminate(0, 1, 0, request[:18], len(request), rdma)
    check(segment.ulpdu == want, f"{segment.ulpdu.hex()}, not {want.hex()}")
    check(peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, ((2, FLUSHED),))


if __name__ == "__main__":
    sys.exit(main())
