# SPDX-License-Identifier: MIT
"""Terminates that the peer sends, in every form: right ones, empty ones, broken ones (RFC 5040 sections 4.8 and 5.4).

None is answered with a Terminate. The Read that one names completes with the error it tells, everything else is
flushed, the consumer hears of the end."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import FLUSHED, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR, SUCCESS, Session, check, main, row
from peer.wire import READ_REQUEST, READ_RESPONSE, SEND, TERMINATE, WRITE, pattern, tagged, terminate, untagged

REMOTE = {REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR}
ANY_ERROR = set(range(1, 23))


def prepare(session):
    session.sut.memory("m", 4096, "lrw", seed=5)
    for number in (1, 2):
        session.sut.recv(session.conn, number, "m:3000:100")


class Reader:
    """Two Reads of uiw's are outstanding, the first is number 50 of 100 octets."""

    def __init__(self, bench):
        self.session = Session(bench, initiator=True, before=prepare)
        self.sut, self.peer = self.session.sut, self.session.peer
        self.sut.post("call", 50, "read", "m:100:100", rkey=0x77, addr=0x1000)
        self.sut.post("call", 51, "read", "m:2000:10", rkey=0x77, addr=0x2000)
        self.segments = [self.peer.segment(), self.peer.segment()]

    def judge(self, first, second={FLUSHED}):
        check(self.peer.gone() in ("fin", "reset"), "the stream stands")  # and nothing is said
        self.session.down()
        self.sut.completion(50, first)
        self.sut.completion(51, second)
        for number in (1, 2):
            self.sut.completion(number, FLUSHED)
        self.sut.memories["m"].untouched()
        self.sut.post("call", 60, "send", "m:0:1")
        self.sut.completion(60, FLUSHED)


def names_read(bench, which, error, statuses, headers="DR"):
    reader = Reader(bench)
    ulpdu = reader.segments[which].ulpdu
    layer, etype, code = error
    reader.peer.fpdu(terminate(layer, etype, code, ulpdu[:18] if "D" in headers else b"", len(ulpdu),
                               ulpdu[18:] if "R" in headers else b""))
    if which == 0:
        reader.judge(statuses)
    else:  # RFC 5040 5.4: what was not answered before is flushed
        reader.judge(ANY_ERROR, statuses)


for _which in (0, 1):
    for _code, _name in ((0, "invalid STag"), (1, "bounds"), (2, "access rights"), (3, "not associated"),
                         (4, "TO wrap"), (0xFF, "unspecified")):
        row(f"remote protection error, {_name}, names Read {_which + 1}", which=_which, error=(0, 1, _code),
            statuses={REM_ACCESS_ERR})(names_read)
    for _code in (5, 6, 7, 8, 0xFF):
        row(f"remote operation error {_code:#x} names Read {_which + 1}", which=_which, error=(0, 2, _code),
            statuses={REM_OP_ERR, REM_INV_REQ_ERR}, headers="D")(names_read)
    for _code in (1, 2, 3, 4, 5, 6):
        row(f"untagged buffer error {_code:#x} names Read {_which + 1}", which=_which, error=(1, 2, _code),
            statuses={REM_OP_ERR, REM_INV_REQ_ERR}, headers="D")(names_read)


def unnamed(bench, error):
    """Without headers nobody is named; the Reads fail all the same."""
    reader = Reader(bench)
    reader.peer.fpdu(terminate(*error))
    reader.judge(ANY_ERROR, ANY_ERROR)
    reader.session.qp_event()


for _error in ((0, 0, 0), (0, 0, 0xFF), (0, 1, 0), (0, 2, 7), (1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 0, 2), (2, 0, 5),
               (2, 0, 6), (2, 0, 7), (15, 15, 255)):
    row(f"without headers: layer {_error[0]}, type {_error[1]}, code {_error[2]:#x}", error=_error)(unnamed)


@row("names a Write: asynchronous event, Reads flushed")
def names_write(bench):
    reader = Reader(bench)
    reader.peer.fpdu(terminate(1, 1, 0, tagged(WRITE, 0x77, 0x1000), 114))
    reader.judge(ANY_ERROR, ANY_ERROR)
    reader.session.qp_event()


@row("names a Send")
def names_send(bench):
    reader = Reader(bench)
    reader.peer.fpdu(terminate(1, 2, 5, untagged(SEND, 0, 1), 118))
    reader.judge(ANY_ERROR, ANY_ERROR)


@row("names a Read that is not outstanding")
def names_nobody(bench):
    for msn in (0, 3, 999, 0xFFFFFFFF):
        reader = Reader(bench)
        reader.peer.fpdu(terminate(0, 1, 0, untagged(READ_REQUEST, 1, msn), 46, wire.read_header(1, 2, 3, 4, 5)))
        reader.judge(ANY_ERROR, ANY_ERROR)
        reader.sut.quit()


@row("names the first Read when that is answered already: its completion is a success")
def names_done(bench):
    reader = Reader(bench)
    request = wire.read_fields(reader.segments[0])
    reader.peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(105, 100)))
    ulpdu = reader.segments[1].ulpdu
    reader.peer.fpdu(terminate(0, 1, 1, ulpdu[:18], len(ulpdu), ulpdu[18:]))
    reader.judge({SUCCESS}, {REM_ACCESS_ERR})


@row("in the middle of the answer: the Read fails, the octets that came may stay")
def half_answer(bench):
    reader = Reader(bench)
    request = wire.read_fields(reader.segments[0])
    reader.peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(105, 40), False))
    reader.peer.fpdu(terminate(0, 1, 1, reader.segments[0].ulpdu[:18], 46,
                               wire.read_header(request.sink_stag, request.sink_to + 40, 60, 0x77, 0x1000 + 40)))
    reader.judge({REM_ACCESS_ERR})


# ---- the form of the kernel's siw ------------------------------------------------------------------------------------


def of_siw(layer, etype, code, headers, payload, read=False):
    """siw on a little-endian machine: layer and type in each other's place, M, D and R in the low bits, the length of
    the payload alone."""
    word = bytes([etype << 4 | layer, code, 7 if read else 3, 0])
    return untagged(TERMINATE, 2, 1, 0, word + payload.to_bytes(2, "big") + headers)


def siw_names_read(bench, which, error, statuses, msn=None):
    """msn: siw names another where it notices the error while it answers."""
    reader = Reader(bench)
    ulpdu = reader.segments[which].ulpdu
    if msn is not None:
        ulpdu = untagged(READ_REQUEST, 1, msn) + ulpdu[18:]
    reader.peer.fpdu(of_siw(*error, ulpdu, 0, error[:2] == (0, 1)))
    if which == 0:
        reader.judge(statuses)
    else:
        reader.judge(ANY_ERROR, statuses)


for _which in (0, 1):
    for _code in (0, 1, 2):
        row(f"in siw's form: remote protection error {_code} names Read {_which + 1}", which=_which,
            error=(0, 1, _code), statuses={REM_ACCESS_ERR})(siw_names_read)
    row(f"in siw's form: untagged buffer error names Read {_which + 1}", which=_which, error=(1, 2, 2),
        statuses={REM_OP_ERR, REM_INV_REQ_ERR})(siw_names_read)
for _which, _msn in ((0, 100), (1, 10), (0, 2), (1, 1)):
    row(f"in siw's form: Read {_which + 1} with MSN {_msn}", which=_which, error=(0, 1, 2), msn=_msn,
        statuses={REM_ACCESS_ERR})(siw_names_read)


@row("in siw's form: names a Write", layer=1)
@row("in siw's form: names a Write, by RDMAP", layer=0)
def siw_names_write(bench, layer):
    session = Session(bench, initiator=True, before=prepare, env={"UIW_COMPLETION": "remote"})
    for number in (50, 51):
        session.sut.post("call", number, "write", "m:0:100", rkey=0x77, addr=0x1000 * number)
    segments = [segment for segment in (session.peer.segment() for _ in range(2)) if segment.opcode == WRITE]
    while len(segments) < 2:
        segment = session.peer.segment()
        segments += [segment] if segment.opcode == WRITE else []
    headers = segments[1].ulpdu[:14] + (bytes(4) if layer == 0 else b"")
    session.peer.fpdu(of_siw(layer, 1, 0, headers, 100, layer == 0))
    check(session.peer.gone() in ("fin", "reset"), "the stream stands")
    session.down()
    session.sut.completion(50, SUCCESS)
    session.sut.completion(51, REM_ACCESS_ERR)


@row("with nothing outstanding")
def idle(bench):
    for headers in (False, True):
        session = Session(bench, before=prepare)
        session.alive()
        session.peer.fpdu(terminate(0, 2, 6, untagged(SEND, 0, 1) if headers else b""))
        session.peer.gone()
        session.down()
        session.sut.completion(1, FLUSHED)
        session.sut.completion(2, FLUSHED)
        session.qp_event()
        session.sut.quit()


@row("as the first FPDU of the stream")
def first(bench):
    session = Session(bench, before=prepare, revision=1)
    session.peer.fpdu(terminate(0, 0, 0))
    session.peer.gone()
    session.down()


@row("followed by other FPDUs: they are ignored")
def followed(bench):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.peer.send(wire.fpdu(terminate(0, 0, 0)) + wire.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"late"))
                      + wire.fpdu(untagged(SEND, 0, 1, 0, b"late")))
    session.peer.gone()
    session.down()
    session.sut.completion(1, FLUSHED)
    session.sut.completion(2, FLUSHED)
    memory.untouched()


@row("octet by octet, and followed by FIN or reset at once")
def pieces(bench):
    for how in ("pieces", "fin", "reset"):
        session = Session(bench, before=prepare)
        session.peer.send(wire.fpdu(terminate(0, 1, 0, untagged(SEND, 0, 1))), 1 if how == "pieces" else None)
        if how == "fin":
            session.peer.finish()
        elif how == "reset":
            session.peer.close(reset=True)
        session.down()
        session.sut.completion(1, FLUSHED)
        session.sut.completion(2, FLUSHED)
        session.sut.quit()


def broken(bench, ulpdu):
    """A Terminate that is none: an end like the others, or an error of its own; never more than one Terminate back."""
    reader = Reader(bench)
    reader.peer.fpdu(ulpdu)
    peer = reader.peer
    if not peer.ready:
        peer._more(15)
    if peer.ready:
        peer.terminated()
    peer.gone()
    reader.session.down()
    for number in (50, 51, 1, 2):
        check(reader.sut.completion(number, None).status != SUCCESS, f"{number} succeeds")
    reader.sut.memories["m"].untouched()


def _raw(payload, **more):
    return untagged(TERMINATE, 2, more.pop("msn", 1), more.pop("mo", 0), payload, **more)


_read = untagged(READ_REQUEST, 1, 1)
for _name, _ulpdu in [
        ("no payload", _raw(b"")), ("1 octet", _raw(b"\0")), ("3 octets", _raw(b"\0\0\0")),
        ("M and nothing more", _raw(b"\x01\x00\x80\x00")), ("D and nothing more", _raw(b"\x01\x00\x40\x00")),
        ("R and nothing more", _raw(b"\x01\x00\x20\x00")), ("all bits and nothing more", _raw(b"\x01\x00\xe0\x00")),
        ("all bits and a length", _raw(b"\x01\x00\xe0\x00\x00\x2e")),
        ("DDP header of 1 octet", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read[:1])),
        ("DDP header of 17 octets", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read[:17])),
        ("RDMA header missing", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read)),
        ("RDMA header of 27 octets", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read + bytes(27))),
        ("R without D", _raw(b"\x01\x00\xa0\x00\x00\x2e" + bytes(28))),
        ("reserved bits set", _raw(b"\x01\x00\xff\xff\x00\x2e" + _read + bytes(28))),
        ("octets behind the last header", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read + bytes(28 + 40))),
        ("1000 octets", _raw(b"\x01\x00\xe0\x00\x00\x2e" + _read + bytes(1000))),
        ("60000 octets", _raw(b"\xff" * 60000)),
        ("a DDP header of another version", _raw(b"\x01\x00\xc0\x00\x00\x2e" + untagged(READ_REQUEST, 1, 1, dv=3))),
        ("MSN 0", terminate(0, 1, 0, msn=0)), ("MSN 2", terminate(0, 1, 0, msn=2)),
        ("MO 4", _raw(b"\x00\x00\x00\x00", mo=4)),
        ("queue 0", terminate(0, 1, 0, qn=0)), ("queue 1", terminate(0, 1, 0, qn=1)),
        ("another opcode on queue 2", untagged(SEND, 2, 1, 0, bytes(4)))]:
    row(f"broken: {_name}", ulpdu=_ulpdu)(broken)


@row("malformed: the last flag is missing")
def not_last(bench):
    """Its rest may come; when FIN comes instead, that is the end."""
    reader = Reader(bench)
    reader.peer.fpdu(_raw(b"\x00\x00\x00\x00", last=False))
    reader.peer.finish()
    reader.session.down()
    for number in (50, 51, 1, 2):
        check(reader.sut.completion(number, None).status != SUCCESS, f"{number} succeeds")


@row("both sides send a Terminate at once")
def crossing(bench):
    session = Session(bench, before=prepare)
    session.peer.send(wire.fpdu(tagged(WRITE, 1, 2, b"bad")) + wire.fpdu(terminate(0, 0, 0)))
    check(session.peer.terminated().error == 0x1100, "Terminate")
    session.peer.gone()
    session.down()


@row("Sends that wait in the queue when a Terminate comes are flushed in order")
def queued(bench):
    session = Session(bench, before=prepare, rcvbuf=8192, crc=False)
    session.alive()
    big = session.sut.memory("big", 4 << 20, "l", seed=1)
    for number in range(100, 110):
        session.sut.post(session.conn, number, "send", f"big:0:{big.size}")
    session.peer.fpdu(terminate(0, 2, 7))
    session.down()
    flushed = False
    pending = [1, 2] + list(range(100, 110))
    sends = []
    while pending:
        wc = session.sut.completion(None, None)
        check(wc.wr_id in pending, f"{wc} once more")
        pending.remove(wc.wr_id)
        if wc.wr_id >= 100:
            sends.append(wc.wr_id)
            check(not (flushed and wc.status == SUCCESS), "a success behind a flushed one")
            flushed = flushed or wc.status != SUCCESS
    check(sends == sorted(sends), f"order {sends}")
    check(flushed, "40 MiB went into a window of 8 KiB")


if __name__ == "__main__":
    sys.exit(main())
