# SPDX-License-Identifier: MIT
"""What arrives behind uiw's FIN, while the peer keeps its half open (Verbs draft section 6.2.5; RFC 5040 section 6.2)?

After rdma_disconnect what the peer has sent before it learns of the end is received, an error and a Terminate end the
stream with an event, and nothing can be answered. Behind a Terminate of uiw everything is dropped."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, expected
from peer.sut import (FLUSHED, LOC_LEN_ERR, QP_ACCESS_ERR, QP_FATAL, QP_REQ_ERR, RECEIVES, REM_ACCESS_ERR, Session,
                      check, main, row, two_receives)
from peer.wire import READ_RESPONSE, SEND, WRITE, pattern, tagged, terminate, untagged

FATAL_ERR = 19  # IBV_WC_FATAL_ERR
SECOND = ((2, FLUSHED),)
prepare = two_receives(4096)


def closed(bench, initiator=False, **more):
    """A session whose uiw has disconnected: its FIN is here."""
    session = Session(bench, initiator=initiator, before=prepare, **more).begun()
    session.sut.command(f"disconnect {session.conn}")
    check(session.peer.gone() == "fin", "reset")
    session.peer.ended = None  # the other direction stands
    return session


def silent(peer):
    """Nothing comes any more but the end that has come already."""
    check(peer.gone() in ("fin", "reset"), "the stream stands")


@row("rdma_disconnect: a Write and a Send behind uiw's FIN are placed and delivered", initiator=False)
@row("rdma_disconnect: a Write and a Send behind uiw's FIN are placed and delivered, uiw called", initiator=True)
def received(bench, initiator):
    session, sut, peer = closed(bench, initiator)
    memory = sut.memories["m"]
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"late"))
    session.send(b"words")
    check(sut.completion(1).length == 5, "the Send")
    peer.close()
    ended(session, None, SECOND)
    check(memory.dump(0, 4) == b"late" and memory.dump(1000, 5) == b"words", "memory")


@row("rdma_disconnect: FIN waits for the answer to a Read, which is placed")
def read_first(bench):
    session, sut, peer = Session(bench, initiator=True, before=prepare)
    sut.post("call", 10, "read", "m:100:10", rkey=1, addr=2)
    request = wire.read_fields(peer.segment())
    sut.command("disconnect call")
    peer.quiet(0.1)
    peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, b"0123456789"))
    sut.completion(10)
    check(peer.gone() == "fin", "reset")
    peer.close()
    ended(session, None)
    check(sut.memories["m"].dump(100, 10) == b"0123456789", "memory")


@row("rdma_disconnect: FIN waits for the answer to an atomic operation, which is placed")
def atomic_first(bench):
    session, sut, peer = Session(bench, initiator=True, before=prepare)
    sut.post("call", 10, "fetch_add", "m:96:8", rkey=1, addr=8, add=1)
    request = wire.atomic_fields(peer.segment())
    sut.command("disconnect call")
    peer.quiet(0.1)
    peer.fpdu(wire.atomic_response(1, request.identifier, 0x0102030405060708))
    sut.completion(10)
    check(peer.gone() == "fin", "reset")
    peer.close()
    ended(session, None)
    check(sut.memories["m"].dump(96, 8) == (0x0102030405060708).to_bytes(8, sys.byteorder), "memory")


@row("rdma_disconnect while the answer to the peer's Read is sent: FIN follows all of it", crc=True)
@row("rdma_disconnect while the answer to the peer's Read is sent: FIN follows all of it, CRC off", crc=False)
def answer_first(bench, crc):
    session = Session(bench, before=prepare, crc=crc, rcvbuf=8192)
    session.alive()
    big = session.sut.memory("big", 4 << 20, "lr", seed=3)
    session.peer.fpdu(wire.read_request(session.read_msn, 7, 0, big.size, big.rkey, big.addr))
    session.peer.segment()  # of the answer, which the peer's buffer cannot hold
    session.sut.command(f"disconnect {session.conn}")
    first, payload = session.peer.message(READ_RESPONSE)
    check(first.stag == 7 and payload == pattern(3, big.size)[first.to:], f"{first}: {len(payload)} octets")
    check(session.peer.gone() == "fin", "reset")
    session.peer.close()
    ended(session, None, RECEIVES)


@row("rdma_disconnect: a Read Request behind uiw's FIN is not answered, and does no harm")
def asks(bench):
    session, sut, peer = closed(bench)
    memory = sut.memories["m"]
    peer.fpdu(wire.read_request(session.read_msn, 7, 8, 100, memory.rkey, memory.addr))
    session.send(b"words")
    sut.completion(1)
    silent(peer)
    peer.close()
    ended(session, None, SECOND)


def wrong(bench, kind, build, damage=0, completions=RECEIVES):
    """An error that cannot be told to the peer any more ends the stream all the same; what is behind does not count."""
    session, sut, peer = closed(bench)
    memory = sut.memories["m"]
    peer.send(peer.frame(build(memory), damage=damage) + peer.frame(tagged(WRITE, memory.rkey, memory.addr, b"behind")))
    ended(session, kind, completions)
    silent(peer)
    memory.untouched()


for _title, _kind, _build, _damage, _completions in (
        ("a Write with STag 0", QP_ACCESS_ERR, lambda m: tagged(WRITE, 0, 5, b"x"), 0, RECEIVES),
        ("a Write beyond the end", QP_ACCESS_ERR, lambda m: tagged(WRITE, m.rkey, m.addr + 4096, b"x"), 0, RECEIVES),
        ("a Read Request with STag 0", QP_ACCESS_ERR, lambda m: wire.read_request(2, 7, 8, 10, 0, 0), 0, RECEIVES),
        ("a Send of MSN 2", QP_REQ_ERR, lambda m: untagged(SEND, 0, 2, 0, b"x"), 0, RECEIVES),
        ("a Send longer than its receive", None, lambda m: untagged(SEND, 0, 1, 0, bytes(101)), 0,
         ((1, LOC_LEN_ERR), (2, FLUSHED))),
        ("a Read Response that nobody asked for", QP_REQ_ERR, lambda m: tagged(READ_RESPONSE, 1, 2, b"x"), 0, RECEIVES),
        ("a wrong CRC", QP_FATAL, lambda m: tagged(WRITE, m.rkey, m.addr, b"x"), 1, RECEIVES)):
    row(f"rdma_disconnect: {_title} behind uiw's FIN", kind=_kind, build=_build, damage=_damage,
        completions=_completions)(wrong)


def terminated(bench, headers):
    session, sut, peer = closed(bench)
    memory = sut.memories["m"]
    peer.send(peer.frame(terminate(0, 2, 7, untagged(SEND, 0, 1) if headers else b""))
              + peer.frame(tagged(WRITE, memory.rkey, memory.addr, b"behind")))
    ended(session, QP_FATAL)
    silent(peer)
    memory.untouched()


row("rdma_disconnect: a Terminate behind uiw's FIN", headers=False)(terminated)
row("rdma_disconnect: a Terminate behind uiw's FIN, with headers", headers=True)(terminated)


@row("rdma_disconnect while a Read is outstanding: a Terminate names it", by_rdma=True)
@row("rdma_disconnect while a Read is outstanding: a Terminate names nothing", by_rdma=False)
def named(bench, by_rdma):
    session, sut, peer = Session(bench, initiator=True, before=prepare)
    sut.post("call", 10, "read", "m:100:10", rkey=1, addr=2)
    ulpdu = peer.segment().ulpdu
    sut.command("disconnect call")
    peer.fpdu(terminate(0, 1, 1, ulpdu[:18], 46, ulpdu[18:]) if by_rdma else terminate(2, 0, 1))
    check(peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, ((10, REM_ACCESS_ERR if by_rdma else FATAL_ERR),) + RECEIVES)


@row("rdma_disconnect: the peer resets")
def resets(bench):
    session, sut, peer = closed(bench)
    peer.close(reset=True)
    ended(session, QP_FATAL)


@row("rdma_disconnect while a Read is outstanding: the peer closes, and its completion tells")
def leaves(bench):
    session, sut, peer = Session(bench, initiator=True, before=prepare)
    sut.post("call", 10, "read", "m:100:10", rkey=1, addr=2)
    peer.segment()
    sut.command("disconnect call")
    peer.finish()
    check(peer.gone() == "fin", "reset")
    ended(session, None, ((10, FLUSHED),) + RECEIVES)


# ---- behind a Terminate of uiw ---------------------------------------------------------------------------------------


def behind_terminate(bench, build, damage=0):
    """The program has been told by then; nothing is placed, and nothing is said."""
    session, sut, peer = Session(bench, before=prepare)
    session.alive()
    memory = sut.memories["m"]
    bad = tagged(WRITE, 0, 5, b"x")
    peer.fpdu(bad)
    check(peer.segment().ulpdu == expected(0x1100, bad), "Terminate")
    check(peer.gone() == "fin", "reset")
    peer.ended = None
    peer.fpdu(build(memory), damage=damage)
    peer.finish()
    ended(session, QP_ACCESS_ERR)
    silent(peer)
    memory.untouched()


for _title, _build, _damage in (("a Write", lambda m: tagged(WRITE, m.rkey, m.addr, b"x"), 0),
                                ("a Send", lambda m: untagged(SEND, 0, 1, 0, b"x"), 0),
                                ("a Read Request", lambda m: wire.read_request(2, 7, 8, 10, m.rkey, m.addr), 0),
                                ("a Terminate", lambda m: terminate(0, 2, 7), 0),
                                ("a Write with STag 0", lambda m: tagged(WRITE, 0, 5, b"x"), 0),
                                ("a wrong CRC", lambda m: tagged(WRITE, m.rkey, m.addr, b"x"), 1)):
    row(f"behind uiw's Terminate and FIN: {_title}", build=_build, damage=_damage)(behind_terminate)


if __name__ == "__main__":
    sys.exit(main())
