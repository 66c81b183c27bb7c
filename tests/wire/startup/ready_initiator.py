# SPDX-License-Identifier: MIT
"""What uiw as the initiator makes of the ready-to-receive message and the depths that a reply picks (RFC 6581 section
9): which message it sends first, and how many Reads it has outstanding."""

import errno
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.calling import Call, reply
from peer.sut import check, main, row
from peer.wire import DEPTH, PEER_TO_PEER, RTR_READ, RTR_WRITE, pattern

# ---- the ready-to-receive message is an RDMA Read -------------------------------------------------------------------


def hear_read(peer, msn, size):
    segment = peer.segment()
    request = wire.read_fields(segment)
    check((segment.msn, request.size) == (msn, size), f"MSN {segment.msn}: {request}")
    return request


def answer(peer, request, octets=b""):
    peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag, request.sink_to, octets))


def read_counts(bench, ird, work, **env):
    """The Read that is the RTR is outstanding like any other until it is answered (RFC 5040 section 6.1): the program's
    Reads wait where it takes the last place. work: kinds of work that the program posts meanwhile."""
    call = Call(bench, 4, ird, **env)
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(ird=PEER_TO_PEER | ird, ord_=RTR_READ))
    call.established()
    ready = hear_read(call.peer, 1, 0)
    for number, kind in enumerate(work):
        call.sut.post("call", number, kind, f"m:{number * 8}:8", rkey=1, addr=1)
    heard = []
    for kind in work:
        if kind == "read" and len(heard) == ird - 1:
            break
        if kind == "read":
            heard.append(hear_read(call.peer, 2 + len(heard), 8))
        else:
            call.peer.message(wire.WRITE)
    call.peer.quiet(0.3)
    answer(call.peer, ready)
    heard.append(hear_read(call.peer, 2 + len(heard), 8))
    call.peer.quiet(0.1)
    for request in heard:
        answer(call.peer, request, b"answered")
    for number, kind in enumerate(work[:work.index("read") + len(heard)]):
        call.sut.completion(number)


row("the RTR is a Read, and the reply's IRD is 1: the program's Read waits for its answer", ird=1,
    work=["read"])(read_counts)
row("the RTR is a Read, and the reply's IRD is 2: one of the program's Reads waits", ird=2,
    work=["read", "read"])(read_counts)
row("the RTR is a Read, and the reply's IRD is 1: a Write does not wait, a Read does", ird=1,
    work=["write", "read"])(read_counts)


@row("the RTR is a Read, and the reply's IRD is 1: what confirms a Write waits for its answer")
def confirmation_waits(bench):
    call = Call(bench, 4, 1, UIW_COMPLETION="remote")
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(ird=PEER_TO_PEER | 1, ord_=RTR_READ))
    call.established()
    ready = hear_read(call.peer, 1, 0)
    call.sut.post("call", 1, "write", "m:0:8", rkey=1, addr=1)
    call.peer.message(wire.WRITE)
    call.peer.quiet(0.3)
    answer(call.peer, ready)
    answer(call.peer, hear_read(call.peer, 2, 0))
    call.sut.completion(1)


# ---- what the reply's flags A, B, C and D pick -----------------------------------------------------------------------
# The request offers C and D. B, which it does not offer, picks nothing, and of C and D the first counts; without A none of
# them does.


def picks(bench, ird, ord_, first):
    """first: the opcode of the RTR, or None."""
    call = Call(bench, UIW_CRC="on")
    check((call.request.ird, call.request.ord) == (0x8004, 0xC004), f"{call.request.ird:04x} {call.request.ord:04x}")
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(ird=ird, ord_=ord_))
    event = call.established()
    check((event.responder_resources, event.initiator_depth) == (ord_ & DEPTH, ird & DEPTH), f"{event}")
    read_msn = 1
    if first == wire.READ_REQUEST:
        answer(call.peer, hear_read(call.peer, 1, 0))
        read_msn = 2
    elif first == wire.WRITE:
        segment = call.peer.segment()
        check((segment.opcode, segment.stag, segment.to, segment.payload) ==
              (wire.WRITE, wire.HELLO_STAG, wire.HELLO_TO, b""), f"{segment}")
    call.peer.quiet(0.15)
    call.sut.post("call", 1, "send", "m:0:10")
    message, payload = call.peer.message(wire.SEND)
    check((message.msn, payload) == (1, pattern(3, 10)), f"{message}")
    call.sut.post("call", 2, "read", "m:100:4", rkey=1, addr=2)
    answer(call.peer, hear_read(call.peer, read_msn, 4), b"abcd")
    call.sut.completion(1)
    call.sut.completion(2)
    call.works()


for _ird, _ord, _first in ((0x8004, 0x8004, wire.WRITE), (0x8004, 0x4004, wire.READ_REQUEST),
                           (0x8004, 0xC004, wire.WRITE), (0xC004, 0x8004, wire.WRITE),
                           (0xC004, 0x4004, wire.READ_REQUEST), (0xC004, 0xC004, wire.WRITE),
                           (0x0004, 0x0004, None), (0x0004, 0x8004, None), (0x0004, 0x4004, None),
                           (0x4004, 0x0004, None), (0x4004, 0xC004, None)):
    _name = {wire.WRITE: "RDMA Write", wire.READ_REQUEST: "RDMA Read", None: "none"}[_first]
    row(f"the reply {_ird:04x} {_ord:04x}: {_name}", ird=_ird, ord_=_ord, first=_first)(picks)


def picks_nothing(bench, ird, ord_, own=(4, 4)):
    call = Call(bench, *own, UIW_CRC="on")
    call.peer.send(reply(ird=ird, ord_=ord_))
    term = call.peer.terminated()
    check(term.error == 0x2007 and not (term.m or term.d or term.r), f"{term}")
    check(call.peer.gone() == "fin", "reset, so that the Terminate may be lost")
    call.failed()


row("the reply 8004 0004: Terminate 2/0/07", ird=0x8004, ord_=0x0004)(picks_nothing)
row("the reply c004 0004, which was not offered: Terminate 2/0/07", ird=0xC004, ord_=0x0004)(picks_nothing)
row("the reply 8004 4000 where ORD is 0, so that no Read was offered: Terminate 2/0/07", ird=0x8004, ord_=0x4000,
    own=(4, 0))(picks_nothing)

# ---- depths ----------------------------------------------------------------------------------------------------------


def depths(bench, own, said, answered, told, most):
    """own: IRD and ORD of the program; said: those of the request; answered: those of the reply; told: what the program
    hears, the peer's ORD and its IRD, as far as an adapter can use them. Then `most` of the program's Reads go out."""
    call = Call(bench, *own, UIW_CRC="on")
    offers = RTR_WRITE | (RTR_READ if said[1] > 0 else 0)
    check((call.request.ird, call.request.ord) == (PEER_TO_PEER | said[0], offers | said[1]),
          f"{call.request.ird:04x} {call.request.ord:04x}")
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(ird=PEER_TO_PEER | answered[0], ord_=RTR_WRITE | answered[1]))
    event = call.established()
    check((event.responder_resources, event.initiator_depth) == told, f"{event} says others than {told}")
    check(call.peer.segment().opcode == wire.WRITE, "RTR")
    errno_ = None if most else {errno.EINVAL}
    for number in range(min(most + 1, 64)):  # as many as the send queue holds
        call.sut.post("call", number, "read", f"m:{number * 8}:8", rkey=1, addr=1, errno=errno_)
    for number in range(min(most, 64)):
        hear_read(call.peer, 1 + number, 8)
    call.peer.quiet(0.15)
    if own[0]:
        return call.works()
    call.peer.fpdu(wire.read_request(1, 1, 2, 0, 0, 0))
    check(call.peer.terminated().error == 0x1202, "a Read is taken where IRD is 0")


for _own, _said, _answered, _told, _most in (
        ((128, 128), (128, 128), (128, 128), (128, 128), 128), ((255, 255), (128, 128), (128, 128), (128, 128), 128),
        ((1, 1), (1, 1), (1, 1), (1, 1), 1), ((4, 4), (4, 4), (1, 1), (1, 1), 1), ((4, 4), (4, 4), (4, 4), (4, 4), 4),
        ((4, 4), (4, 4), (DEPTH, DEPTH), (128, 128), 4), ((4, 4), (4, 4), (DEPTH - 1, 4), (4, 128), 4),
        ((4, 0), (4, 0), (4, 4), (4, 4), 0), ((4, 4), (4, 4), (0, 0), (0, 0), 0), ((0, 0), (0, 0), (0, 0), (0, 0), 0)):
    row(f"own IRD {_own[0]} and ORD {_own[1]}, answered {_answered[0]:#x} and {_answered[1]:#x}", own=_own, said=_said,
        answered=_answered, told=_told, most=_most)(depths)


def too_many(bench, own, ord_):
    """The peer's ORD exceeds the IRD that the request has."""
    call = Call(bench, own, 4, UIW_CRC="on")
    call.peer.send(reply(ird=PEER_TO_PEER | 4, ord_=RTR_WRITE | ord_))
    term = call.peer.terminated()
    check(term.error == 0x2006 and not (term.m or term.d or term.r), f"{term}")
    check(call.peer.gone() == "fin", "reset, so that the Terminate may be lost")
    call.failed()


for _own, _ord in ((0, 1), (4, 5), (4, DEPTH - 1), (128, 129)):
    row(f"own IRD {_own}, the reply has ORD {_ord:#x}: Terminate 2/0/06", own=_own, ord_=_ord)(too_many)


if __name__ == "__main__":
    sys.exit(main())
