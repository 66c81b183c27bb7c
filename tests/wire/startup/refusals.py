# SPDX-License-Identifier: MIT
"""Start-ups of uiw as the initiator that it ends itself: by the Terminates of RFC 6581, where a reply cannot be met, or
since its program gives up; what the log says where the peer gives up for want of markers; and what it offers without a queue pair."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.calling import Call, reply
from peer.sut import Session, check, main, row
from peer.wire import CRC, DEPTH, ENHANCED, MARKERS, PEER_TO_PEER, REJECT, RTR_READ, RTR_WRITE

# ---- Terminates in place of a ready-to-receive message --------------------------------------------------------------

INSUFFICIENT_IRD, NO_RTR = 0x2006, 0x2007
REFUSED = {INSUFFICIENT_IRD: {"ird": 4, "ord_": 5}, NO_RTR: {"ird": 4 | PEER_TO_PEER, "ord_": 4}}


def refuses(bench, error, flags=CRC | ENHANCED, behind=b"", finish=False):
    """The Terminate is the only FPDU, FIN follows it, and what the peer has sent behind its reply does not get lost in a
    reset."""
    call = Call(bench, UIW_CRC="on" if flags & CRC else "off")
    peer = call.peer
    peer.crc, peer.marked = bool(flags & CRC), bool(flags & MARKERS)
    peer.send(reply(flags, **REFUSED[error]) + behind)
    if finish:
        peer.finish()
    ulpdu, _, trailer = peer.fpdu_raw()
    term = wire.Terminate(wire.Segment(ulpdu))
    check(term.error == error and not (term.m or term.d or term.r), f"{term}")
    check(peer.crc or trailer == bytes(4), f"the CRC is off, and its field is {trailer.hex()}")
    check(peer.gone() == "fin", "reset, so that the Terminate may be lost")
    event = call.failed()
    check(event.name == "CONNECT_ERROR", f"{event}")


for _error in REFUSED:
    _name = f"Terminate {_error >> 12}/0/{_error & 0xFF:02x}"
    row(_name, error=_error)(refuses)
    row(f"{_name}: CRC off, its field is zero", error=_error, flags=ENHANCED)(refuses)
    row(f"{_name}: with a marker", error=_error, flags=CRC | ENHANCED | MARKERS)(refuses)
    row(f"{_name}: with a marker, CRC off", error=_error, flags=ENHANCED | MARKERS)(refuses)
    row(f"{_name}: an FPDU right behind the reply", error=_error, behind=wire.fpdu(wire.untagged(wire.SEND, 0, 1)))(
        refuses)
    row(f"{_name}: a million octets right behind the reply", error=_error, behind=bytes(1_000_000))(refuses)
    row(f"{_name}: octets and FIN right behind the reply", error=_error, behind=bytes(100), finish=True)(refuses)


@row("Terminate 2/0/06: a peer that stays is left after a while; the program hears at once, and calls others")
def peer_stays(bench):
    call = Call(bench)
    call.peer.send(reply(**REFUSED[INSUFFICIENT_IRD]) + bytes(100))
    call.failed()
    again = Call(bench, sut=call.sut, name="again")
    again.peer.send(reply())
    again.established()
    again.works()
    call.peer.terminated()
    check(call.peer.gone() == "fin", "reset, so that the Terminate may be lost")


    def unheard():
        try:
            call.peer.send(b"for nobody")
        except ConnectionError:
            return True
        return False

    wire.wait_until(unheard, 30, "the socket is closed")


# ---- markers that the peer does not support -------------------------------------------------------------------------

HINT = "it may not support markers, which this end asks for: try --markers off"


def log_of(bench, markers):
    path = pathlib.Path(bench.tmp, "log")
    return path, {"UIW_LOG": str(path), "UIW_MARKERS": markers}


def hinted(path, reason, markers):
    """The line with this reason says what may be the matter, where this end has asked for markers."""
    wire.wait_until(lambda: path.exists() and reason in path.read_text(), 10, f"a line that says: {reason}")
    line, = (line for line in path.read_text().splitlines() if reason in line)
    check((HINT in line) == (markers == "on"), line)


def gives_up(bench, how, reason, markers):
    path, env = log_of(bench, markers)
    call = Call(bench, **env)
    if how == "rejects":
        call.peer.send(reply(CRC | ENHANCED | REJECT))  # as siw does
    elif how == "sends no reply":
        call.peer.send(b"MPA ID Req Frame" + bytes(4))
    else:
        call.peer.close()
    call.failed()
    hinted(path, reason, markers)


for _how, _reason in (("rejects", "the peer's program has rejected it"), ("hangs up", "Connection reset by peer"),
                      ("sends no reply", "the start-up frames do not fit together")):
    for _markers in "on", "off":
        row(f"uiw calls with --markers {_markers}, and the peer {_how}: the line in the log",
            how=_how, reason=_reason, markers=_markers)(gives_up)


@row("uiw is called with --markers on, and the peer hangs up: the line in the log", markers="on", speaks=False)
@row("uiw is called with --markers on, and the peer hangs up behind its first message", markers="on", speaks=True)
@row("uiw is called with --markers off, and the peer hangs up: the line in the log", markers="off", speaks=False)
def called(bench, markers, speaks):
    path, env = log_of(bench, markers)
    session = Session(bench, env=env)
    if speaks:
        session.alive()
    session.peer.finish()
    session.down()
    hinted(path, "the peer has closed it", "off" if speaks else markers)


# ---- the program gives up -------------------------------------------------------------------------------------------


def destroyed(bench, came):
    """The program destroys its id while the reply is awaited: the stream ends, nothing is told, and others are served."""
    call = Call(bench)
    if came:
        call.peer.send(reply(data=b"data")[:came])
        call.peer.taken()
    call.sut.command("destroy call")
    call.peer.gone()
    call.sut.nothing(0.1)
    again = Call(bench, sut=call.sut, name="again")
    again.peer.send(reply())
    again.established()
    again.works()


row("the program destroys its id while the reply is awaited", came=0)(destroyed)
for _came in (1, 19, 20, 23):
    row(f"the program destroys its id after {_came} octets of the reply", came=_came)(destroyed)


# ---- a connection without a queue pair ------------------------------------------------------------------------------


class Bare(Call):
    """The RoCE view, where a program may call without a queue pair."""

    def __init__(self, bench, **more):
        super().__init__(bench, qp=False, UIW_TRANSPORT="roce", **more)


@row("a call without a queue pair offers an RDMA Write as RTR, and no Read")
def bare(bench):
    call = Bare(bench)
    check((call.request.ird & ~DEPTH, call.request.ord & ~DEPTH) == (PEER_TO_PEER, RTR_WRITE),
          f"{call.request.ird:04x} {call.request.ord:04x}")
    call.peer.send(reply(ird=PEER_TO_PEER | 4, ord_=RTR_WRITE | 4))
    call.sut.event("CONNECT_RESPONSE", "call")


@row("a call without a queue pair: a reply that picks a Read all the same, Terminate 2/0/07")
def bare_read(bench):
    call = Bare(bench)
    call.peer.send(reply(ird=PEER_TO_PEER | 4, ord_=RTR_READ | 4))
    term = call.peer.terminated()
    check(term.error == NO_RTR, f"{term}")
    check(call.peer.gone() == "fin", "reset, so that the Terminate may be lost")
    call.failed()


if __name__ == "__main__":
    sys.exit(main())
