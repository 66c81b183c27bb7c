# SPDX-License-Identifier: MIT
"""What uiw as the initiator makes of the ready-to-receive message that a reply picks (RFC 6581 section 9)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.calling import Call, reply
from peer.sut import check, main, row
from peer.wire import PEER_TO_PEER, RTR_READ

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


if __name__ == "__main__":
    sys.exit(main())
