# SPDX-License-Identifier: MIT
"""Errors in Read Requests and Read Responses that the peer sends (RFC 5040 sections 5.2 and 7.2)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import Case, TOP, error
from peer.sut import FLUSHED, SUCCESS, Session, check, main, row
from peer.wire import READ_REQUEST, READ_RESPONSE, WRITE, pattern, tagged, untagged

# ---- requests: remote protection errors of the RDMAP layer, with the Read Request header -----------------------------


def request_error(title, allowed, source, size=100, sink=(0x11223344, 0x5566778899AABBCC)):
    def run(bench):
        case = Case(bench)
        read = wire.read_header(*sink, size, *source(case))
        # The first is right: the header that comes back must be that of the second, and its answer comes before.
        case.peer.fpdu(wire.read_request(1, 1, 2, 10, *case.place("rw")))
        first, payload = case.peer.message(READ_RESPONSE)
        check(payload == pattern(0, 10), "the Read before")
        ulpdu = untagged(READ_REQUEST, 1, 2, 0, read)
        case.peer.send(wire.fpdu(ulpdu) + wire.fpdu(tagged(WRITE, *case.place("rw", 3000), b"behind the error")))
        case.judge(ulpdu, allowed, read=read)

    row(f"Read Request: {title}")(run)


request_error("an STag that was never issued", {0x0100},
              lambda c: (c.memory["rw"].rkey ^ 0x0F0F0F00, c.memory["rw"].addr))
request_error("STag 0", {0x0100}, lambda c: (0, c.memory["rw"].addr))
request_error("a region that was deregistered", {0x0100}, lambda c: c.place("gone"))
request_error("one octet beyond the end", {0x0101}, lambda c: c.place("rw", 4096 - 99))
request_error("begins at the end", {0x0101}, lambda c: c.place("rw", 4096), 1)
request_error("one octet before the start", {0x0101}, lambda c: c.place("rw", -1))
request_error("offset 0", {0x0101}, lambda c: (c.memory["rw"].rkey, 0))
request_error("2^32 - 1 octets", {0x0101}, lambda c: c.place("rw"), 0xFFFFFFFF)
request_error("the source wraps", {0x0104}, lambda c: (c.memory["rw"].rkey, TOP - 50))
request_error("a region of another PD", {0x0103}, lambda c: c.place("foreign"))
request_error("a region without remote read", {0x0102}, lambda c: c.place("wo"))
request_error("a region without remote access", {0x0102}, lambda c: c.place("local"))

for _before_end, _size in ((50, 100), (100, 100), (1, 1)):
    request_error(f"the sink wraps: {_size} octets at 2^64 - {_before_end}", {0x0104}, lambda c: c.place("rw"), _size,
                  (0x11223344, TOP - _before_end))

# A request of another length than 28 octets fits no buffer of queue 1.
LENGTH = {0x1205}
for _length in (0, 1, 27, 29, 60):
    error(f"Read Request: a header of {_length} octets", LENGTH,
                 lambda c, n=_length: untagged(READ_REQUEST, 1, 1, 0, (wire.read_header(1, 2, 10, *c.place("rw"))
                                                                     + bytes(60))[:n]))


@row("Read Request: in two segments: reassembled, or an error; nothing else changes")
def split(bench):
    case = Case(bench)
    read = wire.read_header(1, 2, 10, *case.place("rw"))
    case.peer.fpdu(untagged(READ_REQUEST, 1, 1, 0, read[:14], False))
    case.peer.fpdu(untagged(READ_REQUEST, 1, 1, 14, read[14:]))
    segment = case.peer.segment()
    if segment.opcode == READ_RESPONSE:
        check((segment.stag, segment.to, segment.payload) == (1, 2, pattern(0, 10)), f"{segment}")
    else:
        check(wire.Terminate(segment).error in LENGTH, "Terminate")
    for memory in case.memory.values():
        memory.untouched()


@row("Read Request: MO not zero")
def offset(bench):
    case = Case(bench)
    ulpdu = untagged(READ_REQUEST, 1, 1, 28, wire.read_header(1, 2, 10, *case.place("rw")))
    case.peer.fpdu(ulpdu)
    case.judge(ulpdu, {0x1204})


@row("Read Request: one more than IRD outstanding", ird=3)
def too_many(bench, ird):
    """The peer does not read, so the answers to the first ones cannot have gone."""
    session, sut, peer = Session(bench, ird=ird, crc=False, rcvbuf=8192)
    big = sut.memory("big", 6 << 20, "lr", seed=3)
    for number in range(1, ird + 2):
        peer.fpdu(wire.read_request(number, number, 0, big.size, big.rkey, big.addr))
    peer.taken()
    term = peer.terminated(skip=(READ_RESPONSE,))
    check(term.error == 0x1202, f"{term}")
    check(term.m and term.d and not term.r, f"{term}")
    check(term.ddp == wire.read_request(ird + 1, 0, 0, 0, 0, 0)[:18], f"DDP header {term.ddp.hex()}")
    session.down()  # not because the peer went
    session.qp_event()


@row("Read Requests up to IRD with big answers: all are answered", ird=3)
def many(bench, ird):
    session = Session(bench, ird=ird, crc=False)
    big = session.sut.memory("big", 4 << 20, "lr", seed=3)
    for number in range(1, ird + 1):
        session.peer.fpdu(wire.read_request(number, number, 0, big.size, big.rkey, big.addr))
    for number in range(1, ird + 1):
        first, payload = session.peer.message(READ_RESPONSE)
        check(first.stag == number and payload == pattern(3, big.size), f"answer {number}")
    session.hang_up()


# ---- responses -------------------------------------------------------------------------------------------------------

SINK = (100, 200)  # where in "local" the data is to go


def response_error(title, allowed, answer, size=100, sink="local"):
    """uiw reads 100 octets; `answer(case, request)` gives the segments, one of which is in error."""

    def run(bench):
        case = Case(bench, initiator=True)
        case.sut.post("call", 50, "read", f"{sink}:{SINK[0]}:{size}", rkey=0x77, addr=0x1000)
        case.sut.post("call", 51, "read", f"{sink}:2000:10", rkey=0x77, addr=0x2000)
        request = wire.read_fields(case.peer.segment())
        check(wire.read_fields(case.peer.segment()).size == 10, "the second Read")
        segments = answer(case, request)
        case.peer.send(b"".join(wire.fpdu(segment) for segment in segments))
        term = case.peer.terminated()
        check(term.error in allowed, f"{term}, not {' or '.join(f'{error:#06x}' for error in sorted(allowed))}")
        check(term.m and term.d and not term.r, f"{term}")
        culprit = next((segment for segment in segments if segment[:14] == term.ddp), b"")
        check(term.length == len(culprit), f"{term}: {term.ddp.hex()} length {term.length}")
        check(case.peer.gone() == "fin", "reset, so that the Terminate may be lost")
        case.session.down()
        told = case.sut.completion(50, None).status
        check(told != SUCCESS, "the Read succeeds")
        case.sut.completion(51, FLUSHED if told != FLUSHED else None)
        for number in (1, 2):
            case.sut.completion(number, FLUSHED)
        if told == FLUSHED:
            case.session.qp_event()
        for name, memory in case.memory.items():
            memory.untouched(SINK if name == sink else (0, 0))

    row(f"Read Response: {title}")(run)


# The texts leave open which error it is where several fit. uiw names the first: the STag, then the place.
response_error("another STag", {0x1100},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag ^ 0x00110000, r.sink_to, bytes(100))])
response_error("the STag of another region with remote write", {0x1100},
               lambda c, r: [tagged(READ_RESPONSE, *c.place("rw"), bytes(100))])
response_error("another offset", {0x1101}, lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to + 1, bytes(99))])
response_error("an offset before", {0x1101}, lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to - 1,
                                                                 bytes(100))])
response_error("a gap between two segments", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(40), False),
                             tagged(READ_RESPONSE, r.sink_stag, r.sink_to + 50, bytes(50))])
response_error("the same octets twice", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(40), False),
                             tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(40), False)])
response_error("one octet too long", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(101))])
response_error("much too long", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(5000))])
response_error("goes on after the last octet", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(100), False),
                             tagged(READ_RESPONSE, r.sink_stag, r.sink_to + 100, b"x")])
response_error("ends early", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(99))])
response_error("ends at once", {0x1101}, lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to)])
response_error("offset wraps", {0x1101},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, TOP - 50, bytes(100))])
response_error("a Write to the sink in its place", {0x1100},
               lambda c, r: [tagged(WRITE, r.sink_stag, r.sink_to, bytes(100))])
response_error("DDP version 2", {0x1104},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(100), dv=2)])
response_error("RDMAP version 2", {0x0205},
               lambda c, r: [tagged(READ_RESPONSE, r.sink_stag, r.sink_to, bytes(100), rv=2)])

error("Read Response: without a request", {0x0206},
             lambda c: tagged(READ_RESPONSE, *c.place("rw"), b"data"))
error("Read Response: without a request, zero length", {0x0206},
             lambda c: tagged(READ_RESPONSE, 0, 0))
error("Read Response: without a request, into a receive buffer", {0x0206},
             lambda c: tagged(READ_RESPONSE, *c.place("in"), b"data"))


@row("Read Response: one more than was requested")
def surplus(bench):
    case = Case(bench, initiator=True)
    case.sut.post("call", 50, "read", "local:100:10", rkey=0x77, addr=0x1000)
    request = wire.read_fields(case.peer.segment())
    answer = tagged(READ_RESPONSE, request.sink_stag, request.sink_to, b"0123456789")
    case.peer.fpdu(answer)
    case.sut.completion(50)
    case.peer.fpdu(answer)
    check(case.peer.terminated().error == 0x0206, "Terminate")
    case.session.down()
    case.memory["local"].untouched((100, 110))


@row("Read Responses out of order")
def disorder(bench):
    case = Case(bench, initiator=True)
    case.sut.post("call", 50, "read", "local:100:10", rkey=0x77, addr=0x1000)
    case.sut.post("call", 51, "read", "local:200:10", rkey=0x77, addr=0x1000)
    wire.read_fields(case.peer.segment())
    second = wire.read_fields(case.peer.segment())
    case.peer.fpdu(tagged(READ_RESPONSE, second.sink_stag, second.sink_to, b"0123456789"))
    check(case.peer.terminated().error == 0x1101, "Terminate")
    case.session.down()
    check(case.sut.completion(50, None).status != SUCCESS, "the first Read succeeds")
    case.memory["local"].untouched()


@row("a region deregistered while the peer reads it, CRC off", crc=False)
@row("a region deregistered while the peer reads it", crc=True)
@row("a region deregistered while the peer reads it, which the peer asks for once more then", crc=True, behind=True)
def dereg_under_read(bench, crc, behind=False):
    session = Session(bench, crc=crc, rcvbuf=8192)
    big = session.sut.memory("big", 16 << 20, "lr", seed=3)
    session.sut.memory("mark", 64, "lrw")
    session.alive()
    request = wire.read_request(session.read_msn, 0xAA, 1000, big.size, big.rkey, big.addr)
    session.peer.fpdu(request)
    # One behind it is not answered either, and is not the one that is named (RFC 5040 7.1, rule 4).
    second = wire.read_request(session.read_msn + 1, 0xBB, 0, 10, big.rkey, big.addr)
    if not behind:
        session.peer.fpdu(second)
    segment = session.peer.segment()
    got = len(segment.payload)
    session.taken("mark", 0)
    session.sut.command("dereg big")
    if behind:
        session.peer.fpdu(second)
        session.peer.taken()
    try:
        while segment.opcode == READ_RESPONSE:
            segment = session.peer.segment()
            got += len(segment.payload) if segment.opcode == READ_RESPONSE else 0
    except wire.Failure:
        check(not crc, "no Terminate")  # without a CRC, in the middle of an FPDU nothing right can follow
        check(session.peer.ended and got < big.size, f"{got} octets")
        session.down()
        return
    # RFC 5040 4.8: the Read Request header says where the operation stood.
    term = wire.Terminate(segment)
    check(term.error == 0x0100 and term.m and term.d and term.r, f"{term}")
    check(term.ddp == request[:18] and term.length == len(request), f"{term}: {term.ddp.hex()} {term.length}")
    check(0 < got < big.size, f"{got} octets")
    check(term.rdma == wire.read_header(0xAA, 1000 + got, big.size - got, big.rkey, big.addr + got),
          f"{term}: RDMA header {term.rdma.hex()} after {got} octets")
    check(session.peer.gone() == "fin", "reset")
    session.down()


@row("a region deregistered before an atomic operation on it is answered")
def dereg_before_atomic(bench):
    session = Session(bench, rcvbuf=8192)
    big = session.sut.memory("big", 6 << 20, "lr", seed=3)
    at = session.sut.memory("at", 64, "lra", seed=4)
    session.peer.fpdu(wire.read_request(1, 0xAA, 0, big.size, big.rkey, big.addr))
    request = wire.fetch_add(2, 7, at.rkey, at.addr, 1)
    session.peer.fpdu(request)
    first = session.peer.segment()
    session.sut.command("dereg at")
    got = len(first.payload)
    while got < big.size:
        segment = session.peer.segment()
        check(segment.opcode == READ_RESPONSE, f"{segment}")
        got += len(segment.payload)
    term = session.peer.terminated()
    check(term.error == 0x0100 and term.m and term.d and not term.r, f"{term}")
    check(term.ddp == request[:18] and term.length == len(request), f"{term}: {term.ddp.hex()} {term.length}")
    check(session.peer.gone() == "fin", "reset")
    session.down()


if __name__ == "__main__":
    sys.exit(main())
