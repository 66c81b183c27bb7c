# SPDX-License-Identifier: MIT
"""A peer that does not read, or does not close, while uiw ends the stream: the program hears of it at once or after a few
seconds, and the connection is reset in bounded time (Verbs draft sections 6.2.3 and 6.2.5)."""

import pathlib
import select
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, expected, last_word
from peer.sut import FLUSHED, QP_ACCESS_ERR, QP_FATAL, RECEIVES, SUCCESS, Session, check, main, row, two_receives
from peer.wire import SEND, WRITE, tagged

BOUND = 15  # seconds
prepare = two_receives()


NOTHING, LITTLE, FLOOD = 0, 50, 50000  # octets that the peer sends each time


def cut_off(sessions):
    """The peers go on, each in its way, until their connections are reset: sessions has (session, octets)."""
    end, turn = time.monotonic() + BOUND, 0
    left = list(sessions)
    for session, _ in left:
        session.peer.socket.setblocking(False)
    while left and time.monotonic() < end:
        turn += 1
        left = [(session, octets) for session, octets in left if not is_reset(session, octets, turn)]
        time.sleep(0.01)
    check(not left, f"streams stand after {BOUND} s: {[octets for _, octets in left]}")


def is_reset(session, octets, turn):
    poll = select.poll()
    poll.register(session.peer.socket, 0)
    if poll.poll(0):
        session.peer.reset(0)
        return True
    memory = session.sut.memories["m"]
    if octets and (octets > LITTLE or turn % 20 == 0):
        try:
            session.peer.socket.send(session.peer.frame(tagged(WRITE, memory.rkey, memory.addr, bytes(octets))))
        except BlockingIOError:
            pass
        except ConnectionError:
            return True
    return False


def ended_once(session, kind):
    """The reset is no second end for the program."""
    session.sut.nothing(0.05)
    check(session.sut.asyncs == [(kind, session.qp)], f"asynchronous events {session.sut.asyncs}")


@row("a peer that reads Terminate and FIN, does not close, and sends little or a flood")
def reads(bench):
    bad = tagged(WRITE, 0, 5, b"x")
    every = [(Session(bench, before=prepare), octets) for octets in (LITTLE, FLOOD)]
    for session, _ in every:
        session.peer.fpdu(bad)
        last_word(session.peer, expected(0x1100, bad))
        ended(session, QP_ACCESS_ERR)
    cut_off(every)
    for session, _ in every:
        session.sut.memories["m"].untouched()
        ended_once(session, QP_ACCESS_ERR)


@row("a peer that does not read, and sends what is wrong while it is answered, then nothing, little or a flood")
def wrong(bench):
    every = [(Session(bench, before=prepare, rcvbuf=8192, crc=False), octets) for octets in (NOTHING, LITTLE, FLOOD)]
    for session, _ in every:
        big = session.sut.memory("big", 16 << 20, "lr", seed=1)
        session.read(1, 2, big.size, big.rkey, big.addr)
        session.peer.taken()
        session.peer.fpdu(tagged(WRITE, 0, 5, b"x"))
        ended(session, QP_ACCESS_ERR)
    cut_off(every)
    for session, _ in every:
        session.sut.memories["m"].untouched()
        ended_once(session, QP_ACCESS_ERR)


@row("rdma_disconnect: a peer that does not read, and sends nothing, little or a flood")
def disconnected(bench):
    """What is posted is sent first; when the peer has taken nothing for some seconds it is flushed, and an event tells."""
    every = [(Session(bench, initiator=True, before=prepare, rcvbuf=8192), octets)
             for octets in (NOTHING, LITTLE, FLOOD)]
    for session, _ in every:
        sending(session)
        session.sut.command("disconnect call")
    cut_off(every)
    for session, _ in every:
        ended(session, QP_FATAL, ((10, FLUSHED), (11, FLUSHED)) + RECEIVES)


def sending(session):
    big = session.sut.memory("big", 16 << 20, "l", seed=1)
    for number in (10, 11):
        session.sut.post("call", number, "send", f"big:0:{big.size}")


@row("rdma_disconnect: a peer that reads all and FIN, does not close, and sends little or a flood")
def disconnected_reads(bench):
    every = [(Session(bench, initiator=True, before=prepare), octets) for octets in (LITTLE, FLOOD)]
    for session, _ in every:
        session.sut.post("call", 10, "send", "m:0:100")
        session.sut.command("disconnect call")
        session.peer.message(SEND)
        check(session.peer.gone() == "fin", "reset")
    cut_off(every)
    for session, _ in every:
        ended(session, QP_FATAL, ((10, SUCCESS),) + RECEIVES)


@row("ibv_modify_qp to ERR: a peer that does not read, and sends nothing, little or a flood")
def failed(bench):
    every = [(Session(bench, initiator=True, before=prepare, rcvbuf=8192), octets)
             for octets in (NOTHING, LITTLE, FLOOD)]
    for session, _ in every:
        sending(session)
        session.sut.command("fail call")
        ended(session, None, ((10, FLUSHED), (11, FLUSHED)) + RECEIVES)
    cut_off(every)


@row("a peer that closes its half and does not read")
def half_closed(bench):
    answered = Session(bench, before=prepare, rcvbuf=8192)
    big = answered.sut.memory("big", 16 << 20, "lr", seed=1)
    answered.read(1, 2, big.size, big.rkey, big.addr)
    answered.peer.taken()
    answered.peer.finish()
    ended(answered, QP_FATAL)
    sends = Session(bench, initiator=True, before=prepare, rcvbuf=8192)
    sends.sut.post("call", 9, "read", "m:0:100", rkey=1, addr=2)
    sending(sends)
    sends.peer.finish()
    ended(sends, QP_FATAL, tuple((number, FLUSHED) for number in (9, 10, 11)) + RECEIVES)
    for session in (answered, sends):
        session.peer.reset(BOUND)
        ended_once(session, QP_FATAL)


@row("rdma_destroy_id: the call does not wait for a peer that does not read, which is reset")
def destroyed(bench):
    session = Session(bench, initiator=True, before=prepare, rcvbuf=8192, crc=False)
    sending(session)
    session.sut.command("disconnect call")
    session.sut.command("destroy call")
    session.peer.reset(BOUND)


@row("ibv_modify_qp to ERR: a peer that closes its half and reads late gets whole FPDUs and FIN")
def reads_late(bench):
    session = Session(bench, initiator=True, before=prepare, rcvbuf=8192)
    sending(session)
    session.sut.command("fail call")
    session.peer.finish()
    ended(session, None, ((10, FLUSHED), (11, FLUSHED)) + RECEIVES)
    try:
        while True:
            session.peer.fpdu_raw()
    except wire.Failure:
        check(session.peer.ended == "fin" and not session.peer.ready, f"the end is {session.peer.ended}")


if __name__ == "__main__":
    sys.exit(main())
