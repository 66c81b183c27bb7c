# SPDX-License-Identifier: MIT
"""Markers (RFC 5044 section 4.3) in either direction: those that a peer asks uiw for, and those that UIW_MARKERS asks
the peer for."""

import itertools
import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import Session, check, main, row
from peer.wire import MARKERS, READ_RESPONSE, SEND, WRITE, pattern

SIZE = 1 << 20
EACH_PLACE = set(range(0, 512, 4)) - {4}  # behind a marker there is always something of the same FPDU
WHO = {"the peer asks": (MARKERS, "off"), "uiw asks": (0, "on"), "both ask": (MARKERS, "on")}


def prepare(session):
    session.sut.memory("m", SIZE, "lrw", seed=17)
    session.sut.memory("in", SIZE, "l", seed=29)


def session_of(bench, who, **more):
    peer, own = WHO[who]
    session = Session(bench, before=prepare, env={"UIW_MARKERS": own}, reserved=peer, **more)
    check((session.peer.marked, session.peer.marks) == (bool(peer), own == "on"), "what the start-up frames ask for")
    return session, session.sut, session.peer


def both_ways(bench, who, crc, initiator):
    """FPDUs of all lengths from 20 octets on, and then some that begin at each distance from a marker, so that the first
    marker in an FPDU stands at each offset that it can have."""
    session, sut, peer = session_of(bench, who, crc=crc, initiator=initiator)
    if not initiator:
        session.alive()
    memory = sut.memories["m"]
    begun_out, begun_in = {0}, {0}  # places of the marker in front, from which FPDUs began
    for number in range(428):
        size = number * 7 % 531 if number < 300 else 512 - 4 - 4 - 2 - 18 - 4
        begun_out.add(peer.octets_out % 512)
        begun_in.add(peer.octets_in % 512)
        sut.recv(session.conn, number, f"in:0:{size or 1}")
        session.send(pattern(number, size))
        wc = sut.completion(number)
        check(wc.length == size, f"{wc}: {wc.length} octets")
        check(sut.memories["in"].dump(0, size) == pattern(number, size) if size else True, f"Send {number}")
        sut.post(session.conn, number, "send", f"m:{number}:{size}")
        check(peer.message(SEND)[1] == pattern(17 + number, size), f"Send {number} of uiw")
        sut.completion(number)
    check(peer.octets_in > 64 * 512 and peer.octets_out > 64 * 512, "too few markers")
    for way, begun, marked in (("out", begun_out, peer.marks), ("in", begun_in, peer.marked)):
        missing = EACH_PLACE - begun
        check(not marked or not missing, f"{way}: no FPDU begins at {missing}")
    peer.fpdu(wire.read_request(session.read_msn, 5, 6, SIZE, memory.rkey, memory.addr))
    check(peer.message(READ_RESPONSE)[1] == pattern(17, SIZE), "the answer to a Read")
    peer.send_message(WRITE, pattern(3, SIZE), 20011, stag=memory.rkey, to=memory.addr)
    sut.recv(session.conn, 1000, "in:0:10")
    session.send(b"end")
    sut.completion(1000)
    check(memory.dump(0, SIZE) == pattern(3, SIZE), "a long Write")
    session.hang_up()


for _who, _crc, _initiator in itertools.product(WHO, (True, False), (True, False)):
    row(f"markers: {_who}, CRC {'on' if _crc else 'off'}, uiw {'calls' if _initiator else 'is called'}",
        who=_who, crc=_crc, initiator=_initiator)(both_ways)


@row("markers: every segmentation of the stream", crc=True)
@row("markers: every segmentation of the stream, CRC off", crc=False)
def segmentation(bench, crc):
    session, sut, peer = session_of(bench, "uiw asks", crc=crc)
    memory = sut.memories["m"]
    for number, piece in enumerate((None, 1, 2, 3, 4, 5, 7, 13, 64, 508, 509, 511, 512, 513, 1021), 1):
        sut.recv(session.conn, number, "in:0:1000")
        octets = b"".join(peer.frame(ulpdu) for ulpdu in (
            wire.tagged(WRITE, memory.rkey, memory.addr + 100, pattern(number, 700), False),
            wire.tagged(WRITE, memory.rkey, memory.addr + 800, pattern(2, 1)),
            wire.untagged(SEND, 0, number, 0, pattern(number + 1, 501), False),
            wire.untagged(SEND, 0, number, 501, pattern(4, 2))))
        peer.send(octets, piece)
        check(sut.completion(number).length == 503, "the Send")
        check(sut.memories["in"].dump(0, 503) == pattern(number + 1, 501) + pattern(4, 2), "the Send")
        check(memory.dump(100, 701) == pattern(number, 700) + pattern(2, 1), "the Write")
    session.hang_up()


@row("markers: the peer-to-peer initiator's first FPDU has the first one", kind="write")
@row("markers: the peer-to-peer initiator's first FPDU has the first one, a Read", kind="read")
def first(bench, kind):
    session, sut, peer = session_of(bench, "both ask", initiator=True, p2p=kind)
    segment = peer.segment()
    check(segment.opcode == {"write": WRITE, "read": wire.READ_REQUEST}[kind], f"{segment}")
    check(peer.record[-1][1][:4] == bytes(4), "the first octets are no marker")
    if kind == "read":
        request = wire.read_fields(segment)
        peer.fpdu(wire.tagged(READ_RESPONSE, request.sink_stag, request.sink_to))
    sut.post(session.conn, 1, "send", "m:0:2000")
    check(peer.message(SEND)[1] == pattern(17, 2000), "the Send behind it")


def wrong_marker(bench, crc, before):
    """A marker that points elsewhere: Terminate LLP, MPA error 3; nothing of the FPDU is placed."""
    session, sut, peer = session_of(bench, "both ask", crc=crc)
    memory = sut.memories["m"]
    peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, pattern(1, before)))
    peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + 1000, pattern(2, 600)), wrong=8)
    peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + 3000, pattern(3, 600)))
    term = peer.terminates({0x2003})
    check(not (term.m or term.d or term.r), f"{term}")
    session.down()
    check(memory.dump(0, before) == pattern(1, before), "the Write before it")
    memory.untouched((0, before))


for _crc, _before in itertools.product((True, False), (20, 300, 478)):
    row(f"markers: a wrong FPDUPTR behind {_before} octets, CRC {'on' if _crc else 'off'}",
        crc=_crc, before=_before)(wrong_marker)


@row("markers: the CRC covers them")
def crc_covers(bench):
    session, sut, peer = session_of(bench, "uiw asks", crc=True)
    memory = sut.memories["m"]
    octets = bytearray(peer.frame(wire.tagged(WRITE, memory.rkey, memory.addr, pattern(2, 600))))
    octets[513] ^= 1  # a reserved bit of the second marker
    peer.send(bytes(octets))
    peer.terminates({0x2002})
    session.down()
    memory.untouched()


def terminate(bench, crc):
    session, sut, peer = session_of(bench, "the peer asks", crc=crc)
    session.alive()
    for number in range(40):  # so that one stands in the Terminate
        sut.post(session.conn, number, "send", f"m:0:{number * 5}")
        peer.message(SEND)
    while peer.octets_in % 512 < 480:
        sut.post(session.conn, 99, "send", "m:0:0")
        peer.message(SEND)
    peer.fpdu(wire.tagged(WRITE, 1, 2, b"to nowhere"))
    peer.terminates({0x1100})
    session.down()


row("markers: a Terminate has them too", crc=True)(terminate)
row("markers: a Terminate has them too, CRC off", crc=False)(terminate)


def follows_mss(bench, mss):
    """MULPDU = EMSS - (6 + 4 * ceil(EMSS / 512) + EMSS mod 4) at most (RFC 5044 section 4.5)."""
    session, sut, peer = session_of(bench, "the peer asks", initiator=True, mss=mss, crc=False)
    effective = min(peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG), mss)
    sut.post(session.conn, 1, "write", "m:0:30000", rkey=1, addr=1)
    before, total, longest, most = peer.octets_in, 0, 0, 0
    while total < 30000:
        ulpdu = peer.fpdu_raw()[0]
        longest, before = max(longest, peer.octets_in - before), peer.octets_in
        most = max(most, len(ulpdu))
        total += len(ulpdu) - 14
    check(longest <= effective, f"FPDUs of up to {longest} octets, EMSS {effective}")
    check(most >= effective - 100, f"ULPDUs of only {most} octets, EMSS {effective}")


for _mss in (536, 1000, 1460):
    row(f"markers: MULPDU follows a TCP MSS of {_mss}", mss=_mss)(follows_mss)


@row("markers: the largest UIW_MULPDU")
def longest(bench):
    session = Session(bench, initiator=True, before=prepare, reserved=MARKERS, env={"UIW_MULPDU": "64768"})
    session.sut.post("call", 1, "write", "m:0:300000", rkey=1, addr=1)
    check(session.peer.message(WRITE)[1] == pattern(17, 300000), "the Write")


@row("without UIW_MARKERS uiw asks for none", initiator=True)
@row("without UIW_MARKERS uiw asks for none, as responder", initiator=False)
def none(bench, initiator):
    session = Session(bench, initiator=initiator, before=prepare)
    check(not session.peer.marks, "markers are asked for")


if __name__ == "__main__":
    sys.exit(main())
