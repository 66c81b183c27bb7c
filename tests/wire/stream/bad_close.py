# SPDX-License-Identifier: MIT
"""The peer closes TCP while work is unfinished: Bad LLP Close (Verbs draft section 6.2.2.2, figures 8, 11 and 24).

A half-close is answered by exactly one Terminate, 0x0207 without headers, and by FIN. After a reset nothing is said. The
program gets one asynchronous event, or none where nothing was unfinished."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import ended, last_word, whole_fpdus
from peer.sut import FLUSHED, QP_FATAL, RECEIVES, SUCCESS, Session, check, main, row, two_receives
from peer.wire import READ_RESPONSE, SEND, WRITE, pattern, tagged, untagged

BAD_CLOSE = wire.untagged(wire.TERMINATE, 2, 1, 0, bytes.fromhex("02070000"))
RETRY_EXC_ERR = 12
ODD = {"UIW_MULPDU": "6001"}  # so that TCP takes a part of an FPDU when it is full
prepare = two_receives(65536, "lrwa")


def flushed(*numbers):
    return tuple((number, FLUSHED) for number in numbers) + RECEIVES


def session_of(bench, initiator, **more):
    return Session(bench, initiator=initiator, before=prepare, **more).begun()


def both_roles(title):
    def mark(function):
        for initiator in (True, False):
            row(f"{title}, uiw {'called' if initiator else 'was called'}", initiator=initiator)(function)
        return function

    return mark


# ---- half-close ------------------------------------------------------------------------------------------------------


@both_roles("half-close: a Read is outstanding")
def reading(bench, initiator):
    session, sut, peer = session_of(bench, initiator)
    sut.post(session.conn, 10, "read", "m:0:100", rkey=1, addr=2)
    peer.segment()
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, flushed(10))
    sut.memories["m"].untouched()


@row("half-close: a Read is outstanding, CRC off")
def reading_unchecked(bench):
    session, sut, peer = session_of(bench, True, crc=False)
    sut.post("call", 10, "read", "m:0:100", rkey=1, addr=2)
    peer.segment()
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, flushed(10))


@row("half-close: in the middle of the answer to a Read")
def half_answer(bench):
    session, sut, peer = session_of(bench, True)
    sut.post("call", 10, "read", "m:0:100", rkey=1, addr=2)
    request = wire.read_fields(peer.segment())
    peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(7, 40), False))
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, flushed(10))
    sut.memories["m"].untouched((0, 40))


@row("half-close: the first of two Reads is answered together with FIN")
def one_of_two(bench):
    session, sut, peer = session_of(bench, True)
    for number in (10, 11):
        sut.post("call", number, "read", f"m:{number * 10}:10", rkey=1, addr=2)
    request = wire.read_fields(peer.segment())
    peer.segment()
    peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(7, 10)))
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, ((10, SUCCESS), (11, FLUSHED)) + RECEIVES)


@row("half-close: the only Read is answered together with FIN, which is an orderly end")
def answered(bench):
    session, sut, peer = session_of(bench, True)
    sut.post("call", 10, "read", "m:100:10", rkey=1, addr=2)
    request = wire.read_fields(peer.segment())
    peer.send(peer.frame(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(7, 10))))
    peer.finish()
    check(peer.gone() == "fin", "reset")
    ended(session, None, ((10, SUCCESS),) + RECEIVES)


@both_roles("half-close: a FetchAdd is outstanding")
def adding(bench, initiator):
    session, sut, peer = session_of(bench, initiator)
    sut.post(session.conn, 10, "fetch_add", "m:104:8", rkey=1, addr=8, add=1)
    sut.post(session.conn, 11, "compare_swap", "m:112:8", rkey=1, addr=8, compare=1, swap=2)
    peer.segment()
    peer.segment()
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, flushed(10, 11))


@row("half-close: Sends wait for room in TCP; what was begun ends as a whole FPDU", crc=True)
@row("half-close: Sends wait for room in TCP; what was begun ends as a whole FPDU, CRC off", crc=False)
def full(bench, crc):
    session, sut, peer = session_of(bench, True, rcvbuf=8192, crc=crc, env=ODD)
    big = sut.memory("big", 16 << 20, "l", seed=1)
    for number in (10, 11):
        sut.post("call", number, "send", f"big:0:{big.size}")
    peer.finish()
    ended(session, QP_FATAL, flushed(10, 11))
    sent = last_word(peer, BAD_CLOSE, skip=(SEND,))
    check(0 < sent < big.size, f"{sent} octets of {2 * big.size} were sent")


@row("half-close: uiw's Read of the peer's memory, and the peer's of uiw's: that one is answered first")
def both_read(bench):
    session, sut, peer = session_of(bench, True)
    memory = sut.memories["m"]
    sut.post("call", 10, "read", "m:0:100", rkey=1, addr=2)
    peer.segment()
    peer.send(peer.frame(wire.read_request(1, 7, 8, 100, memory.rkey, memory.addr))
              + peer.frame(wire.fetch_add(2, 9, memory.rkey, memory.addr + 8, 0)))
    peer.finish()
    first, payload = peer.message(READ_RESPONSE)
    check((first.stag, first.to, payload) == (7, 8, pattern(5, 100)), f"{first}")
    check(wire.answer_fields(peer.segment()).value == memory.word(8), "the FetchAdd")
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, flushed(10))


@row("half-close: in the middle of the answer to the peer's Read, which then reads on: whole FPDUs, then the Terminate")
def answering(bench):
    session, sut, peer = session_of(bench, False, rcvbuf=8192, env=ODD)
    big = sut.memory("big", 6 << 20, "lr", seed=1)
    session.read(1, 0, big.size, big.rkey, big.addr)
    peer.taken()
    peer.finish()
    ended(session, QP_FATAL)
    got = last_word(peer, BAD_CLOSE, skip=(READ_RESPONSE,))
    check(got == big.size, f"{got} octets of {big.size}")


@row("half-close: receives only, a message in part, an idle queue pair: no Terminate and no event")
def orderly(bench):
    session, sut, peer = session_of(bench, False)
    memory = sut.memories["m"]
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"first", False))
    peer.fpdu(untagged(SEND, 0, 1, 0, b"half", False))
    session.alive()
    peer.finish()
    check(peer.gone() == "fin", "reset")
    ended(session, None)


@row("half-close: a Send that is not confirmed by the remote rule: no Terminate, the completion tells")
def unconfirmed(bench):
    session, sut, peer = session_of(bench, True, env={"UIW_COMPLETION": "remote"})
    sut.post("call", 10, "send", "m:0:100")
    peer.message(SEND)
    peer.segment()  # the probe
    peer.finish()
    check(peer.gone() == "fin", "reset")
    ended(session, None, ((10, RETRY_EXC_ERR),) + RECEIVES)


@row("half-close: a Send that is not confirmed by the remote rule, and a Read")
def unconfirmed_read(bench):
    session, sut, peer = session_of(bench, True, env={"UIW_COMPLETION": "remote"})
    sut.post("call", 10, "send", "m:0:100")
    peer.message(SEND)
    sut.post("call", 11, "read", "m:0:100", rkey=1, addr=2)
    while wire.read_fields(peer.segment()).size == 0:
        pass
    peer.finish()
    last_word(peer, BAD_CLOSE)
    ended(session, QP_FATAL, ((10, RETRY_EXC_ERR), (11, FLUSHED)) + RECEIVES)


@row("half-close before the peer's first FPDU: what is posted waits for that, so no Terminate may be sent either")
def not_begun(bench):
    session = Session(bench, before=prepare, revision=1, env={"UIW_FIRST_MESSAGE": "initiator"})
    session.sut.post(session.conn, 10, "send", "m:0:100")
    session.peer.finish()
    check(session.peer.gone() == "fin", "reset")
    ended(session, QP_FATAL, flushed(10))


@row("half-close while uiw disconnects and Sends wait for room in TCP: whole FPDUs, then FIN", crc=True)
@row("half-close while uiw disconnects and Sends wait for room in TCP: whole FPDUs, then FIN, CRC off", crc=False)
def both_close(bench, crc):
    """Both ends close in order, so it is no Bad LLP Close; what was not sent is flushed."""
    session, sut, peer = session_of(bench, True, rcvbuf=8192, crc=crc, env=ODD)
    big = sut.memory("big", 16 << 20, "l", seed=1)
    for number in (10, 11):
        sut.post("call", number, "send", f"big:0:{big.size}")
    sut.command("disconnect call")
    peer.finish()
    ended(session, None, flushed(10, 11))
    got, end, rest = whole_fpdus(peer)
    check(0 < got < big.size, f"{got} octets of {2 * big.size} were sent")
    check((end, rest) == ("fin", 0), f"{end} behind {rest} octets of an FPDU")


# ---- reset -----------------------------------------------------------------------------------------------------------


@both_roles("reset: idle")
def reset_idle(bench, initiator):
    session, sut, peer = session_of(bench, initiator)
    peer.close(reset=True)
    ended(session, QP_FATAL)


@both_roles("reset: a Read is outstanding")
def reset_reading(bench, initiator):
    session, sut, peer = session_of(bench, initiator)
    sut.post(session.conn, 10, "read", "m:0:100", rkey=1, addr=2)
    peer.segment()
    peer.close(reset=True)
    ended(session, QP_FATAL, flushed(10))


@row("reset: Sends wait for room in TCP", reset=True)
@row("the peer closes without reading: Sends wait for room in TCP", reset=False)
def reset_full(bench, reset):
    session, sut, peer = session_of(bench, True, rcvbuf=8192)
    big = sut.memory("big", 16 << 20, "l", seed=1)
    for number in (10, 11):
        sut.post("call", number, "send", f"big:0:{big.size}")
    peer.close(reset)
    ended(session, QP_FATAL, flushed(10, 11))


@row("reset: in the middle of the answer to the peer's Read")
def reset_answering(bench):
    session, sut, peer = session_of(bench, False, rcvbuf=8192)
    big = sut.memory("big", 6 << 20, "lr", seed=1)
    session.read(1, 0, big.size, big.rkey, big.addr)
    peer.taken()
    peer.close(reset=True)
    ended(session, QP_FATAL)


if __name__ == "__main__":
    sys.exit(main())
