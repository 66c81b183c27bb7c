# SPDX-License-Identifier: MIT
"""Terminates of the peer that are cut short, broken or come at an awkward time (RFC 5040 sections 4.8, 5.4 and 7.2).

One that arrives as a message of its queue is not answered, whatever is in it: the program is told that the peer has
terminated. One that is no message of queue 2 at all is an error like others."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, expected, last_word, whole_fpdus
from peer.sut import (FLUSHED, QP_ACCESS_ERR, QP_FATAL, QP_REQ_ERR, RECEIVES, REM_ACCESS_ERR, REM_OP_ERR, SUCCESS,
                      Session, check, main, row, two_receives)
from peer.wire import READ_REQUEST, SEND, TERMINATE, WRITE, fpdu, pattern, tagged, terminate, untagged

prepare = two_receives(4096)


def reader(bench, **more):
    """Two Reads of uiw's are outstanding; the first Read Request, as it came."""
    session = Session(bench, initiator=True, before=prepare, **more)
    for number in (50, 51):
        session.sut.post("call", number, "read", f"m:{number}:1", rkey=0x77, addr=0x1000 * number)
    ulpdus = [session.peer.segment().ulpdu for _ in range(2)]
    return session, ulpdus[0]


def not_answered(session, *completions):
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, completions + RECEIVES)
    session.sut.memories["m"].untouched()


# ---- what is in it -----------------------------------------------------------------------------------------------------


def _raw(payload, msn=1, mo=0, **more):
    return untagged(TERMINATE, 2, msn, mo, payload, **more)


@row("cut short: a Terminate with all headers, at each length", crc=True)
@row("cut short: a Terminate with all headers, at each length, CRC off", crc=False)
def cut_short(bench, crc):
    """What is cut names nobody, so the oldest Read fails."""
    sut = None
    for length in range(53):
        session, read = reader(bench, crc=crc, sut=sut)
        sut = session.sut
        sut.asyncs.clear()
        whole = terminate(0, 1, 0, read[:18], len(read), read[18:])
        check(len(whole) == 18 + 52, "the whole has 52 octets")
        session.peer.fpdu(whole[:18 + length])
        status = REM_ACCESS_ERR if length == 52 else REM_OP_ERR
        try:
            not_answered(session, (50, status), (51, FLUSHED))
        except wire.Failure as failure:
            raise wire.Failure(f"{length} octets: {failure}") from None
        session.peer.close()
        sut.command("destroy call")


_head = untagged(READ_REQUEST, 1, 1)
for _name, _payload, _status in (
        ("D without the header", b"\x01\x00\x40\x00", REM_OP_ERR),
        ("R without the header", b"\x01\x00\x20\x00", REM_OP_ERR),
        ("M and nothing more", b"\x01\x00\x80\x00", REM_OP_ERR),
        ("M alone, with its length", b"\x01\x00\x80\x00\x00\x2e", REM_ACCESS_ERR),
        ("R without D", b"\x01\x00\xa0\x00\x00\x2e" + bytes(28), REM_ACCESS_ERR),
        ("D without M", b"\x01\x00\x40\x00\x00\x00" + _head, REM_ACCESS_ERR),
        ("reserved bits set, which are ignored", b"\x01\x00\xff\xff\x00\x2e" + _head + bytes(28), REM_ACCESS_ERR),
        ("octets behind the last header, which are ignored", b"\x01\x00\xe0\x00\x00\x2e" + _head + bytes(28 + 40),
         REM_ACCESS_ERR),
        ("1000 octets", b"\x01\x00\xe0\x00\x00\x2e" + _head + bytes(1000), REM_ACCESS_ERR),
        ("a DDP header of another version", b"\x01\x00\xc0\x00\x00\x2e" + untagged(READ_REQUEST, 1, 1, dv=3),
         REM_ACCESS_ERR),
        ("a segment length of 0", b"\x01\x00\xe0\x00\x00\x00" + _head + bytes(28), REM_ACCESS_ERR),
        ("60000 octets, all ones, which name no request", b"\xff" * 60000, FLUSHED),
        ("headers of a Read that does not exist", b"\x01\x00\xc0\x00\x00\x2e" + untagged(READ_REQUEST, 1, 3), FLUSHED)):
    def _form(bench, payload, status):
        session, _ = reader(bench)
        session.peer.fpdu(_raw(payload))
        not_answered(session, (50, status), (51, FLUSHED))

    row(f"form: {_name}", payload=_payload, status=_status)(_form)


def no_terminate(bench, ulpdu, error):
    """It is answered with a Terminate of uiw's."""
    session, _ = reader(bench)
    memory = session.sut.memories["m"]
    session.peer.send(fpdu(ulpdu) + fpdu(tagged(WRITE, memory.rkey, memory.addr, b"behind")))
    last_word(session.peer, expected(error, ulpdu))
    ended(session, QP_REQ_ERR, ((50, FLUSHED), (51, FLUSHED)) + RECEIVES)
    memory.untouched()


for _name, _ulpdu, _error in (
        ("MSN 0", terminate(0, 1, 0, msn=0), 0x1203), ("MSN 2", terminate(0, 1, 0, msn=2), 0x1203),
        ("MSN 0xFFFFFFFF", terminate(0, 1, 0, msn=0xFFFFFFFF), 0x1203),
        ("MO 4", _raw(bytes(4), mo=4), 0x1204), ("the last flag is missing", _raw(bytes(4), last=False), 0x1205),
        ("no octets, the last flag is missing", _raw(b"", last=False), 0x1205),
        ("on queue 0", terminate(0, 1, 0, qn=0), 0x0206), ("on queue 1", terminate(0, 1, 0, qn=1), 0x0206),
        ("on queue 3", terminate(0, 1, 0, qn=3), 0x0206), ("on queue 4", terminate(0, 1, 0, qn=4), 0x1201),
        ("a Send on queue 2", untagged(SEND, 2, 1, 0, bytes(4)), 0x0206),
        ("a Read Request on queue 2", untagged(READ_REQUEST, 2, 1, 0, bytes(28)), 0x0206),
        ("DDP version 3", _raw(bytes(4), dv=3), 0x1206), ("RDMAP version 0", _raw(bytes(4), rv=0), 0x0205)):
    row(f"no Terminate: {_name}", ulpdu=_ulpdu, error=_error)(no_terminate)


# ---- when it comes -----------------------------------------------------------------------------------------------------


@row("behind a Write and a Send in one TCP segment: they count; what is behind it does not")
def behind_others(bench):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.alive()
    session.peer.send(fpdu(tagged(WRITE, memory.rkey, memory.addr, b"good")) + fpdu(untagged(SEND, 0, 1, 0, b"good"))
                      + fpdu(terminate(0, 2, 7)) + fpdu(untagged(SEND, 0, 2, 0, b"late"))
                      + fpdu(tagged(WRITE, 0, 5, b"late")) + fpdu(terminate(0, 2, 7)))
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, ((1, SUCCESS), (2, FLUSHED)))
    check(memory.dump(0, 4) + memory.dump(1000, 4) == b"goodgood", "memory")
    check(memory.dump(2000, 4) == pattern(2005, 4), "memory behind the Terminate")


@row("behind a Read Request in one TCP segment: nothing is said any more")
def behind_read(bench):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.alive()
    session.peer.send(fpdu(wire.read_request(2, 7, 8, 100, memory.rkey, memory.addr)) + fpdu(terminate(0, 2, 7)))
    not_answered(session)


def in_a_message(bench, crc, answers):
    """uiw is in the middle of a long message, which breaks off behind a whole FPDU."""
    session = Session(bench, initiator=not answers, before=prepare, crc=crc, rcvbuf=8192,
                      env={"UIW_MULPDU": "6001"})  # so that TCP takes a part of an FPDU when it is full
    sut, peer = session.sut, session.peer
    big = sut.memory("big", 6 << 20, "lr", seed=1)
    sends = () if answers else (60, 61)
    if answers:
        session.read(7, 0, big.size, big.rkey, big.addr)
        peer.taken()
    for number in sends:
        sut.post(session.conn, number, "send", f"big:0:{big.size}")
    peer.fpdu(terminate(0, 2, 7))
    ended(session, QP_FATAL, tuple((number, REM_OP_ERR if number == 60 else FLUSHED) for number in sends) + RECEIVES)
    got, end, rest = whole_fpdus(peer)
    check(0 < got < big.size, f"{got} octets of {big.size}")
    check((end, rest) == ("fin", 0), f"{end} behind {rest} octets of an FPDU")


for _crc in (True, False):
    _off = "" if _crc else ", CRC off"
    row(f"while a Read of 6 MiB is answered{_off}", crc=_crc, answers=True)(in_a_message)
    row(f"while a Send of 6 MiB goes out{_off}", crc=_crc, answers=False)(in_a_message)


@row("behind a Send that waits for a receive: both count once there is one", finishes=False)
@row("behind a Send that waits for a receive, and before FIN: both count once there is one", finishes=True)
def behind_paused(bench, finishes):
    session = Session(bench, before=lambda first: first.sut.memory("m", 4096, "lrw", seed=5))
    session.alive()
    session.send(b"waits")
    session.peer.taken()
    session.peer.fpdu(terminate(0, 2, 7))
    if finishes:
        session.peer.finish()
    session.sut.recv(session.conn, 1, "m:0:100")
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, ((1, SUCCESS),))
    check(session.sut.memories["m"].dump(0, 5) == b"waits", "memory")


@row("in the middle of a Send")
def in_a_send(bench):
    session = Session(bench, before=prepare)
    session.alive()
    session.peer.fpdu(untagged(SEND, 0, 1, 0, b"half", False))
    session.peer.fpdu(terminate(0, 2, 7))
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL)


@row("behind an error in one TCP segment: uiw's Terminate is sent all the same, and the error counts")
def behind_error(bench):
    session = Session(bench, before=prepare)
    bad = tagged(WRITE, 1, 2, b"bad")
    session.peer.send(fpdu(bad) + fpdu(terminate(0, 0, 0)))
    last_word(session.peer, expected(0x1100, bad))
    ended(session, QP_ACCESS_ERR)


@row("before an error in one TCP segment: nothing is said")
def before_error(bench):
    session = Session(bench, before=prepare)
    session.alive()
    session.peer.send(fpdu(terminate(0, 0, 0)) + fpdu(tagged(WRITE, 1, 2, b"bad")))
    not_answered(session)


@row("before a wrong CRC in one TCP segment: nothing is said")
def before_crc(bench):
    session = Session(bench, before=prepare)
    session.alive()
    session.peer.send(fpdu(terminate(0, 0, 0)) + fpdu(tagged(WRITE, 1, 2, b"bad"), damage=1))
    not_answered(session)


if __name__ == "__main__":
    sys.exit(main())
