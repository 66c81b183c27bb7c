# SPDX-License-Identifier: MIT
"""Atomic operations that uiw asks of the peer: the octets of the request, what becomes of the answer, and the depth
that they share with Reads (RFC 7306 sections 5.2 and 5.4)."""

import errno
import itertools
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import (FAR, FAR_ADDRESS, LOC_ACCESS_ERR, LOC_LEN_ERR, LOC_PROT_ERR, SUCCESS, WC_COMPARE_SWAP,
                      WC_FETCH_ADD, WC_READ, Responder, Session, check, main, row)
from peer.wire import ATOMIC_REQUEST, ONES, READ_REQUEST, SEND, WRITE, pattern


def asking(bench, **more):
    """uiw has called, so it may send first."""
    session = Session(bench, initiator=True, **more)
    session.sut.memory("m", 4096, "l", seed=11)
    return session.sut, session.peer, Responder(session.peer)


def refusable(sut, text):
    """Whether a work was taken that need not be; that there are no atomics at all is no reason."""
    kind, answer = sut.attempt(text)
    check(kind == "ok" or int(answer.split()[0]) != errno.EOPNOTSUPP, f"{text}: {answer}")
    return kind == "ok"


def request_octets(bench, op, values, tail):
    sut, peer, _ = asking(bench)
    sut.post("call", 1, op, "m:64:8", rkey=0x01020304, addr=0x1122334455667788, **values)
    got = peer.take(76)
    want = bytes.fromhex("0046" "41" "4a" "00000000" "00000001" "00000001" "00000000")
    check(got[:20] == want, f"{got.hex()} does not begin with {want.hex()}")
    want = bytes.fromhex(tail)
    check(got[20:24] == want[:4], f"Reserved and AOpCode {got[20:24].hex()}, not {want[:4].hex()}")
    check(got[28:72] == want[4:], f"behind the Request Identifier {got[28:72].hex()}, not {want[4:].hex()}")
    check(got[72:] == wire.crc32c(got[:72]).to_bytes(4, "little"), "CRC")


row("the octets of a FetchAdd, all of them", op="fetch_add",
    values={"add": 0x0A0B0C0D0E0F1011, "swap": 0x7777777777777777},
    tail="00000000" "01020304" "1122334455667788" "0a0b0c0d0e0f1011" "0000000000000000" "0000000000000000"
         "ffffffffffffffff")(request_octets)
row("the octets of a CmpSwap, all of them", op="compare_swap",
    values={"compare": 0x0A0B0C0D0E0F1011, "swap": 0x2122232425262728},
    tail="00000002" "01020304" "1122334455667788" "2122232425262728" "ffffffffffffffff" "0a0b0c0d0e0f1011"
         "ffffffffffffffff")(request_octets)


@row("the original value stands in local memory in the order of the host, nothing around it changes")
def results(bench):
    sut, peer, responder = asking(bench)
    memory = sut.memories["m"]
    for number, (op, value) in enumerate(itertools.product(
            ("fetch_add", "compare_swap"), (0, 1, 0x0102030405060708, 0xF0F1F2F3F4F5F6F7, 1 << 63, ONES)), 1):
        offset = 8 * number + number % 3  # the sink needs no alignment
        values = {"add": value} if op == "fetch_add" else {"compare": value, "swap": 5}
        sut.post("call", number, op, f"m:{offset}:8", rkey=FAR, addr=FAR_ADDRESS, **values)
        request = responder.hear(ATOMIC_REQUEST)
        check((request.stag, request.to) == (FAR, FAR_ADDRESS), f"another place than was posted: {request}")
        check((request.data if op == "fetch_add" else request.compare) == value, f"{value:#x} was posted: {request}")
        responder.answer(value)
        wc = sut.completion(number)
        check(wc.opcode == (WC_FETCH_ADD if op == "fetch_add" else WC_COMPARE_SWAP), f"{wc}")
        check(wc.length == 8, f"{wc}: {wc.length} octets")
        check(memory.word(offset) == value, f"the word is {memory.word(offset):#x}, not {value:#x}")
        memory.untouched((offset, offset + 8))
        memory.fill(11)
    peer.quiet(0.05)


@row("nothing completes before the answer, and completions come in the order posted")
def completion_order(bench):
    sut, peer, responder = asking(bench)
    sut.post("call", 1, "fetch_add", "m:0:8", rkey=FAR, addr=0, add=1)
    sut.post("call", 2, "send", "m:100:10")
    sut.post("call", 3, "compare_swap", "m:8:8", rkey=FAR, addr=8, compare=1, swap=2)
    sut.post("call", 4, "write", "m:100:10", rkey=FAR, addr=16)
    responder.hear(ATOMIC_REQUEST)
    check(peer.message(SEND)[0].msn == 1, "Send")
    responder.hear(ATOMIC_REQUEST)
    peer.message(WRITE)
    sut.nothing(0.1)
    responder.answer(10)
    sut.completion(1)
    sut.completion(2)
    sut.nothing(0.1)
    responder.answer(11)
    sut.completion(3)
    sut.completion(4)
    check((sut.memories["m"].word(0), sut.memories["m"].word(8)) == (10, 11), "original values")


def depth_shared(bench, depth, **more):
    """Requests of queue 1 outstanding: Reads and atomics count the same."""
    sut, peer, responder = asking(bench, **more)
    ops = ("fetch_add", "read", "compare_swap", "read", "read", "fetch_add", "fetch_add", "compare_swap", "read")
    for number, op in enumerate(ops, 1):
        sut.post("call", number, op, f"m:{number * 64}:8", rkey=FAR, addr=number * 1000, add=number)
    opcodes = [READ_REQUEST if op == "read" else ATOMIC_REQUEST for op in ops]
    for opcode in opcodes[:depth]:
        responder.hear(opcode)
    for number, op in enumerate(ops, 1):
        peer.quiet(0.03)
        request = responder.waiting[0]
        check((request.source_to if op == "read" else request.to) == number * 1000, f"operation {number}: {request}")
        responder.answer(pattern(number, 8) if op == "read" else number * 0x0101010101010101)
        sut.completion(number)
        got = sut.memories["m"].dump(number * 64, 8)
        check(got == (pattern(number, 8) if op == "read" else bytes([number]) * 8), f"{op} {number}: {got.hex()}")
        if number + depth <= len(ops):
            responder.hear(opcodes[number + depth - 1])
    peer.quiet(0.05)


row("atomics and Reads share ORD; the next waits", depth=3, ord_=3)(depth_shared)
row("atomics and Reads share ORD: one at a time", depth=1, ord_=1)(depth_shared)
row("ORD is limited to the IRD of the peer's reply", depth=2, ord_=8, own_ird=2)(depth_shared)


@row("with ORD 0 an atomic fails, and nothing of it is sent")
def no_depth(bench):
    sut, peer, _ = asking(bench, ord_=0, own_ird=0)
    if refusable(sut, f"post call 1 fetch_add - {FAR:#x} 0x1000 m:0:8 add=0x1"):
        check(sut.completion(1, None).status != SUCCESS, "the FetchAdd succeeds")
        if not peer.ready:
            peer._more(0.3)
        if peer.ready:
            peer.terminated()
    else:
        peer.quiet(0.1)
    sut.memories["m"].untouched()


@row("hundreds in lists of work, unsignaled: MSNs count, identifiers differ among those outstanding")
def many(bench):
    sut, peer, responder = asking(bench)
    for lot in range(20):
        for number in range(16):
            flags = "-" if number == 15 else "uc"
            sut.post("call", lot, ("fetch_add", "compare_swap")[number % 2], f"m:{number * 8}:8", rkey=FAR,
                     addr=number * 8, flags=flags, add=lot)
        heard = answered = 0
        while answered < 16:
            while heard < 16 and heard - answered < 8:
                check(responder.hear(ATOMIC_REQUEST).to == heard * 8, "order")
                heard += 1
            responder.answer(lot << 32 | answered)
            answered += 1
        sut.completion(lot)
        for number in range(16):
            check(sut.memories["m"].word(number * 8) == lot << 32 | number, f"lot {lot}, operation {number}")
    sut.nothing(0.05)


@row("fence: a Send waits for the atomic, an atomic for the Read")
def fence(bench):
    sut, peer, responder = asking(bench)
    sut.post("call", 1, "fetch_add", "m:0:8", rkey=FAR, addr=0, add=1)
    sut.post("call", 2, "send", "m:0:8", flags="f")
    responder.hear(ATOMIC_REQUEST)
    peer.quiet(0.2)
    responder.answer(0x1122334455667788)
    check(peer.message(SEND)[1] == 0x1122334455667788.to_bytes(8, sys.byteorder), "the Send carries the value")
    sut.completion(1)
    sut.completion(2)
    sut.post("call", 3, "read", "m:8:8", rkey=FAR, addr=0)
    sut.post("call", 4, "compare_swap", "m:16:8", rkey=FAR, addr=0, compare=1, swap=2, flags="f")
    responder.hear(READ_REQUEST)
    peer.quiet(0.2)
    responder.answer(b"12345678")
    check(sut.completion(3).opcode == WC_READ, "the Read")
    responder.hear(ATOMIC_REQUEST)
    responder.answer(3)
    sut.completion(4)


@row("a Tagged Offset that is no multiple of 8 goes out as it is (RFC 7306 5.2.1: arbitrary)")
def odd_offset(bench):
    sut, peer, responder = asking(bench)
    for number, op in enumerate(("fetch_add", "compare_swap"), 1):
        sut.post("call", number, op, "m:0:8", rkey=FAR, addr=0x1003)
        check(responder.hear(ATOMIC_REQUEST).to == 0x1003, "Tagged Offset")
        responder.answer(1)
        sut.completion(number)


def sink_size(bench, sges, room):
    """A sink that is not of 8 octets: refused, an error, or used as far as it goes; never a word too much."""
    sut, peer, _ = asking(bench)
    memory = sut.memories["m"]
    if refusable(sut, f"post call 1 fetch_add - {FAR:#x} 0x1000 {sges} add=0x1"):
        segment = peer.segment()
        if segment.opcode == ATOMIC_REQUEST:
            peer.fpdu(wire.atomic_response(1, wire.atomic_fields(segment).identifier, 0x0102030405060708))
        else:
            wire.Terminate(segment)
        wc = sut.completion(1, None)
        check(wc.status != SUCCESS or len(room) == 8, f"{wc}: the value has no place")
        if wc.status == SUCCESS:
            got = b"".join(memory.dump(at, 1) for at in room)
            check(got == 0x0102030405060708.to_bytes(8, sys.byteorder), f"the value: {got.hex()}")
    now, then = memory.dump(), pattern(11, 4096)
    changed = [at for at in range(4096) if now[at] != then[at] and at not in room]
    check(not changed, f"octets changed at {changed[:8]}")


for _sges, _room in (("", ()), ("m:64:0", ()), ("m:64:4", range(64, 68)), ("m:64:7", range(64, 71)),
                     ("m:64:16", range(64, 72)), ("m:64:4 m:128:4", (*range(64, 68), *range(128, 132)))):
    row(f"a local sink of [{_sges}]", sges=_sges, room=_room)(sink_size)


def bad_sink(bench, access, pd):
    """Found before the request goes (then RFC 7306 8.1: a Terminate instead of it), or when the answer comes."""
    sut, peer, responder = asking(bench)
    sut.command("pd other")
    bad = sut.memory("bad", 4096, access, pd, seed=90)
    sut.post("call", 1, "fetch_add", "bad:0:8", rkey=FAR, addr=0x1000, add=1)
    segment = peer.segment()
    if segment.opcode == ATOMIC_REQUEST:
        peer.fpdu(wire.atomic_response(1, wire.atomic_fields(segment).identifier, 5))
        term = peer.terminated()
        check((term.layer, term.etype) in ((0, 0), (0, 2)) and not term.r, f"{term}")
    else:
        term = wire.Terminate(segment)
        check((term.layer, term.etype) == (0, 0) and not (term.m or term.d or term.r), f"{term}")
    sut.completion(1, {LOC_PROT_ERR, LOC_ACCESS_ERR, LOC_LEN_ERR})
    bad.untouched()


row("a local sink of another PD", access="lrwa", pd="other")(bad_sink)
row("a local sink without local write", access="r", pd="pd")(bad_sink)


@row("both directions at once: MSNs and identifiers of each direction count apart")
def both(bench):
    session = Session(bench, initiator=True)
    sut, responder = session.sut, Responder(session.peer)
    memory = sut.memory("at", 64, "lrwa")
    sut.memory("in", 64, "l")
    for number in range(1, 30):
        sut.post("call", number, "fetch_add", "in:0:8", rkey=FAR, addr=8, add=number)
        session.fetch_add(number, memory.rkey, memory.addr, 2)
        # Which of the two comes first is open.
        request, answer = sorted((session.peer.segment(), session.peer.segment()), key=lambda one: one.opcode)
        check(wire.answer_fields(answer).value == 2 * number - 2 and answer.msn == number, f"{answer}")
        fields = wire.atomic_fields(request)
        check((fields.data, request.msn) == (number, number), f"{fields}")
        responder.waiting.append(fields)
        responder.answer(number << 40)
        sut.completion(number)
        check(sut.memories["in"].word(0) == number << 40, "original value")
    check(memory.word(0) == 58, "the sum")


@row("a program that polls all the time: the same octets are sent and the same completions come")
def spinning(bench):
    sut, peer, responder = asking(bench)
    sut.command("spin on")
    for number in range(1, 50):
        sut.post("call", number, "fetch_add", "m:8:8", rkey=FAR, addr=8, add=number)
        check(responder.hear(ATOMIC_REQUEST).data == number, "Add Data")
        responder.answer(number * 3)
        sut.completion(number)
        check(sut.memories["m"].word(8) == number * 3, "original value")


@row("the sink is deregistered before the answer comes: the stream ends, memory is not written")
def sink_gone(bench):
    sut, peer, responder = asking(bench)
    sink = sut.memory("sink", 4096, "l", seed=77)
    sut.post("call", 1, "fetch_add", "sink:0:8", rkey=FAR, addr=8, add=1)
    responder.hear(ATOMIC_REQUEST)
    sut.command("dereg sink")
    responder.answer(5)
    check(sut.completion(1, None).status != SUCCESS, "the FetchAdd succeeds")
    sink.untouched()


if __name__ == "__main__":
    sys.exit(main())
