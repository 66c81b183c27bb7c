# SPDX-License-Identifier: MIT
"""Memory that the program under test takes away while the peer, or uiw, uses it: deregistered, re-registered with fewer
rights, or unmapped. What does the Terminate say, and which completion tells (RFC 5040 sections 4.8 and 7.1, RFC 7306
section 8.1; Verbs draft figure 23)?

What is not registered any more is a protection error. Memory that is registered and not there is no error of the peer:
a local catastrophic error where uiw's own work fails, "catastrophic error, localized to RDMAP stream" else."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, expected, last_word
from peer.sut import (FLUSHED, LOC_PROT_ERR, QP_FATAL, QP_REQ_ERR, RECEIVES, SUCCESS, Responder, Session, check, main,
                      row)
from peer.wire import READ_RESPONSE, SEND, WRITE, tagged, untagged

LOCAL = expected(0x0000)  # no headers
NOT_THERE = 0x0207
SIZE = 1 << 20


def prepare(session):
    sut = session.sut
    sut.memory("m", 4096, "lrw", seed=5)
    sut.memory("sink", SIZE, "lrwa", seed=7)
    for number in (1, 2):
        sut.recv(session.conn, number, f"m:{number * 1000}:500")


def each(title, **more):
    """One row for each way in which memory goes, with CRC and without."""

    def mark(function):
        for how, text in (("dereg", "deregistered"), ("unmap", "unmapped")):
            for crc in (True, False):
                row(f"{title}: {text}" + ("" if crc else ", CRC off"), how=how, crc=crc, **more)(function)
        return function

    return mark


# ---- where the peer's octets go ------------------------------------------------------------------------------------------


def sink_of_read(bench, how, crc, size):
    """The Read's own completion tells, so no event does (Verbs draft section 6.2.3)."""
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=crc)
    for number, length in ((50, 10), (51, size), (52, 10)):
        sut.post("call", number, "read", f"sink:{number * 10}:{length}", rkey=1, addr=2)
    responder = Responder(peer)
    for _ in range(3):
        responder.hear()
    responder.answer(bytes(10))
    sut.completion(50)
    sut.command(f"{how} sink")
    responder.answer(bytes(size))
    last_word(peer, LOCAL)
    ended(session, None, ((51, LOC_PROT_ERR), (52, FLUSHED)) + RECEIVES)


each("the sink of a Read of 10 octets", size=10)(sink_of_read)
each("the sink of a Read of 50000 octets", size=50000)(sink_of_read)


@each("the sink of a Read, between two segments of the answer")
def sink_between(bench, how, crc):
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=crc)
    sut.post("call", 50, "read", "sink:0:60000", rkey=1, addr=2)
    request = wire.read_fields(peer.segment())
    peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, bytes(30000), False))
    peer.taken()
    sut.command(f"{how} sink")
    peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to + 30000, bytes(30000)))
    last_word(peer, LOCAL)
    ended(session, None, ((50, LOC_PROT_ERR),) + RECEIVES)


@each("the place of an original value")
def sink_of_atomic(bench, how, crc):
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=crc)
    sut.post("call", 50, "fetch_add", "sink:8:8", rkey=1, addr=8, add=1)
    responder = Responder(peer)
    responder.hear()
    sut.command(f"{how} sink")
    responder.answer(5)
    last_word(peer, LOCAL)
    ended(session, None, ((50, LOC_PROT_ERR),) + RECEIVES)


@each("the second element of a Read's sink")
def second_element(bench, how, crc):
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=crc)
    sut.post("call", 50, "read", "m:0:10", "sink:0:10", rkey=1, addr=2)
    responder = Responder(peer)
    responder.hear()
    sut.command(f"{how} sink")
    responder.answer(bytes(20))
    last_word(peer, LOCAL)
    ended(session, None, ((50, LOC_PROT_ERR),) + RECEIVES)


def receive(bench, how, crc, size, chunk):
    """The Terminate names the segment that found no memory; the receive's completion tells."""

    def before(session):
        session.sut.memory("m", 4096, "lrw", seed=5)
        session.sut.memory("sink", SIZE, "l", seed=7)
        session.sut.recv(session.conn, 1, f"sink:0:{SIZE}")
        session.sut.recv(session.conn, 2, "m:0:10")

    session, sut, peer = Session(bench, before=before, crc=crc)
    session.alive()
    sut.command(f"{how} sink")
    segments = [untagged(SEND, 0, 1, at, bytes(min(chunk, size - at)), at + chunk >= size) for at in range(0, size, chunk)]
    peer.send(b"".join(peer.frame(segment) for segment in segments))
    last_word(peer, expected(NOT_THERE, segments[0]))
    ended(session, None, ((1, LOC_PROT_ERR), (2, FLUSHED)))
    sut.memories["m"].untouched()


each("a receive, and a Send of 10 octets", size=10, chunk=10)(receive)
each("a receive, and a Send of 60000 octets", size=60000, chunk=60000)(receive)
each("a receive, and a Send of two segments", size=60000, chunk=30000)(receive)


@row("the target of a Write is unmapped", crc=True, size=10)
@row("the target of a Write is unmapped, CRC off", crc=False, size=10)
@row("the target of a Write of 60000 octets is unmapped", crc=True, size=60000)
@row("the target of a Write of 60000 octets is unmapped, CRC off", crc=False, size=60000)
def target(bench, crc, size):
    session = Session(bench, before=prepare, crc=crc)
    memory = session.sut.memories["sink"]
    session.alive()
    session.sut.command("unmap sink")
    ulpdu = tagged(WRITE, memory.rkey, memory.addr, bytes(size))
    session.peer.fpdu(ulpdu)
    last_word(session.peer, expected(NOT_THERE, ulpdu))
    ended(session, QP_REQ_ERR)
    session.sut.memories["m"].untouched()


# ---- where the answers to the peer come from -----------------------------------------------------------------------------


def protection(error, request, got, memory):
    """The Terminate for a Read that has stopped behind `got` octets: its header says where (RFC 5040 section 4.8)."""
    rdma = wire.read_header(0xAA, 1000 + got, memory.size - got, memory.rkey, memory.addr + got)
    return wire.terminate(0, 1, error, request[:18], len(request), rdma)


def source_of_answer(bench, how, crc, begun):
    """The peer reads 6 MiB; behind it waits another Read, which is not answered either. uiw has taken the requests when the
    memory goes, so the answer fails. A request that comes after that is the peer's error (errors_read.py)."""
    session, sut, peer = Session(bench, before=prepare, crc=crc, rcvbuf=8192)
    memory = sut.memory("big", 6 << 20, "lr", seed=3)
    if not begun:
        ahead = sut.memory("ahead", 6 << 20, "lr", seed=4)
        session.read(0xBB, 0, ahead.size, ahead.rkey, ahead.addr)
    request = wire.read_request(session.read_msn, 0xAA, 1000, memory.size, memory.rkey, memory.addr)
    peer.fpdu(request)
    peer.fpdu(wire.read_request(session.read_msn + 1, 0xCC, 0, 10, memory.rkey, memory.addr))
    session.taken("m", 4000)
    first = peer.segment()
    sut.command({"rereg": "rereg big l"}.get(how, f"{how} big"))
    got = {0xAA: 0, 0xBB: 0}
    segment = first
    while segment.opcode == READ_RESPONSE:
        check(segment.to == got[segment.stag] + (1000 if segment.stag == 0xAA else 0), f"{segment}")
        got[segment.stag] += len(segment.payload)
        try:
            segment = peer.segment()
        except wire.Failure:
            # Without a CRC the FPDU in progress has to come from memory that is gone: nothing right can follow.
            check(not crc and begun and peer.ended == "reset", f"the end is {peer.ended}")
            return session.down()
    check((0 < got[0xAA] < memory.size) if begun else got[0xAA] == 0, f"{got}")
    want = (expected(NOT_THERE, request) if how == "unmap" else
            protection(2 if how == "rereg" else 0, request, got[0xAA], memory))
    check(segment.ulpdu == want, f"{segment.ulpdu.hex()}, not {want.hex()}")
    check(peer.gone() == "fin", "reset")
    ended(session, QP_FATAL)


for _how, _text in (("dereg", "deregistered"), ("unmap", "unmapped"), ("rereg", "re-registered without remote read")):
    for _crc in (True, False):
        for _begun in (True, False):
            row(f"the source of a Read's answer, {'in the middle of it' if _begun else 'before it'}: {_text}"
                + ("" if _crc else ", CRC off"), how=_how, crc=_crc, begun=_begun)(source_of_answer)


@row("the target of an atomic operation that waits: deregistered", how="dereg at", error=0x0100)
@row("the target of an atomic operation that waits: re-registered without remote atomic", how="rereg at lrw", error=0x0102)
@row("the target of an atomic operation that waits: unmapped", how="unmap at", error=NOT_THERE)
def target_of_atomic(bench, how, error):
    session, sut, peer = Session(bench, before=prepare, rcvbuf=8192)
    ahead, memory = sut.memory("ahead", 6 << 20, "lr", seed=4), sut.memory("at", 64, "lrwa", seed=4)
    session.read(0xBB, 0, ahead.size, ahead.rkey, ahead.addr)
    request = wire.fetch_add(2, 7, memory.rkey, memory.addr, 1)
    peer.fpdu(request)
    session.taken("m", 4000)
    first = peer.segment()
    sut.command(how)
    skipped = last_word(peer, expected(error, request), skip=(READ_RESPONSE,))
    check(len(first.payload) + skipped == ahead.size, "the answer before")
    ended(session, QP_FATAL)


# ---- where uiw's own messages come from ----------------------------------------------------------------------------------


def source(bench, how, crc, operation, size):
    """Posted behind what TCP cannot take yet. What precedes it is sent; of it, nothing."""
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=crc, rcvbuf=8192)
    big = sut.memory("big", 6 << 20, "l", seed=3)
    sut.post("call", 50, "send", f"big:0:{big.size}")
    sut.post("call", 51, operation, f"sink:0:{size}", rkey=1, addr=2)
    sut.post("call", 52, "send", "m:0:10")
    sut.command(f"{how} sink")
    sent = last_word(peer, LOCAL, skip=(SEND,))
    check(sent == big.size, f"{sent} octets of {big.size}")
    ended(session, None, ((50, SUCCESS), (51, LOC_PROT_ERR), (52, FLUSHED)) + RECEIVES)


each("the source of a Send of 10 octets", operation="send", size=10)(source)
each("the source of a Write of 50000 octets", operation="write", size=50000)(source)


if __name__ == "__main__":
    sys.exit(main())
