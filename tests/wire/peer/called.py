# SPDX-License-Identifier: MIT
"""uiw as the responder, step by step: a peer calls with a request of its own making."""

import time

from peer import wire
from peer.sut import RTS, Sut, check
from peer.wire import CRC, REJECT, REQUEST, Peer, startup


def listening(bench, **env):
    sut = Sut(bench, env)
    return sut, sut.listen()


def call(bench, sut, port, frame, piece=None, pause=0.0, crc=True):
    """A peer that has sent this request, and the name of the connection that uiw's consumer is offered."""
    peer = Peer.call(port, crc=crc)
    bench.closers.append(peer.close)
    peer.send(frame, piece, pause)
    event = sut.event("CONNECT_REQUEST")
    return peer, event


def accept(sut, event, ird=4, ord_=4, data="-"):
    sut.command(f"qp {event.conn}")
    sut.command(f"accept {event.conn} {ird} {ord_} {data}")


def works(sut, peer, conn, msn=1):
    """The stream stands and carries."""
    peer.fpdu(wire.read_request(msn, 1, 2, 0, 0, 0))
    first, payload = peer.message(wire.READ_RESPONSE)
    check((first.stag, first.to, payload) == (1, 2, b""), f"{first}")
    check(sut.state(conn) == RTS, "the QP is not in RTS")


def establish(sut, peer, event, **own):
    """Accepts; the reply to a stream that stands and carries."""
    accept(sut, event, **own)
    frame = peer.startup()
    sut.event("ESTABLISHED")
    works(sut, peer, event.conn)
    return frame


def serves(bench, sut, port):
    """Another caller is served: its end, and the request as uiw's consumer has it."""
    peer, event = call(bench, sut, port, startup(REQUEST, CRC, 1))
    establish(sut, peer, event)
    return peer, event


def silent(peer):
    """Nothing has come yet, and the stream stands."""
    peer._more(0)
    return not peer.ready and not peer.ended


def refused(bench, frame, finish=False):
    """Nothing reaches the consumer, no octet comes back but a rejection, the stream is closed; others are served."""
    sut, port = listening(bench, UIW_STARTUP_TIMEOUT="1000")
    peer = Peer.call(port)
    bench.closers.append(peer.close)
    began = time.monotonic()
    try:
        peer.send(frame)
        if finish:
            peer.finish()
    except (BrokenPipeError, ConnectionResetError):
        pass
    end = began + 10
    while not peer.ended and time.monotonic() < end:
        peer._more(end - time.monotonic())
    check(peer.ended, "the stream stands")
    check(time.monotonic() - began < 6, "UIW_STARTUP_TIMEOUT of 1 s, closed later than 6 s")
    if peer.ready:
        check(peer.startup().flags & REJECT, "an answer that does not reject")
    sut.nothing(0.05)
    serves(bench, sut, port)
