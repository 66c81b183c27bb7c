# SPDX-License-Identifier: MIT
"""uiw as the initiator, step by step: the peer answers with a reply of its own making (RFC 5044 section 7.1)."""

from peer import wire
from peer.sut import RTS, Sut, accept, check, listener
from peer.wire import CRC, ENHANCED, REPLY, enhanced, startup

FAILED = {"UNREACHABLE", "CONNECT_ERROR", "REJECTED"}


class Call:
    """uiw calls; the peer holds its request."""

    def __init__(self, bench, ird=4, ord_=4, data=b"", sut=None, name="call", qp=True, **env):
        self.bench = bench
        self.sut = sut or Sut(bench, env)
        self.heard = listener()
        bench.closers.append(self.heard.close)
        self.name = name
        self.sut.command(f"resolve {name} 127.0.0.1 {self.heard.getsockname()[1]}")
        if qp:
            self.sut.command(f"qp {name}")
        self.sut.command(f"connect {name} {ird} {ord_} {data.hex() or '-'}")
        self.answer()

    def answer(self):
        self.peer = accept(self.bench, self.heard)
        self.request = self.peer.startup()

    def established(self):
        return self.sut.event("ESTABLISHED", self.name)

    def works(self):
        """uiw sends, and answers."""
        self.peer.fpdu(wire.read_request(1, 1, 2, 0, 0, 0))
        first, payload = self.peer.message(wire.READ_RESPONSE)
        check((first.stag, first.to, payload) == (1, 2, b""), f"{first}")
        check(self.sut.state(self.name) == RTS, "the QP is not in RTS")

    def failed(self, timeout=15):
        event = self.sut.wait(lambda: self.sut.events.pop(0) if self.sut.events else None, timeout, "failure")
        check(event.name in FAILED, f"{event} where the connection should fail")
        check(event.status != 0, f"{event}: status 0")
        return event


def reply(flags=CRC | ENHANCED, revision=2, ird=4, ord_=4, data=b""):
    return startup(REPLY, flags, revision, (enhanced(ird, ord_) if flags & ENHANCED else b"") + data)
