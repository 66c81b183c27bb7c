# SPDX-License-Identifier: MIT
"""uiw as the responder, step by step: a peer calls with a request of its own making."""

from peer import wire
from peer.sut import RTS, Sut, check
from peer.wire import CRC, REQUEST, Peer, startup


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
