# SPDX-License-Identifier: MIT
"""What uiw as the responder makes of the first FPDU of the initiator in peer-to-peer mode (RFC 6581 section 9): the agreed
ready-to-receive message in every form, another message in its place, and none at all."""

import errno
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.called import call, listening, serves, works
from peer.sut import ERR, FLUSHED, check, main, row
from peer.wire import (CRC, DEPTH, ENHANCED, PEER_TO_PEER, REQUEST, RTR_READ, RTR_SEND, RTR_WRITE, enhanced, pattern,
                       startup)

ASKED = {"write": (PEER_TO_PEER, RTR_WRITE), "read": (PEER_TO_PEER, RTR_READ), "send": (PEER_TO_PEER | RTR_SEND, 0)}
READY = {"write": wire.tagged(wire.WRITE, 0, 0), "read": wire.read_request(1, 0x11, 0x22, 0, 0, 0),
         "send": wire.untagged(wire.SEND, 0, 1)}


class Agreed:
    """A reply has agreed on this kind of RTR, which is due now. The program has a receive (1), and has posted a Send (2)
    that waits for the RTR. behind: FPDUs right behind the request."""

    def __init__(self, bench, kind, crc=True, behind=b"", **env):
        self.bench, self.crc = bench, crc
        self.sut, self.port = listening(bench, UIW_CRC="on" if crc else "off", **env)
        ird, ord_ = ASKED[kind]
        frame = startup(REQUEST, (CRC if crc else 0) | ENHANCED, 2, enhanced(ird | 4, ord_ | 4))
        self.peer, event = call(bench, self.sut, self.port, frame + behind, crc=crc)
        self.conn = event.conn
        self.memory = self.sut.memory("m", 4096, "lrw", seed=3)
        self.sut.command(f"qp {self.conn}")
        self.sut.recv(self.conn, 1, "m:1000:100")
        self.sut.command(f"accept {self.conn} 4 4 -")
        answer = self.peer.startup()
        check((answer.ird, answer.ord) == (ird | 4, ord_ | 4), f"{answer.ird:04x} {answer.ord:04x}")
        self.sut.post(self.conn, 2, "send", "m:0:10")

    def spoken(self, received=None):
        """The responder has heard the first FPDU: its Send comes. received: the octets that the receive takes before."""
        self.sut.event("ESTABLISHED", self.conn)
        if received is not None:
            check(self.sut.completion(1).length == len(received), "length of the receive")
        first, payload = self.peer.message(wire.SEND)
        check((first.msn, payload) == (1, pattern(3, 10)), f"{first}")
        self.sut.completion(2)

    def goes_on(self, send_msn=1, read_msn=1):
        """The receive takes the first Send, and a Read is answered: numbers and receives stand where they should."""
        self.peer.send_message(wire.SEND, b"real", msn=send_msn)
        check(self.sut.completion(1).length == 4, "the first Send")
        works(self.sut, self.peer, self.conn, read_msn)
        self.memory.untouched((1000, 1004))

    def failed(self, name, status):
        """The program hears this, its queue pair is in error, and others are served."""
        event = self.sut.event(name, self.conn)
        check(event.status == status, f"{event}")
        check(self.sut.state(self.conn) == ERR, "the queue pair is not in error")
        for _ in range(2):
            self.sut.completion(status=FLUSHED)
        self.sut.nothing(0.05)
        serves(self.bench, self.sut, self.port)


# ---- the empty FPDU -------------------------------------------------------------------------------------------------


def empty(bench, crc=True, piece=None, **more):
    """B: the RTR is an FPDU without a ULPDU, so the first Send has MSN 1."""
    agreed = Agreed(bench, "send", crc)
    agreed.peer.quiet(0.1)
    agreed.peer.send(wire.fpdu(b"", crc, **more), piece, 0.005 if piece else 0)
    agreed.spoken()
    agreed.goes_on()


row("an empty FPDU as RTR, then a Send with MSN 1")(empty)
row("an empty FPDU as RTR, then a Send with MSN 1: CRC off", crc=False)(empty)
row("an empty FPDU as RTR, octet by octet", piece=1)(empty)
row("an empty FPDU as RTR, octet by octet: CRC off", crc=False, piece=1)(empty)
row("an empty FPDU as RTR whose pad is not zero", pad=b"\xaa\xbb\xcc")(empty)
row("with CRC off the CRC field of an empty FPDU is not looked at", crc=False, damage=0x5A5A5A5A)(empty)


@row("an empty FPDU as RTR with a wrong CRC: Terminate 2/0/02, and the connection never stood")
def empty_damaged(bench):
    agreed = Agreed(bench, "send")
    agreed.peer.fpdu(b"", damage=1)
    check(agreed.peer.terminated().error == 0x2002, "CRC")
    agreed.peer.gone()
    agreed.failed("CONNECT_ERROR", -errno.ECONNRESET)


@row("a second empty FPDU is a ULPDU without a header: Terminate 1/0/00, and the program is told")
def empty_twice(bench):
    agreed = Agreed(bench, "send")
    agreed.peer.fpdu(b"")
    agreed.spoken()
    agreed.peer.fpdu(b"")
    check(agreed.peer.terminated().error == 0x1000, "another Terminate")
    check(agreed.peer.gone() == "fin", "reset, so that the Terminate may be lost")
    agreed.sut.event("DISCONNECTED", agreed.conn)
    agreed.sut.completion(1, FLUSHED)


# ---- another first FPDU ---------------------------------------------------------------------------------------------
# RFC 5044 section 7.1.2: the responder may send once any FPDU of the initiator has come. So it counts as what it is.


def other(bench, kind, first, **then):
    agreed = Agreed(bench, kind)
    agreed.peer.fpdu(READY[first] if first in READY else b"")
    if first == "read":
        agreed.sut.event("ESTABLISHED", agreed.conn)
        opcodes = sorted(agreed.peer.segment().opcode for _ in range(2))
        check(opcodes == [wire.READ_RESPONSE, wire.SEND], f"{opcodes}")
        agreed.sut.completion(2)
    else:
        agreed.spoken()
    agreed.goes_on(**then)


row("an RDMA Write was agreed on, a Read of no octets comes: it is answered", kind="write", first="read", read_msn=2)(
    other)
row("an RDMA Write was agreed on, an empty FPDU comes", kind="write", first="empty")(other)
row("an RDMA Read was agreed on, a Write of no octets comes", kind="read", first="write")(other)
row("an empty FPDU was agreed on, a Write of no octets comes", kind="send", first="write")(other)
row("an empty FPDU was agreed on, a Read of no octets comes: it is answered", kind="send", first="read", read_msn=2)(
    other)


def payload_first(bench, kind):
    agreed = Agreed(bench, kind)
    agreed.peer.fpdu(wire.tagged(wire.WRITE, agreed.memory.rkey, agreed.memory.addr + 2000, b"abc"))
    agreed.spoken()
    check(agreed.memory.dump(2000, 3) == b"abc", "the Write is not placed")


def send_first(bench, kind, octets):
    """A Send without octets is the program's too, but where B was agreed on."""
    agreed = Agreed(bench, kind)
    agreed.peer.send_message(wire.SEND, octets, msn=1)
    agreed.spoken(octets)
    check(agreed.memory.dump(1000, len(octets)) == octets, "the Send")
    agreed.memory.untouched((1000, 1000 + len(octets)))
    works(agreed.sut, agreed.peer, agreed.conn)


for _kind in READY:
    row(f"RTR {_kind} was agreed on, an RDMA Write of \"abc\" comes: it is placed", kind=_kind)(payload_first)
    row(f"RTR {_kind} was agreed on, a Send of \"abc\" comes: it is delivered", kind=_kind, octets=b"abc")(send_first)
for _kind in ("write", "read"):
    row(f"RTR {_kind} was agreed on, a Send of no octets comes: it is delivered", kind=_kind, octets=b"")(send_first)


def wrong_first(bench, kind, ulpdu, error):
    agreed = Agreed(bench, kind)
    agreed.peer.fpdu(ulpdu)
    check(agreed.peer.terminated().error == error, "another Terminate")
    check(agreed.peer.gone() == "fin", "reset, so that the Terminate may be lost")
    agreed.failed("CONNECT_ERROR", -errno.ECONNRESET)
    agreed.memory.untouched()


for _kind in READY:
    row(f"RTR {_kind} was agreed on, an RDMA Write to nowhere comes: Terminate 1/1/00", kind=_kind,
        ulpdu=wire.tagged(wire.WRITE, 0, 0, b"abc"), error=0x1100)(wrong_first)
    row(f"RTR {_kind} was agreed on, a Send with MSN 2 comes: Terminate 1/2/03", kind=_kind,
        ulpdu=wire.untagged(wire.SEND, 0, 2), error=0x1203)(wrong_first)
    row(f"RTR {_kind} was agreed on, a Read Response comes: Terminate 0/2/06", kind=_kind,
        ulpdu=wire.tagged(wire.READ_RESPONSE, 0, 0), error=0x0206)(wrong_first)


def terminated(bench, error):
    """The initiator cannot meet what the reply says, and tells (RFC 6581, MPA error codes). The connection never stood."""
    agreed = Agreed(bench, "write")
    agreed.peer.fpdu(wire.terminate(error >> 12, 0, error & 0xFF))
    agreed.peer.gone()
    agreed.failed("CONNECT_ERROR", -errno.ECONNRESET)


row("in place of the RTR a Terminate 2/0/06 comes: the program's accept fails", error=0x2006)(terminated)
row("in place of the RTR a Terminate 2/0/07 comes: the program's accept fails", error=0x2007)(terminated)


# ---- no ready-to-receive message ------------------------------------------------------------------------------------


def missing(bench, octets, kind="write"):
    """The deadline is that of the start-up, and told as every deadline is."""
    agreed = Agreed(bench, kind, UIW_STARTUP_TIMEOUT="2000")
    try:
        agreed.peer.send(wire.fpdu(READY[kind])[:octets])
    except ConnectionError:  # a slow machine: the deadline was sooner
        pass
    agreed.peer.gone()
    agreed.failed("UNREACHABLE", -errno.ETIMEDOUT)


row("the RTR never comes: UNREACHABLE", octets=0)(missing)
row("the RTR never comes, a Read was agreed on: UNREACHABLE", octets=0, kind="read")(missing)
for _cut in (1, 2, 10, 19):
    row(f"{_cut} octets of the RTR come: UNREACHABLE", octets=_cut)(missing)


def leaves(bench, octets, reset):
    agreed = Agreed(bench, "write")
    if octets:
        agreed.peer.send(wire.fpdu(READY["write"])[:octets])
    if reset:
        agreed.peer.close(reset=True)
    else:
        agreed.peer.finish()
        agreed.peer.gone()
    agreed.failed("CONNECT_ERROR", -errno.ECONNRESET)


for _cut in (0, 10):
    row(f"the initiator sends {_cut} octets of the RTR, then FIN: CONNECT_ERROR", octets=_cut, reset=False)(leaves)
    row(f"the initiator sends {_cut} octets of the RTR, then resets: CONNECT_ERROR", octets=_cut, reset=True)(leaves)


@row("the program destroys its id while the RTR is awaited: nothing is sent any more")
def destroyed(bench):
    agreed = Agreed(bench, "write")
    agreed.sut.command(f"destroy {agreed.conn}")
    agreed.peer.gone()
    agreed.sut.nothing(0.1)
    serves(bench, agreed.sut, agreed.port)


@row("the program's queue pair goes to ERR while the RTR is awaited: nothing is sent any more")
def errs(bench):
    agreed = Agreed(bench, "write")
    agreed.sut.command(f"fail {agreed.conn}")
    agreed.peer.gone()
    agreed.failed("CONNECT_ERROR", -errno.ECONNRESET)


# ---- the ready-to-receive message comes before it may ---------------------------------------------------------------


def glued(bench, kind):
    """RFC 5044 forbids it, but nothing is lost by it: the RTR waits until the program has accepted."""
    agreed = Agreed(bench, kind, behind=wire.fpdu(READY[kind]))
    if kind == "read":
        agreed.sut.event("ESTABLISHED", agreed.conn)
        opcodes = sorted(agreed.peer.segment().opcode for _ in range(2))
        check(opcodes == [wire.READ_RESPONSE, wire.SEND], f"{opcodes}")
        agreed.sut.completion(2)
    else:
        agreed.spoken()
    agreed.goes_on(send_msn=2 if kind == "send" else 1, read_msn=2 if kind == "read" else 1)


for _kind in READY:
    row(f"request and RTR {_kind} in one TCP segment, accepted", kind=_kind)(glued)


@row("without a queue pair an RDMA Write is taken as RTR, and a Read is not", ord_=RTR_WRITE | RTR_READ, taken=RTR_WRITE)
@row("without a queue pair a Read alone is not taken as RTR: the caller speaks first", ord_=RTR_READ, taken=0)
def bare(bench, ord_, taken):
    """The RoCE view, where a program may accept without a queue pair."""
    sut, port = listening(bench, UIW_TRANSPORT="roce")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(PEER_TO_PEER | 8, ord_ | 8)))
    sut.command(f"accept {event.conn} 4 4 -")
    frame = peer.startup()
    check((frame.ird & ~DEPTH, frame.ord & ~DEPTH) == (PEER_TO_PEER if taken else 0, taken),
          f"{frame.ird:04x} {frame.ord:04x}")
    if taken:
        sut.nothing(0.1)
        peer.fpdu(READY["write"])
    sut.event("ESTABLISHED", event.conn)
    peer.quiet(0.1)


if __name__ == "__main__":
    sys.exit(main())
