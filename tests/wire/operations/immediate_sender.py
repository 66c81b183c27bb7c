# SPDX-License-Identifier: MIT
"""What RDMA Write with immediate of the verbs is on the wire: an RDMA Write and, with nothing between them, Immediate
Data (RFC 7306 section 6)."""

import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import (FAR, FAR_ADDRESS, FLUSHED, LOC_ACCESS_ERR, LOC_LEN_ERR, LOC_PROT_ERR, SIZES, WC_WRITE, Responder,
                      check, fpdu_comes, main, outgoing, post_in_turn, row)
from peer.wire import (ATOMIC_REQUEST, ATOMIC_RESPONSE, IMMEDIATE, IMMEDIATE_SE, READ_REQUEST, READ_RESPONSE, SEND,
                       SEND_INV, WRITE, immediate_octets, pattern, verbs_immediate)


def expect(peer, msn, payload, value, se=False, stag=FAR, to=FAR_ADDRESS):
    """An RDMA Write, and with nothing between them its Immediate Data."""
    first, written = peer.message(WRITE)
    check(first.to == to and (first.stag == stag or not payload), f"the Write goes elsewhere: {first}")
    check(written == payload, f"the Write carries {len(written)} octets, not those {len(payload)} that were posted")
    segment = peer.segment()
    octets = immediate_octets(segment, se)
    check(segment.msn == msn, f"MSN {segment.msn} where {msn} is due on queue 0")
    check(octets == verbs_immediate(value), f"Immediate Data {octets.hex()}, not {verbs_immediate(value).hex()}")


@row("the octets of a Write and of its Immediate Data, all of them")
def octets_out(bench):
    for flags, control in (("-", "48"), ("s", "49")):
        session, sut, peer = outgoing(bench)
        sut.command("poke m 0 0102030405")
        sut.post("call", 1, "write_imm", "m:0:5", rkey=0x01020304, addr=0x1122334455667788, imm=0xA1B2C3D4, flags=flags)
        for want in ("0013" "c1" "40" "01020304" "1122334455667788" "0102030405" "000000",
                     "001a" "41" + control + "00000000" "00000000" "00000001" "00000000" "a1b2c3d4" "00000000"):
            want = bytes.fromhex(want)
            fpdu_comes(peer, want)
        sut.quit()


def sizes_out(bench, crc, mulpdu):
    session, sut, peer = outgoing(bench, crc=crc, env={"UIW_MULPDU": mulpdu} if mulpdu else None)
    for number, size in enumerate(SIZES, 1):
        sut.post("call", number, "write_imm", f"m:{number}:{size}", rkey=FAR, addr=FAR_ADDRESS + number, imm=number)
        expect(peer, number, pattern(11 + number, size), number, to=FAR_ADDRESS + number)
        wc = sut.completion(number)
        check(wc.opcode == WC_WRITE, f"{wc}")
    sut.nothing(0.05)
    session.hang_up()


row("Write with immediate of every size, also of no octets: one completion each", crc=True, mulpdu=None
    )(sizes_out)
row("Write with immediate of every size, CRC off", crc=False, mulpdu=None)(sizes_out)
row("Write with immediate of every size, small FPDUs", crc=True, mulpdu="256")(sizes_out)


@row("a Write of no octets is sent too: the receiver reports the length of the Write just before")
def zero_length_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "write", "m:0:100", rkey=FAR, addr=FAR_ADDRESS)
    sut.post("call", 2, "write_imm", rkey=FAR, addr=FAR_ADDRESS, imm=2)
    sut.post("call", 3, "write_imm", "m:5:0", rkey=FAR, addr=FAR_ADDRESS, imm=3)
    sut.post("call", 4, "write_imm", "m:5:0", rkey=FAR, addr=FAR_ADDRESS, imm=4, flags="i")
    check(len(peer.message(WRITE)[1]) == 100, "the Write before")
    for msn in (1, 2, 3):
        expect(peer, msn, b"", msn + 1)
    for number in range(1, 5):
        sut.completion(number)


@row("every value of the 32 bits keeps its order")
def values_out(bench):
    session, sut, peer = outgoing(bench)
    for number, value in enumerate((0, 1, 0x01020304, 0x04030201, 0x80000000, 0xFFFFFFFF, 0x00FF00FF), 1):
        sut.post("call", number, "write_imm", "m:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=value)
        expect(peer, number, pattern(11, 8), value)
        sut.completion(number)


@row("solicited and not, by turns")
def solicited_out(bench):
    session, sut, peer = outgoing(bench)
    for number in range(1, 9):
        se = number % 3 == 0
        sut.post("call", number, "write_imm", "m:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=number, flags="s" if se else "-")
        expect(peer, number, pattern(11, 8), number, se)
        sut.completion(number)


@row("several SGEs, inline, unsignaled")
def sges_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "write_imm", "m:0:3", "m:1000:0", "m:7:500", "m:9999:77", rkey=FAR, addr=FAR_ADDRESS, imm=1)
    expect(peer, 1, pattern(11, 3) + pattern(18, 500) + pattern(10010, 77), 1)
    sut.completion(1)
    sut.post("call", 2, "write_imm", "m:5:60", "m:500:40", rkey=FAR, addr=FAR_ADDRESS, imm=2, flags="i")
    sut.command("fill m 99")  # the octets inline are those of the call
    expect(peer, 2, pattern(16, 60) + pattern(511, 40), 2)
    sut.completion(2)
    sut.command("fill m 11")
    sut.post("call", 3, "write_imm", "m:5:60", rkey=FAR, addr=FAR_ADDRESS, imm=3, flags="ius")
    sut.post("call", 4, "write_imm", "m:5:60", rkey=FAR, addr=FAR_ADDRESS, imm=4, flags="u")
    sut.post("call", 5, "send", "m:7:1")
    expect(peer, 3, pattern(16, 60), 3, True)
    expect(peer, 4, pattern(16, 60), 4)
    check(peer.message(SEND)[0].msn == 5, "the Send behind")
    sut.completion(5)
    sut.nothing()


@row("Sends and Immediate Data share the MSN of queue 0, in the order posted")
def msn_out(bench):
    session, sut, peer = outgoing(bench)
    write = ("write_imm", {"rkey": FAR, "addr": FAR_ADDRESS})
    post_in_turn(sut, [write, ("send", {}), ("send_inv", {"rkey": 5}), write])
    for number in range(1, 41):
        if number % 4 in (1, 2):
            first, payload = peer.message((SEND, SEND_INV)[number % 4 - 1])
            check((first.msn, payload) == (number, pattern(11 + number, 30)), f"message {number}: {first}")
        else:
            expect(peer, number, pattern(11 + number, 30), number)
        sut.completion(number)


class Watch:
    """Everything that uiw sends, message by message: (opcode, first segment, length). None may begin before another one
    has ended, and Immediate Data must follow its Write, which is one with STag FAR, at once."""

    def __init__(self, peer):
        self.peer, self.messages, self.write = peer, [], False

    def next(self):
        segment = first = self.peer.segment()
        length = len(segment.payload)
        check(not self.write or segment.opcode in (IMMEDIATE, IMMEDIATE_SE),
              f"between a Write and its Immediate Data: {segment}")
        check(self.write or segment.opcode not in (IMMEDIATE, IMMEDIATE_SE), f"without its Write: {segment}")
        while not segment.last:
            segment = self.peer.segment()
            check(segment.opcode == first.opcode, f"in the middle of a message of opcode {first.opcode}: {segment}")
            check((segment.stag, segment.to) == (first.stag, first.to + length) if segment.tagged else
                  (segment.msn, segment.mo) == (first.msn, length), f"in the middle of {first}: {segment}")
            length += len(segment.payload)
        self.write = first.opcode == WRITE and first.stag == FAR
        self.messages.append((first.opcode, first, length))
        return first.opcode, first


def adjacent(bench, rcvbuf, spin):
    """64 works of all kinds posted while the peer asks for Reads and atomics of its own, and reads slowly or not."""
    session, sut, peer = outgoing(bench, crc=False, rcvbuf=rcvbuf)
    big = sut.memory("big", 1 << 20, "lrwa", seed=7)
    if spin:
        sut.command("spin on")
    kinds = ("write_imm", "write", "write_imm", "read", "send", "write_imm", "fetch_add", "write_imm")
    sizes = (300000, 1 << 20, 70000, 8, 8, 0, 8, 3)
    for number in range(64):
        kind, size = kinds[number % 8], sizes[number % 8]
        rkey = FAR if kind == "write_imm" else 0x1111
        sut.post("call", number, kind, f"big:0:{size}", rkey=rkey, addr=number << 32, imm=number,
                 flags="-" if number % 3 == 2 or number == 63 else "c")
    time.sleep(0.1)
    for number in range(1, 5):
        session.read(number, number, 50000, big.rkey, big.addr)
        session.fetch_add(number, big.rkey, big.addr + (1 << 19), 0)
    watch, responder = Watch(peer), Responder(peer)
    answers, immediates = 0, []
    while len(watch.messages) < 64 + 8 + 8 * kinds.count("write_imm"):
        opcode, first = watch.next()
        if opcode == READ_REQUEST:
            responder.waiting.append(wire.read_fields(first))
            responder.answer(bytes(8))
        elif opcode == ATOMIC_REQUEST:
            responder.waiting.append(wire.atomic_fields(first))
            responder.answer(0)
        elif opcode in (READ_RESPONSE, ATOMIC_RESPONSE):
            answers += 1
        elif opcode == IMMEDIATE:
            write = watch.messages[-2]
            immediates.append((write[1].to >> 32, write[2], first.payload))
    check(answers == 8, f"{answers} answers")
    numbers = [number for number in range(64) if kinds[number % 8] == "write_imm"]
    check([number for number, _, _ in immediates] == numbers, f"Writes with immediate {immediates}")
    for number, length, octets in immediates:
        check(length == sizes[number % 8], f"work {number}: a Write of {length} octets")
        check(octets == verbs_immediate(number), f"work {number}: {octets.hex()}")
    msns = [first.msn for opcode, first, _ in watch.messages if opcode in (SEND, IMMEDIATE)]
    check(msns == list(range(1, len(msns) + 1)), f"MSNs of queue 0: {msns}")
    for number in range(64):
        sut.completion(number)
    session.hang_up()


row("nothing comes between a Write and its Immediate Data, whatever else there is to send", rcvbuf=None,
    spin=False)(adjacent)
row("nothing comes between a Write and its Immediate Data, and the peer reads slowly", rcvbuf=8192,
    spin=False)(adjacent)
row("nothing comes between a Write and its Immediate Data, a consumer that polls", rcvbuf=8192, spin=True
    )(adjacent)


@row("a big Write that the peer does not read: no completion before the Immediate Data is gone")
def big_out(bench):
    session, sut, peer = outgoing(bench, crc=False, rcvbuf=8192)
    big = sut.memory("big", 32 << 20, "l", seed=1)
    sut.post("call", 1, "write_imm", f"big:0:{big.size}", rkey=FAR, addr=FAR_ADDRESS, imm=0x55)
    sut.post("call", 2, "write_imm", "big:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=0x66)
    sut.nothing(0.3)
    expect(peer, 1, pattern(1, big.size), 0x55)
    expect(peer, 2, pattern(1, 8), 0x66)
    sut.completion(1)
    sut.completion(2)


@row("a Write with immediate takes one place in the send queue")
def queue_out(bench):
    session, sut, peer = outgoing(bench)
    for lot in range(3):
        for number in range(64):
            sut.post("call", number, "write_imm", "m:0:100", rkey=FAR, addr=FAR_ADDRESS, imm=number,
                     flags="-" if number == 63 else "c")
        for number in range(64):
            expect(peer, lot * 64 + number + 1, pattern(11, 100), number)
            sut.completion(number)


@row("fence holds the Write and its Immediate Data back")
def fence_out(bench):
    session, sut, peer = outgoing(bench)
    responder = Responder(peer)
    sut.post("call", 1, "read", "m:0:4", rkey=FAR, addr=0)
    sut.post("call", 2, "write_imm", "m:0:4", rkey=FAR, addr=FAR_ADDRESS, imm=9, flags="f")
    responder.hear(READ_REQUEST)
    peer.quiet(0.2)
    responder.answer(b"abcd")
    expect(peer, 1, b"abcd", 9)
    sut.completion(1)
    sut.completion(2)


@row("a bad local SGE: neither the Write nor its Immediate Data is sent")
def local_error_out(bench):
    session, sut, peer = outgoing(bench)
    sut.command("pd other")
    sut.memory("foreign", 4096, "l", "other")
    sut.post("call", 1, "write_imm", "m:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=1)
    sut.post("call", 2, "write_imm", "foreign:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=2)
    sut.post("call", 3, "write_imm", "m:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=3)
    expect(peer, 1, pattern(11, 8), 1)
    term = peer.terminated()  # RFC 7306 8.1: instead of the message, without headers
    check((term.layer, term.etype) == (0, 0) and not (term.m or term.d or term.r), f"{term}")
    sut.completion(1)
    sut.completion(2, {LOC_PROT_ERR, LOC_ACCESS_ERR, LOC_LEN_ERR})
    sut.completion(3, FLUSHED)
    session.down()


def refused(bench, se):
    """RFC 7306 1.1: what a peer says that does not know the message. The work may be complete already."""
    session, sut, peer = outgoing(bench)
    sut.recv("call", 100, "m:0:100")
    sut.post("call", 1, "write_imm", "m:0:8", rkey=FAR, addr=FAR_ADDRESS, imm=1, flags="s" if se else "-")
    check(peer.message(WRITE)[1] == pattern(11, 8), "the Write")
    ulpdu = peer.segment().ulpdu
    sut.completion(1)
    peer.fpdu(wire.terminate(0, 2, 6, ulpdu[:18], len(ulpdu)))
    check(peer.gone() in ("fin", "reset"), "the stream stands")
    session.down()
    session.qp_event()
    sut.completion(100, FLUSHED)


row("the peer terminates: unexpected opcode, names the Immediate Data", se=False)(refused)
row("the peer terminates: unexpected opcode, names the Immediate Data with SE", se=True)(refused)


if __name__ == "__main__":
    sys.exit(main())
