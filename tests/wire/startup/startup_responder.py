# SPDX-License-Identifier: MIT
"""MPA start-up with uiw as the responder (RFC 5044 section 7.1, RFC 6581): the peer calls."""

import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.called import accept, call, establish, listening, refused, serves, silent, works
from peer.sut import Session, check, main, row
from peer.wire import (CRC, DEPTH, ENHANCED, PEER_TO_PEER, REJECT, REPLY, REQUEST, RTR_READ, RTR_SEND,
                       RTR_WRITE, Peer, enhanced, pattern, startup)

LENGTHS = (0, 1, 2, 3, 4, 5, 20, 63, 64, 127, 128, 195, 196, 197, 200, 254, 255)


@row("revision 1: the octets of the reply")
def revision1(bench):
    sut, port = listening(bench, UIW_CRC="on")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC, 1, b"hello"))
    check(event.private == b"hello", f"private data {event.private}")
    peer.quiet(0.1)  # the responder says nothing before its consumer has answered
    frame = establish(sut, peer, event, data=b"world".hex())
    check(frame.raw == b"MPA ID Rep Frame\x40\x01\x00\x05world", f"{frame.raw}")


@row("revision 2: the octets of the reply; IRD and ORD of both sides")
def revision2(bench):
    sut, port = listening(bench, UIW_CRC="on")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(7, 5, b"hello")))
    check(event.private == b"hello", f"private data {event.private}")
    frame = establish(sut, peer, event, ird=6, ord_=3, data=b"world".hex())
    check(frame.raw == b"MPA ID Rep Frame\x50\x02\x00\x09\x00\x06\x00\x03world", f"{frame.raw}")
    # rdma_get_cm_event(3): responder_resources is the peer's ORD, initiator_depth the peer's IRD.
    check((event.responder_resources, event.initiator_depth) == (5, 7),
          f"responder_resources {event.responder_resources}, initiator_depth {event.initiator_depth}")


@row("revision 2 without the S flag: no enhanced header in either frame")
def revision2_plain(bench):
    sut, port = listening(bench, UIW_CRC="on")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC, 2, b"hello"))
    check(event.private == b"hello", f"private data {event.private}")
    frame = establish(sut, peer, event, data=b"world".hex())
    check(frame.revision == 2 and frame.private.endswith(b"world"), f"{frame.raw}")
    check(not frame.flags & ENHANCED, "the reply has an enhanced header that the request did not")


@row("IRD and ORD not negotiated (0x3FFF)")
def not_negotiated(bench):
    sut, port = listening(bench)
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(DEPTH, DEPTH)))
    frame = establish(sut, peer, event)
    check(frame.ird & DEPTH >= 1 and not frame.flags & REJECT, f"{frame.raw}")


@row("the ORD of the reply is within the IRD of the request")
def ord_limited(bench):
    sut, port = listening(bench)
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(2, 2)))
    accept(sut, event, ird=8, ord_=8)
    frame = peer.startup()
    check(frame.ord & DEPTH <= 2, f"ORD {frame.ord & DEPTH}")
    sut.event("ESTABLISHED")


@row("private data of every length, both ways, unchanged", revision=1)
@row("private data of every length, both ways, unchanged: revision 2", revision=2)
def private_data(bench, revision):
    sut, port = listening(bench)
    for length in LENGTHS:
        data = pattern(length, length)
        sent = data if revision == 1 else enhanced(4, 4, data)
        flags = CRC | (ENHANCED if revision == 2 else 0)
        peer, event = call(bench, sut, port, startup(REQUEST, flags, revision, sent))
        check(event.private == data, f"{length} octets of private data became {event.private.hex()}")
        back = pattern(100 + length, length)
        frame = establish(sut, peer, event, data=back.hex() or "-")
        check(frame.private == back, f"{length} octets of private data came back as {frame.private.hex()}")
        peer.close(reset=True)
        sut.event("DISCONNECTED")


@row("more private data than rdma_cm can carry (255): the first 255 octets, or refused")
def private_long(bench):
    sut, port = listening(bench)
    for length in (256, 257, 300, 507, 508):
        data = pattern(length, length)
        peer = Peer.call(port)
        bench.closers.append(peer.close)
        peer.send(startup(REQUEST, CRC | ENHANCED, 2, enhanced(4, 4, data)))
        sut.wait(lambda: True if sut.events or not silent(peer) else None, 15, f"{length} octets: any answer")
        offered = bool(sut.events)
        if offered:
            event = sut.event("CONNECT_REQUEST")
            check(data.startswith(event.private) and len(event.private) >= 255 or length == 256,
                  f"{length} octets became {len(event.private)}")
            establish(sut, peer, event)
        peer.close(reset=True)
        if offered:
            sut.event("DISCONNECTED")


@row("a rejection carries private data and the R flag; the stream is closed", revision=1)
@row("a rejection carries private data and the R flag; the stream is closed: revision 2", revision=2)
def reject(bench, revision):
    sut, port = listening(bench)
    for length in (0, 1, 64, 255):
        data = pattern(length, length)
        peer, event = call(bench, sut, port, startup(REQUEST, CRC | (ENHANCED if revision == 2 else 0), revision,
                                                     enhanced(4, 4) if revision == 2 else b""))
        sut.command(f"reject {event.conn} {data.hex() or '-'}")
        frame = peer.startup()
        check(frame.key == REPLY and frame.flags & REJECT and frame.revision == revision, f"{frame.raw}")
        check(frame.private == data, f"private data {frame.private.hex()}")
        peer.gone()
    sut.nothing(0.1)


@row("the CRC decision: either side asks")
def crc_decision(bench):
    for setting, asked in (("off", False), ("off", True), ("on", False), ("on", True), ("auto", True),
                           ("auto", False)):
        sut, port = listening(bench, UIW_CRC=setting)
        peer, event = call(bench, sut, port, startup(REQUEST, (CRC if asked else 0) | ENHANCED, 2, enhanced(4, 4)))
        memory = sut.memory("m", 4096, "lrw", seed=5)
        accept(sut, event)
        frame = peer.startup()
        own = bool(frame.flags & CRC)
        # A responder that is asked may say so in its flag or not: RFC 5044 decides on either flag. "auto" trusts only
        # callers that it finds on this host, and this one is no uiw.
        check(setting == "off" or own, f"UIW_CRC={setting}: the reply does not ask for CRC")
        check(setting != "off" or asked or not own, f"UIW_CRC={setting}: the reply asks for CRC")
        peer.crc = own or asked
        sut.event("ESTABLISHED")
        peer.fpdu(wire.read_request(1, 1, 2, 100, memory.rkey, memory.addr))
        first, payload = peer.message(wire.READ_RESPONSE)
        check(payload == pattern(5, 100), "Read")
        # With CRC a wrong one ends the stream, without it no value of the field matters.
        peer.fpdu(wire.tagged(wire.WRITE, memory.rkey, memory.addr, b"new"), damage=0x5A5A5A5A)
        if peer.crc:
            check(peer.terminated().error == 0x2002, "a wrong CRC passes")
            memory.untouched()
        else:
            peer.fpdu(wire.read_request(2, 1, 2, 3, memory.rkey, memory.addr))
            check(peer.message(wire.READ_RESPONSE)[1] == b"new", "with CRC off the CRC field counts")
        sut.quit()


@row("with CRC off the CRC field is sent as zero")
def crc_zero(bench):
    session = Session(bench, crc=False)
    session.peer.fpdu(wire.read_request(1, 1, 2, 0, 0, 0))
    _, _, trailer = session.peer.fpdu_raw()
    check(trailer == bytes(4), f"CRC field {trailer.hex()}")


@row("reserved flags of the request are ignored")
def reserved_flags(bench):
    sut, port = listening(bench)
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | 0x0F, 1))
    frame = establish(sut, peer, event)
    check(not frame.flags & REJECT, "rejected")


@row("the request octet by octet")
def octet_by_octet(bench):
    sut, port = listening(bench)
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(4, 4, b"slow")), 1, 0.002)
    check(event.private == b"slow", f"{event.private}")
    establish(sut, peer, event)


def early(bench):
    """A request with an FPDU right behind it, which RFC 5044 forbids: an RDMA Write, which waits for the program."""
    sut, port = listening(bench)
    memory = sut.memory("m", 4096, "lrw", seed=5)
    frame = startup(REQUEST, CRC, 1) + wire.fpdu(wire.tagged(wire.WRITE, memory.rkey, memory.addr, b"early"))
    peer, event = call(bench, sut, port, frame)
    memory.untouched()  # nothing is placed before the consumer has accepted
    return sut, port, memory, peer, event


@row("request and first FPDU in one TCP segment, rejected: it is not placed, and others are served")
def early_rejected(bench):
    sut, port, memory, peer, event = early(bench)
    sut.command(f"reject {event.conn} -")
    check(peer.startup().flags & REJECT, "not rejected")
    peer.gone()
    serves(bench, sut, port)
    memory.untouched()


@row("request and first FPDU in one TCP segment, accepted: it is placed then")
def early_accepted(bench):
    sut, _, memory, peer, event = early(bench)
    establish(sut, peer, event)
    check(memory.dump(0, 5) == b"early", "the Write has not been placed")
    memory.untouched((0, 5))


# ---- frames that are wrong -------------------------------------------------------------------------------------------

WRONG = [
    ("the key of a reply", startup(REPLY, CRC, 1)),
    ("one octet of the key wrong", startup(b"MPA ID Req Fram\0", CRC, 1)),
    ("garbage", bytes(range(1, 200))),
    ("zeros", bytes(600)),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("revision 0", startup(REQUEST, CRC, 0)),
    ("PD_Length 513", startup(REQUEST, CRC, 1, bytes(513))),
    ("PD_Length 65535", startup(REQUEST, CRC, 1, bytes(2000), 65535)),
    ("PD_Length 513, revision 2", startup(REQUEST, CRC | ENHANCED, 2, enhanced(4, 4, bytes(509)))),
    ("the S flag and less private data than the enhanced header", startup(REQUEST, CRC | ENHANCED, 2, b"\0\4")),
]
for _name, _frame in WRONG:
    row(f"refused: {_name}", frame=_frame)(refused)
row("refused: revision 3 (a rejection of revision 1 or 2, or closed)", frame=startup(REQUEST, CRC, 3))(refused)
row("refused: revision 255", frame=startup(REQUEST, CRC, 255))(refused)
for _cut in (0, 1, 15, 16, 17, 19):
    row(f"refused: {_cut} octets, then silence until the deadline", frame=startup(REQUEST, CRC, 1)[:_cut])(refused)
    row(f"refused: {_cut} octets, then FIN", frame=startup(REQUEST, CRC, 1)[:_cut], finish=True)(refused)
row("refused: private data cut short, then silence", frame=startup(REQUEST, CRC, 1, b"abc", 10))(refused)
row("refused: private data cut short, then FIN", frame=startup(REQUEST, CRC, 1, b"abc", 10), finish=True)(refused)


@row("refused: one octet at a time for ever; the deadline is for the whole frame")
def trickle(bench):
    sut, port = listening(bench, UIW_STARTUP_TIMEOUT="600")
    peer = Peer.call(port)
    bench.closers.append(peer.close)
    began = time.monotonic()
    frame = startup(REQUEST, CRC, 1, bytes(512))
    try:
        for octet in frame:
            peer.send(bytes([octet]))
            time.sleep(0.03)
            if not silent(peer):
                break
    except (BrokenPipeError, ConnectionResetError):
        pass
    check(time.monotonic() - began < 5, "the deadline begins anew with every octet")
    sut.nothing(0.05)


@row("a program that does not answer: the request outlives the start-up deadline, or is ended")
def slow_consumer(bench):
    sut, port = listening(bench, UIW_STARTUP_TIMEOUT="300")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC, 1))
    time.sleep(1)
    sut.command(f"qp {event.conn}")
    try:
        sut.command(f"accept {event.conn} 4 4 -")
        peer.startup()
        sut.event("ESTABLISHED")
    except wire.Failure:
        sut.quit()


@row("a hundred peers that send nothing do not keep others out")
def silent_crowd(bench):
    sut, port = listening(bench, UIW_STARTUP_TIMEOUT="2000")
    crowd = [Peer.call(port) for _ in range(100)]
    for peer in crowd:
        bench.closers.append(peer.close)
    peer, event = serves(bench, sut, port)
    for silent in crowd:
        silent.gone(10)
    works(sut, peer, event.conn, 2)


# ---- who may speak first ---------------------------------------------------------------------------------------------


def silent_first(bench, revision):
    session = Session(bench, revision=revision, env={"UIW_FIRST_MESSAGE": "initiator"},
                      before=lambda session: session.sut.memory("m", 4096, "lrw", seed=3))
    session.sut.post(session.conn, 1, "send", "m:0:10")
    session.sut.post(session.conn, 2, "write", "m:0:10", rkey=1, addr=1)
    session.sut.post(session.conn, 3, "read", "m:0:10", rkey=1, addr=1)
    session.peer.quiet(0.3)
    session.peer.fpdu(wire.tagged(wire.WRITE, session.sut.memories["m"].rkey, session.sut.memories["m"].addr, b"x"))
    check(session.peer.message(wire.SEND)[0].msn == 1, "Send after the first FPDU")
    check(session.peer.message(wire.WRITE)[1][1:] == pattern(4, 9), "Write after the first FPDU")
    check(session.peer.segment().opcode == wire.READ_REQUEST, "Read after the first FPDU")
    session.sut.completion(1)
    session.sut.completion(2)


row("responder sends nothing before the first FPDU of the initiator: revision 1", revision=1)(silent_first)
row("responder sends nothing before the first FPDU of the initiator: revision 2", revision=2)(silent_first)


@row("by default the responder speaks once its reply has arrived: revision 1, no peer-to-peer mode", revision=1)
@row("by default the responder speaks once its reply has arrived: revision 2, no peer-to-peer mode", revision=2)
def speaks_first(bench, revision):
    session = Session(bench, revision=revision, before=lambda session: session.sut.memory("m", 4096, "lrw", seed=3))
    session.sut.post(session.conn, 1, "send", "m:0:10")
    check(session.peer.message(wire.SEND)[1] == pattern(3, 10), "the responder's Send")
    session.sut.completion(1)
    # And a responder that has sent answers as before.
    session.sut.post(session.conn, 2, "write", "m:0:10", rkey=1, addr=1)
    check(session.peer.message(wire.WRITE)[1] == pattern(3, 10), "the responder's Write")
    session.sut.completion(2)


@row("in peer-to-peer mode the responder waits for the ready-to-receive message")
def waits_for_ready(bench):
    sut, port = listening(bench, UIW_CRC="on")
    frame = startup(REQUEST, CRC | ENHANCED, 2, enhanced(4 | wire.PEER_TO_PEER, 4 | RTR_WRITE))
    peer, event = call(bench, sut, port, frame)
    sut.memory("m", 4096, "lrw", seed=3)
    accept(sut, event)
    peer.startup()
    sut.post(event.conn, 1, "send", "m:0:10")
    peer.quiet(0.3)
    peer.fpdu(wire.tagged(wire.WRITE, 0, 0))
    check(peer.message(wire.SEND)[1] == pattern(3, 10), "the responder's Send")


@row("a first Send that waits for a receive is heard: the responder may speak", p2p=False)
@row("a first Send in the place of an RDMA Write as RTR waits for a receive, and is heard", p2p=True)
def first_send_waits(bench, p2p):
    sut, port = listening(bench, UIW_CRC="on", UIW_FIRST_MESSAGE="initiator")
    frame = startup(REQUEST, CRC | ENHANCED, 2, enhanced(4 | (PEER_TO_PEER if p2p else 0), 4 | (RTR_WRITE if p2p else 0)))
    peer, event = call(bench, sut, port, frame)
    sut.memory("m", 4096, "lrw", seed=3)
    accept(sut, event)
    peer.startup()
    sut.post(event.conn, 1, "send", "m:0:10")
    peer.quiet(0.2)
    peer.fpdu(wire.untagged(wire.SEND, 0, 1, 0, b"hello"))
    sut.event("ESTABLISHED")
    check(peer.message(wire.SEND)[1] == pattern(3, 10), "the responder's Send")
    sut.completion(1)
    sut.recv(event.conn, 2, "m:1000:100")
    check(sut.completion(2).length == 5 and sut.memories["m"].dump(1000, 5) == b"hello", "the Send")


def rtr_choice(bench, asked, answered, ird=4):
    """The enhanced header of the reply, octet by octet (RFC 6581 section 9)."""
    sut, port = listening(bench, UIW_CRC="on")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(*asked)))
    accept(sut, event, ird=ird)
    frame = peer.startup()
    check((frame.ird, frame.ord) == answered, f"{frame.ird:04x} {frame.ord:04x}, not {answered[0]:04x} {answered[1]:04x}")
    if not answered[0] & PEER_TO_PEER:
        sut.event("ESTABLISHED")
    elif answered[1] & RTR_WRITE:
        peer.fpdu(wire.tagged(wire.WRITE, 0, 0))
        sut.event("ESTABLISHED")


for _name, _asked, _answered, _ird in (
        ("all are offered: RDMA Write", (0xC004, 0xC004), (0x8004, 0x8004), 4),
        ("RDMA Read alone", (0x8004, 0x4004), (0x8004, 0x4004), 4),
        ("Send alone", (0xC004, 0x0004), (0xC004, 0x0004), 4),
        ("RDMA Read alone, and no room for one", (0x8004, 0x4004), (0x0000, 0x0004), 0),
        ("none", (0x8004, 0x0004), (0x0004, 0x0004), 4),
        ("all, but no peer-to-peer mode", (0x4004, 0xC004), (0x0004, 0x0004), 4)):
    row(f"the reply's choice of an RTR: {_name}", asked=_asked, answered=_answered, ird=_ird)(rtr_choice)


def depths(bench, asked, own, answered, told):
    sut, port = listening(bench, UIW_CRC="on")
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(*asked)))
    check((event.responder_resources, event.initiator_depth) == told,
          f"the event says {event.responder_resources} and {event.initiator_depth}, not {told}")
    accept(sut, event, *own)
    frame = peer.startup()
    check((frame.ird, frame.ord) == answered, f"{frame.ird:04x} {frame.ord:04x}, not {answered[0]:04x} {answered[1]:04x}")
    sut.event("ESTABLISHED")


# Asked with, own IRD and ORD, answered with, and what the consumer hears: the peer's ORD, which is what this end has to
# take, and the peer's IRD.
for _asked, _own, _answered, _told in (
        ((0, 0), (4, 4), (4, 0), (0, 0)), ((1, 1), (4, 4), (4, 1), (1, 1)), ((2, 2), (8, 8), (8, 2), (2, 2)),
        ((0x80, 0x80), (4, 4), (4, 4), (128, 128)), ((0x3FFE, 0x3FFE), (4, 4), (4, 4), (128, 128)),
        ((DEPTH, DEPTH), (4, 4), (DEPTH, DEPTH), (128, 128)),
        ((DEPTH, DEPTH), (128, 128), (DEPTH, DEPTH), (128, 128)), ((2, DEPTH), (4, 4), (DEPTH, 2), (128, 2)),
        ((DEPTH, 2), (4, 4), (4, DEPTH), (2, 128))):
    row(f"IRD {_asked[0]:#x} and ORD {_asked[1]:#x} asked, own {_own[0]} and {_own[1]}", asked=_asked, own=_own,
        answered=_answered, told=_told)(depths)


def rtr(bench, offered, kinds, revision_flags=PEER_TO_PEER):
    """Peer-to-peer: the reply picks one of the offered RTRs, the responder speaks only after it."""
    sut, port = listening(bench, UIW_CRC="on")
    ird = 4 | revision_flags | (RTR_SEND if "send" in offered else 0)
    ord_ = 4 | (RTR_WRITE if "write" in offered else 0) | (RTR_READ if "read" in offered else 0)
    peer, event = call(bench, sut, port, startup(REQUEST, CRC | ENHANCED, 2, enhanced(ird, ord_, b"pd")))
    check(event.private == b"pd", f"{event.private}")
    sut.memory("m", 4096, "lrw", seed=3)
    sut.command(f"qp {event.conn}")
    sut.recv(event.conn, 1, "m:0:100")
    sut.command(f"accept {event.conn} 4 4 -")
    frame = peer.startup()
    check(frame.ird & PEER_TO_PEER, "the reply does not take up peer-to-peer mode")
    picked = [kind for kind, on in (("send", frame.ird & RTR_SEND), ("write", frame.ord & RTR_WRITE),
                                    ("read", frame.ord & RTR_READ)) if on]
    check(picked, "the reply picks no RTR")
    check(set(picked) <= set(offered), f"the reply picks {picked} of {offered}")
    for kind in picked:
        check(kind in kinds, kind)
    sut.post(event.conn, 2, "send", "m:0:10")
    peer.quiet(0.3)
    kind = picked[0]
    if kind == "write":
        peer.fpdu(wire.tagged(wire.WRITE, 0, 0))
    elif kind == "read":
        peer.fpdu(wire.read_request(1, 0x11, 0x22, 0, 0, 0))
    else:
        peer.fpdu(wire.untagged(wire.SEND, 0, 1))
    opcodes = []
    for _ in range(2 if kind == "read" else 1):
        segment = peer.segment()
        opcodes.append(segment.opcode)
        if segment.opcode == wire.SEND:
            check(segment.msn == 1 and segment.payload == pattern(3, 10), f"{segment}")
    check(sorted(opcodes) == ([wire.READ_RESPONSE, wire.SEND] if kind == "read" else [wire.SEND]), f"{opcodes}")
    sut.event("ESTABLISHED")
    sut.completion(2)
    works(sut, peer, event.conn, 2 if kind == "read" else 1)
    # The RTR is not the consumer's: its receive still waits for the first real Send.
    sut.nothing(0.1)
    peer.send_message(wire.SEND, b"real", msn=2 if kind == "send" else 1)
    check(sut.completion(1).length == 4, "the first Send")


ALL = ("send", "write", "read")
row("peer-to-peer: RTR of every kind offered", offered=ALL, kinds=ALL)(rtr)
row("peer-to-peer: RTR a zero-length Write", offered=("write",), kinds=ALL)(rtr)
row("peer-to-peer: RTR a zero-length Read", offered=("read",), kinds=ALL)(rtr)
row("peer-to-peer: RTR a zero-length Send", offered=("send",), kinds=ALL)(rtr)


@row("peer-to-peer with no RTR offered: an answer or an end, then others are served")
def rtr_none(bench):
    sut, port = listening(bench, UIW_STARTUP_TIMEOUT="1000")
    peer = Peer.call(port)
    bench.closers.append(peer.close)
    peer.send(startup(REQUEST, CRC | ENHANCED, 2, enhanced(4 | PEER_TO_PEER, 4)))
    sut.wait(lambda: True if sut.events or not silent(peer) else None, 15, "any answer")
    offered = bool(sut.events)
    if offered:
        accept(sut, sut.event("CONNECT_REQUEST"))
    peer.close(reset=True)
    while offered:  # its last event says that it has failed, or ended after it stood
        offered = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "the end").name == "ESTABLISHED"
    serves(bench, sut, port)


@row("IPv6")
def ipv6(bench):
    session = Session(bench, address="::1", before=lambda session: session.sut.memory("m", 4096, "lrw", seed=3))
    session.alive()
    session.hang_up()


if __name__ == "__main__":
    sys.exit(main())
