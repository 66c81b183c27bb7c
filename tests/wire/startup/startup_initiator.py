# SPDX-License-Identifier: MIT
"""MPA start-up with uiw as the initiator (RFC 5044 section 7.1, RFC 6581): uiw calls, the peer answers."""

import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.calling import FAILED, Call, reply
from peer.sut import Sut, check, listener, main, row
from peer.wire import (CRC, DEPTH, ENHANCED, PEER_TO_PEER, REJECT, REPLY, REQUEST, RTR_READ, RTR_SEND,
                       RTR_WRITE, pattern, startup)

LENGTHS = (0, 1, 3, 4, 5, 64, 195, 196, 197, 254, 255)


@row("the octets of the request: revision 2")
def request2(bench):
    call = Call(bench, 3, 5, b"hello", UIW_CRC="on")
    frame = call.request
    check(frame.raw[:20] == b"MPA ID Req Frame\x50\x02\x00\x09", f"{frame.raw[:20]}")
    check((frame.ird, frame.ord) == (PEER_TO_PEER | 3, RTR_WRITE | RTR_READ | 5), f"{frame.ird:#x} {frame.ord:#x}")
    check(frame.private == b"hello", f"{frame.private}")
    call.peer.quiet(0.2)  # no FPDU before the reply
    call.peer.send(reply(ord_=3))
    call.established()
    call.works()


@row("a reply as siw sends it: reserved flags set, IRD and ORD 0")
def of_siw(bench):
    call = Call(bench, UIW_CRC="on")
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(call.request.flags | 0x0B, ird=PEER_TO_PEER, ord_=RTR_WRITE))
    event = call.established()
    check((event.responder_resources, event.initiator_depth) == (0, 0), f"{event} says others")
    segment = call.peer.segment()
    check((segment.opcode, segment.stag, segment.to, segment.payload) ==
          (wire.WRITE, wire.HELLO_STAG, wire.HELLO_TO, b""), f"{segment}")
    call.works()


def reads_at_most(bench, depth, own, most, **env):
    """No more Reads are outstanding than both ends allow, those that confirm Writes among them."""
    call = Call(bench, 4, own, **env)
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.peer.send(reply(ird=depth, ord_=0))
    call.established()
    for number in range(most + 2):
        call.sut.post("call", number, "read", f"m:{number * 8}:8", rkey=1, addr=1)
        call.sut.post("call", 100 + number, "write", "m:0:8", rkey=1, addr=1)
    requests = 0
    while requests < most or call.peer.ready or call.peer._more(0.5):
        requests += call.peer.segment().opcode == wire.READ_REQUEST
    check(requests == most, f"{requests} Read Requests, not {most}")


row("the reply negotiates no IRD: the program's ORD counts", depth=DEPTH, own=4, most=4)(reads_at_most)
row("the reply negotiates no IRD: the program's ORD counts, completed by the peer", depth=DEPTH, own=4, most=4,
    UIW_COMPLETION="remote")(reads_at_most)
row("the reply has IRD 2: it counts", depth=2, own=4, most=2)(reads_at_most)
row("the reply has IRD 2: it counts, completed by the peer", depth=2, own=4, most=2,
    UIW_COMPLETION="remote")(reads_at_most)


@row("the octets of the request: revision 1")
def request1(bench):
    call = Call(bench, 3, 5, b"hello", UIW_CRC="on", UIW_MPA_REVISION="1")
    check(call.request.raw == b"MPA ID Req Frame\x40\x01\x00\x05hello", f"{call.request.raw}")
    call.peer.send(reply(CRC, 1, data=b"world"))
    check(call.established().private == b"world", "private data")
    call.works()


@row("a reply of revision 2: IRD and ORD reach the consumer")
def depths(bench):
    call = Call(bench, 3, 5)
    call.peer.send(reply(ird=6, ord_=2, data=b"world"))
    event = call.established()
    check(event.private == b"world", f"{event.private}")
    # rdma_get_cm_event(3): responder_resources is the peer's ORD, initiator_depth the peer's IRD; or what is left
    # of them by the request's.
    check(event.responder_resources == 2, f"responder_resources {event.responder_resources}")
    check(event.initiator_depth in (5, 6), f"initiator_depth {event.initiator_depth}")
    call.works()


@row("a reply of revision 2 without the S flag", revision=2)
@row("a reply of revision 1 that accepts", revision=1)
def plain_reply(bench, revision):
    call = Call(bench)
    call.peer.send(reply(CRC, revision, data=b"world"))
    event = call.sut.wait(lambda: call.sut.events.pop(0) if call.sut.events else None, 15, "any end")
    # RFC 6581 section 10 asks for the request's revision; to go on as revision 1 is no harm.
    check(event.name == "ESTABLISHED" and event.private == b"world" or event.name in FAILED, f"{event}")


@row("a peer that rejects with revision 1 is called again with revision 1")
def fallback(bench):
    call = Call(bench, data=b"hello", UIW_CRC="on")
    check(call.request.revision == 2, "the first request")
    call.peer.send(reply(CRC | REJECT, 1))
    call.peer.gone()
    call.answer()
    check(call.request.raw == b"MPA ID Req Frame\x40\x01\x00\x05hello", f"{call.request.raw}")
    call.sut.nothing(0.1)
    call.peer.send(reply(CRC, 1, data=b"world"))
    check(call.established().private == b"world", "private data")
    call.works()


@row("a peer that rejects revision 1 too: one REJECTED, no third call")
def fallback_rejected(bench):
    call = Call(bench)
    call.peer.send(reply(CRC | REJECT, 1))
    call.answer()
    check(call.request.revision == 1, "the second request")
    call.peer.send(reply(CRC | REJECT, 1, data=b"no"))
    event = call.failed()
    check(event.name == "REJECTED" and event.private == b"no", f"{event} {event.private}")
    call.heard.settimeout(0.3)
    try:
        call.heard.accept()
    except TimeoutError:
        return
    check(False, "uiw calls a third time")


@row("private data of every length, both ways, unchanged", revision=1)
@row("private data of every length, both ways, unchanged: revision 2", revision=2)
def private_data(bench, revision):
    sut = None
    for length in LENGTHS:
        call = Call(bench, data=pattern(length, length), sut=sut, name=f"n{length}", UIW_MPA_REVISION=str(revision))
        sut = call.sut
        check(call.request.private == pattern(length, length), f"{length} octets became {call.request.private.hex()}")
        back = pattern(100 + length, length)
        call.peer.send(reply(CRC | (ENHANCED if revision == 2 else 0), revision, data=back))
        check(call.established().private == back, f"{length} octets of the reply")
        call.works()
        call.peer.close(reset=True)
        sut.event("DISCONNECTED")


@row("a reply with more private data than rdma_cm carries: the first octets, or a failure")
def private_long(bench):
    sut = None
    for length in (256, 300, 508):
        call = Call(bench, sut=sut, name=f"n{length}")
        sut = call.sut
        call.peer.send(reply(data=pattern(1, length)))
        event = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "any end")
        if event.name == "ESTABLISHED":
            check(pattern(1, length).startswith(event.private), "other octets")
            call.works()
            call.peer.close(reset=True)
            sut.event("DISCONNECTED")
        else:
            check(event.name in FAILED, f"{event}")


@row("a rejection with private data", revision=1)
@row("a rejection with private data: revision 2", revision=2)
def rejected(bench, revision):
    sut = None
    for length in (0, 1, 64, 255):
        call = Call(bench, sut=sut, name=f"n{length}", UIW_MPA_REVISION=str(revision))
        sut = call.sut
        call.peer.send(reply(CRC | REJECT | (ENHANCED if revision == 2 else 0), revision, data=pattern(9, length)))
        event = call.failed()
        check(event.name == "REJECTED", f"{event}")
        check(event.private == pattern(9, length), f"private data {event.private.hex()}")
        call.peer.gone()
    sut.nothing(0.05)


@row("a rejection of revision 2 without the S flag")
def rejected_plain(bench):
    call = Call(bench)
    call.peer.send(reply(CRC | REJECT, 2, data=b"no"))
    event = call.failed()
    check(event.name == "REJECTED" and event.private == b"no", f"{event} {event.private}")


@row("the CRC decision: either side asks")
def crc_decision(bench):
    for setting, asked in (("off", False), ("off", True), ("on", False), ("on", True), ("auto", True),
                           ("auto", False)):
        call = Call(bench, UIW_CRC=setting)
        own = bool(call.request.flags & CRC)
        check(own == (setting == "on"), f"UIW_CRC={setting}: C flag {own}")
        call.sut.memory("m", 4096, "lrw", seed=5)
        call.peer.send(reply((CRC if asked else 0) | ENHANCED))
        call.peer.crc = own or asked
        call.established()
        call.sut.post("call", 1, "send", "m:0:33")
        first, payload = call.peer.message(wire.SEND)  # checks the CRC where there is one
        check(payload == pattern(5, 33), "payload")
        call.sut.completion(1)
        memory = call.sut.memories["m"]
        call.peer.fpdu(wire.tagged(wire.WRITE, memory.rkey, memory.addr, b"new"), damage=1)
        if call.peer.crc:
            check(call.peer.terminated().error == 0x2002, "a wrong CRC passes")
            memory.untouched()
        else:
            call.works()
            check(memory.dump(0, 3) == b"new", "with CRC off the CRC field counts")
        call.sut.quit()


@row("the reply octet by octet, the first FPDU with its last octet")
def octet_by_octet(bench):
    call = Call(bench)
    memory = call.sut.memory("m", 4096, "lrw", seed=5)
    frame = reply(data=b"slow")
    call.peer.send(frame[:-1], 1, 0.002)
    call.sut.nothing(0.05)
    call.peer.send(frame[-1:] + wire.fpdu(wire.tagged(wire.WRITE, memory.rkey, memory.addr, b"early")))
    check(call.established().private == b"slow", "private data")
    call.works()
    check(memory.dump(0, 5) == b"early", "the FPDU behind the reply")


@row("no answer: the deadline ends it")
def deadline(bench):
    call = Call(bench, UIW_STARTUP_TIMEOUT="500")
    began = time.monotonic()
    event = call.failed(10)
    check(event.name == "UNREACHABLE", f"{event}")
    check(time.monotonic() - began < 5, "later than ten times UIW_STARTUP_TIMEOUT")
    call.peer.gone()


@row("no answer in time, octet by octet")
def trickle(bench):
    call = Call(bench, UIW_STARTUP_TIMEOUT="500")
    frame = reply(data=bytes(400))
    began = time.monotonic()
    try:
        for octet in frame:
            call.peer.send(bytes([octet]))
            call.sut.pump()
            if call.sut.events:
                break
            time.sleep(0.03)
    except (BrokenPipeError, ConnectionResetError):
        pass
    check(time.monotonic() - began < 5, "the deadline begins anew with every octet")
    call.failed()


@row("nobody listens")
def nobody(bench):
    sut = Sut(bench)
    with listener() as heard:
        port = heard.getsockname()[1]
    sut.command(f"resolve call 127.0.0.1 {port}")
    sut.command("qp call")
    sut.command("connect call 4 4 -")
    event = sut.event("REJECTED")  # the man page rdma_get_cm_event(3): rejected or no answer; ECONNREFUSED
    check(event.status != 0, f"{event}")


def wrong(bench, frame, finish=False, reset=False):
    call = Call(bench, UIW_STARTUP_TIMEOUT="2000")
    if frame:
        call.peer.send(frame)
    if finish:
        call.peer.finish()
    if reset:
        call.peer.close(reset=True)
    event = call.failed(10)
    check(event.private == b"", f"private data of a wrong frame: {event.private}")
    if not reset:
        end = time.monotonic() + 10
        while not call.peer.ended and time.monotonic() < end:
            call.peer._more(1)
        check(call.peer.ended, "the stream stands")
        if call.peer.ready:  # only a Terminate may be said: LLP, MPA
            term = call.peer.terminated()
            check(term.error >> 8 == 0x20, f"{term}")
    # The consumer may call again.
    again = Call(bench, sut=call.sut, name="again")
    again.peer.send(reply())
    again.established()
    again.works()


for _name, _frame in [("the key of a request", startup(REQUEST, CRC, 2)),
                      ("one octet of the key wrong", startup(b"MPA ID Rep frame", CRC, 2)),
                      ("garbage", bytes(range(3, 200))), ("zeros", bytes(600)),
                      ("HTTP", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
                      ("revision 0", reply(CRC, 0)), ("revision 3", reply(CRC, 3)), ("revision 255", reply(CRC, 255)),
                      ("PD_Length 513", startup(REPLY, CRC, 1, bytes(513))),
                      ("PD_Length 65535", startup(REPLY, CRC | ENHANCED, 2, bytes(700), 65535)),
                      ("the S flag and no enhanced header", startup(REPLY, CRC | ENHANCED, 2, b"\0\4\0")),
                      ("an FPDU instead of a reply", wire.fpdu(wire.untagged(wire.SEND, 0, 1)))]:
    row(f"a wrong reply: {_name}", frame=_frame)(wrong)
for _cut in (0, 1, 16, 19, 21):
    row(f"a reply cut short: {_cut} octets, then silence", frame=reply(data=b"abc")[:_cut])(wrong)
    row(f"a reply cut short: {_cut} octets, then FIN", frame=reply(data=b"abc")[:_cut], finish=True)(wrong)
    row(f"a reply cut short: {_cut} octets, then reset", frame=reply(data=b"abc")[:_cut], reset=True)(wrong)


@row("the peer wants more Reads than uiw's IRD: fewer, or a Terminate 2/0/06 (RFC 6581 section 9.1)")
def ird_insufficient(bench):
    call = Call(bench, 2, 2)
    call.peer.send(reply(ird=2, ord_=100))
    term = call.peer.terminated()
    check(term.error == 0x2006 and not (term.m or term.d or term.r), f"{term}")
    call.peer.gone()
    call.failed()


def rtr(bench, kind):
    """The reply picks an RTR: the initiator sends it at once, before anything of its consumer."""
    call = Call(bench, UIW_CRC="on")
    frame = call.request
    offered = {"send": frame.ird & RTR_SEND, "write": frame.ord & RTR_WRITE, "read": frame.ord & RTR_READ}
    call.peer.send(reply(ird=4 | PEER_TO_PEER | (RTR_SEND if kind == "send" else 0),
                         ord_=4 | {"write": RTR_WRITE, "read": RTR_READ}.get(kind, 0)))
    if not frame.ird & PEER_TO_PEER:  # then a reply with A is a fault of the peer: an end, or client-server
        event = call.sut.wait(lambda: call.sut.events.pop(0) if call.sut.events else None, 15, "any end")
        check(event.name in FAILED | {"ESTABLISHED"}, f"{event}")
        return
    if not kind or not offered[kind]:
        term = call.peer.terminated()
        check(term.error == 0x2007 and not (term.m or term.d or term.r), f"{term}")
        call.peer.gone()
        call.failed()
        return
    segment = call.peer.segment()
    if kind == "send":
        check((segment.opcode, segment.qn, segment.msn, segment.payload) == (wire.SEND, 0, 1, b""), f"{segment}")
    elif kind == "write":
        check((segment.opcode, segment.payload) == (wire.WRITE, b""), f"{segment}")
    else:
        request = wire.read_fields(segment)
        check((segment.msn, request.size) == (1, 0), f"{segment} {request}")
        call.peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag, request.sink_to))
    call.established()
    call.sut.nothing(0.1)  # the RTR is no work of the consumer's
    call.sut.memory("m", 4096, "lrw", seed=3)
    call.sut.post("call", 1, "send", "m:0:10")
    first, payload = call.peer.message(wire.SEND)
    check(payload == pattern(3, 10) and first.msn == (2 if kind == "send" else 1), f"{first}")
    call.sut.completion(1)
    call.sut.post("call", 2, "read", "m:0:4", rkey=1, addr=2)
    segment = call.peer.segment()
    check(segment.msn == (2 if kind == "read" else 1), f"{segment}")
    request = wire.read_fields(segment)
    call.peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag, request.sink_to, b"abcd"))
    call.sut.completion(2)
    call.works()


for _kind in ("send", "write", "read", None):
    row(f"peer-to-peer: the reply picks {_kind or 'no RTR'}", kind=_kind)(rtr)


@row("peer-to-peer offered, client-server answered: uiw speaks first when it has something to say")
def client_server(bench):
    call = Call(bench)
    call.peer.send(reply())
    call.established()
    call.peer.quiet(0.2)
    call.works()


if __name__ == "__main__":
    sys.exit(main())
