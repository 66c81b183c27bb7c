# SPDX-License-Identifier: MIT
"""Which work does a Terminate of the peer name, and how does it complete (RFC 5040 sections 4.8 and 5.4)?

None is answered with a Terminate. The work that one names completes with the error it tells, everything else is flushed,
and one asynchronous event tells of the Terminate. terminate_forms.py has those that are cut short or broken."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended
from peer.sut import (FLUSHED, QP_FATAL, RECEIVES, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR, SUCCESS, Session, check,
                      main, row)
from peer.wire import READ_REQUEST, READ_RESPONSE, SEND, TERMINATE, WRITE, pattern, tagged, terminate, untagged

FATAL_ERR = 19  # IBV_WC_FATAL_ERR


def prepare(session):
    session.sut.memory("m", 4096, "lrw", seed=5)
    for number in (1, 2):
        session.sut.recv(session.conn, number, "m:3000:100")


class Reader:
    """Two Reads of uiw's are outstanding, the first is number 50 of 100 octets."""

    def __init__(self, bench):
        self.session, self.sut, self.peer = Session(bench, initiator=True, before=prepare)
        self.sut.post("call", 50, "read", "m:100:100", rkey=0x77, addr=0x1000)
        self.sut.post("call", 51, "read", "m:2000:10", rkey=0x77, addr=0x2000)
        self.segments = [self.peer.segment(), self.peer.segment()]

    def judge(self, first, second=FLUSHED, changed=(0, 0)):
        check(self.peer.gone() == "fin", "reset")  # and nothing is said
        ended(self.session, QP_FATAL, ((50, first), (51, second)) + RECEIVES)
        self.sut.memories["m"].untouched(changed)
        self.sut.post("call", 60, "send", "m:0:1")
        self.sut.completion(60, FLUSHED)


def names_read(bench, which, error, status, headers="DR"):
    reader = Reader(bench)
    ulpdu = reader.segments[which].ulpdu
    layer, etype, code = error
    reader.peer.fpdu(terminate(layer, etype, code, ulpdu[:18] if "D" in headers else b"", len(ulpdu),
                               ulpdu[18:] if "R" in headers else b""))
    reader.judge(*((status, FLUSHED) if which == 0 else (FLUSHED, status)))


for _which in (0, 1):
    for _code, _name in ((0, "invalid STag"), (1, "bounds"), (2, "access rights"), (3, "not associated"),
                         (4, "TO wrap"), (0xFF, "unspecified")):
        row(f"remote protection error, {_name}, names Read {_which + 1}", which=_which, error=(0, 1, _code),
            status=REM_ACCESS_ERR)(names_read)
    for _code in (5, 6, 7, 8, 0xFF):
        row(f"remote operation error {_code:#x} names Read {_which + 1}", which=_which, error=(0, 2, _code),
            status=REM_INV_REQ_ERR if _code == 6 else REM_OP_ERR, headers="D")(names_read)
    for _code in (1, 2, 3, 4, 5, 6):
        row(f"untagged buffer error {_code:#x} names Read {_which + 1}", which=_which, error=(1, 2, _code),
            status=REM_INV_REQ_ERR, headers="D")(names_read)


def unnamed(bench, error, status):
    """Without headers nobody is named: the oldest Read has the error."""
    reader = Reader(bench)
    reader.peer.fpdu(terminate(*error))
    reader.judge(status)


for _error, _status in (((0, 0, 0), REM_OP_ERR), ((0, 0, 0xFF), REM_OP_ERR), ((0, 1, 0), REM_ACCESS_ERR),
                        ((0, 1, 9), REM_ACCESS_ERR), ((0, 2, 6), REM_INV_REQ_ERR), ((0, 2, 7), REM_OP_ERR),
                        ((0, 2, 9), REM_OP_ERR), ((1, 0, 0), REM_OP_ERR), ((1, 1, 0), REM_ACCESS_ERR),
                        ((1, 2, 2), REM_INV_REQ_ERR), *(((2, 0, code), FATAL_ERR) for code in range(1, 8)),
                        ((15, 15, 255), FATAL_ERR)):
    row(f"without headers: layer {_error[0]}, type {_error[1]}, code {_error[2]:#x}", error=_error,
        status=_status)(unnamed)


def names_none_of_them(bench, build):
    """What is named is not outstanding, so nothing has the error."""
    for ddp, rdma in build:
        reader = Reader(bench)
        reader.peer.fpdu(terminate(0, 1, 0, ddp, 114, rdma))
        reader.judge(FLUSHED)
        reader.sut.quit()


row("names a Write, of which there is none", build=[(tagged(WRITE, 0x77, 0x1000), b"")])(names_none_of_them)
row("names a Send, of which there is none", build=[(untagged(SEND, 0, msn), b"") for msn in (0, 1, 2)])(
    names_none_of_them)
row("names a Read that is not outstanding", build=[(untagged(READ_REQUEST, 1, msn), wire.read_header(1, 2, 3, 4, 5))
                                                   for msn in (0, 3, 999, 0xFFFFFFFF)])(names_none_of_them)
row("names an answer of the peer's", build=[(tagged(READ_RESPONSE, 0x77, 0x1000), b""),
                                            (untagged(wire.ATOMIC_RESPONSE, 3, 1), b"")])(names_none_of_them)


@row("names the first Read when that is answered already: its completion is a success")
def names_done(bench):
    reader = Reader(bench)
    request = wire.read_fields(reader.segments[0])
    reader.peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(105, 100)))
    ulpdu = reader.segments[1].ulpdu
    reader.peer.fpdu(terminate(0, 1, 1, ulpdu[:18], len(ulpdu), ulpdu[18:]))
    reader.judge(SUCCESS, REM_ACCESS_ERR, changed=(100, 200))


@row("in the middle of the answer: the Read fails, the octets that came may stay")
def half_answer(bench):
    reader = Reader(bench)
    request = wire.read_fields(reader.segments[0])
    reader.peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(105, 40), False))
    reader.peer.fpdu(terminate(0, 1, 1, reader.segments[0].ulpdu[:18], 46,
                               wire.read_header(request.sink_stag, request.sink_to + 40, 60, 0x77, 0x1000 + 40)))
    reader.judge(REM_ACCESS_ERR, changed=(100, 140))


# ---- the form of the kernel's siw ------------------------------------------------------------------------------------


def of_siw(layer, etype, code, headers, payload, read=False):
    """siw on a little-endian machine: layer and type in each other's place, M, D and R in the low bits, the length of
    the payload alone."""
    word = bytes([etype << 4 | layer, code, 7 if read else 3, 0])
    return untagged(TERMINATE, 2, 1, 0, word + payload.to_bytes(2, "big") + headers)


def siw_names_read(bench, which, error, status, msn=None):
    """msn: siw names another where it notices the error while it answers."""
    reader = Reader(bench)
    ulpdu = reader.segments[which].ulpdu
    if msn is not None:
        ulpdu = untagged(READ_REQUEST, 1, msn) + ulpdu[18:]
    reader.peer.fpdu(of_siw(*error, ulpdu, 0, error[:2] == (0, 1)))
    reader.judge(*((status, FLUSHED) if which == 0 else (FLUSHED, status)))


for _which in (0, 1):
    for _code in (0, 1, 2):
        row(f"in siw's form: remote protection error {_code} names Read {_which + 1}", which=_which,
            error=(0, 1, _code), status=REM_ACCESS_ERR)(siw_names_read)
    row(f"in siw's form: untagged buffer error names Read {_which + 1}", which=_which, error=(1, 2, 2),
        status=REM_INV_REQ_ERR)(siw_names_read)
for _which, _msn in ((0, 100), (1, 10), (0, 2), (1, 1)):
    row(f"in siw's form: Read {_which + 1} with MSN {_msn}", which=_which, error=(0, 1, 2), msn=_msn,
        status=REM_ACCESS_ERR)(siw_names_read)


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


# ---- Sends and Writes that are not confirmed ---------------------------------------------------------------------------


def names_sent(bench, which, error, status, layers=True, rule="remote"):
    """By the remote rule work that was sent is outstanding, and what stands before the work that is named is good. By the
    local rule all of it has completed. which: a Write, a Send, a Send with Invalidate, or a Send behind them."""
    session, sut, peer = Session(bench, initiator=True, before=prepare, env={"UIW_COMPLETION": rule})
    for number, operation in ((50, "write"), (51, "send"), (52, "send_inv"), (53, "send")):
        sut.post("call", number, operation, "m:0:100", rkey=0x77, addr=0x1000, flags="-" if number == 53 else "c")
    ulpdus = [peer.segment().ulpdu for _ in range(4)]
    if rule == "remote":
        check(wire.read_fields(peer.segment()).size == 0, "the probe behind them")
    ulpdu = ulpdus[which]
    statuses = [SUCCESS] * which + [status] + [FLUSHED] * (3 - which)
    if rule == "local":
        for number in range(50, 54):
            sut.completion(number)
        statuses = []
    peer.fpdu(terminate(*error, ulpdu[:14 if which == 0 else 18] if layers else b"", len(ulpdu)))
    check(peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, tuple(enumerate(statuses, 50)) + RECEIVES)


NAMES = ("a Write", "a Send", "a Send with Invalidate", "the last Send")
for _which, _errors in (
        (0, [((1, 1, code), REM_ACCESS_ERR) for code in range(5)]
         + [((0, 2, code), REM_INV_REQ_ERR if code == 6 else REM_OP_ERR) for code in (5, 6, 7, 8, 0xFF)]
         + [((0, 1, 0), REM_ACCESS_ERR), ((1, 0, 0), REM_OP_ERR)]),
        (1, [((1, 2, code), REM_INV_REQ_ERR) for code in range(1, 7)]
         + [((0, 2, code), REM_INV_REQ_ERR if code == 6 else REM_OP_ERR) for code in (5, 6, 7, 8, 0xFF)]
         + [((2, 0, code), FATAL_ERR) for code in range(1, 8)] + [((0, 0, 0), REM_OP_ERR), ((1, 0, 0), REM_OP_ERR)]),
        (2, [((0, 1, code), REM_ACCESS_ERR) for code in (0, 2, 3, 9, 0xFF)] + [((0, 2, 9), REM_OP_ERR)]),
        (3, [((1, 2, 2), REM_INV_REQ_ERR), ((1, 2, 5), REM_INV_REQ_ERR)])):
    for _error, _status in _errors:
        row(f"layer {_error[0]}, type {_error[1]}, code {_error[2]:#x} names {NAMES[_which]}", which=_which, error=_error,
            status=_status)(names_sent)
    row(f"names {NAMES[_which]} that has completed by the local rule", which=_which, error=_errors[0][0], status=None,
        rule="local")(names_sent)


@row("with nothing outstanding")
def idle(bench):
    for headers in (False, True):
        session = Session(bench, before=prepare)
        session.alive()
        session.peer.fpdu(terminate(0, 2, 6, untagged(SEND, 0, 1) if headers else b""))
        check(session.peer.gone() == "fin", "reset")
        ended(session, QP_FATAL)
        session.sut.quit()


@row("as the first FPDU of the stream")
def first(bench):
    session = Session(bench, before=prepare, revision=1)
    session.peer.fpdu(terminate(0, 0, 0))
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL)


@row("followed by other FPDUs: they are ignored")
def followed(bench):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.peer.send(wire.fpdu(terminate(0, 0, 0)) + wire.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"late"))
                      + wire.fpdu(untagged(SEND, 0, 1, 0, b"late")))
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL)
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
        ended(session, QP_FATAL)
        session.sut.quit()


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
