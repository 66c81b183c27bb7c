# SPDX-License-Identifier: MIT
"""Immediate Data that the peer sends: the completion it makes, the receive it takes, the length it tells, and errors
(RFC 7306 section 6)."""

import pathlib
import sys
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import BAD_QN, Case, MSN_ERRORS, STAG, UNEXPECTED, error
from peer.sut import (SIZES, SUCCESS, WC_RECV, WC_RECV_IMMEDIATE, WC_WRITE, Responder, Session, check,
                      check_immediate, incoming, main, row)
from peer.wire import (IMMEDIATE, IMMEDIATE_SE, READ_REQUEST, READ_RESPONSE, SEND, WRITE, immediate_octets, pattern,
                       tagged, untagged, verbs_immediate)


def judge(wc, value, length):
    check_immediate(wc, WC_RECV_IMMEDIATE, value, length)


@row("Immediate Data behind a Write of every size, in one segment and in several")
def write_in(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    number = 0
    for chunk in (None, 700, 1):
        for size in SIZES:
            if size > 1000 and chunk == 1:
                continue
            number += 1
            sut.recv(session.conn, number, "in:0:1000")
            data = pattern(number * 3, size)
            peer.send_message(WRITE, data, chunk, stag=memory.rkey, to=memory.addr + number)
            session.immediate(verbs_immediate(0xA0B0C000 + number))
            wc = sut.completion(number)
            judge(wc, 0xA0B0C000 + number, size)
            check(wc.qp == session.qp, f"{wc}: QP")
            check(memory.dump(number, size) == data, f"Write of {size} octets in segments of {chunk}")
    sut.memories["in"].untouched()
    sut.nothing(0.05)
    session.alive()
    session.hang_up()


@row("Immediate Data alone: length 0, one receive consumed")
def alone_in(bench):
    session, sut, peer = incoming(bench, (1, 2, 3))
    for number in (1, 2, 3):
        session.immediate(verbs_immediate(number))
        judge(sut.completion(number), number, 0)
        session.alive()
        sut.nothing(0.02)
    sut.memories["in"].untouched()


@row("the length is that of the Write just before, not of one further back, nor of a sum")
def lengths_in(bench):
    session, sut, peer = incoming(bench, range(1, 30))
    memory = sut.memories["m"]

    def write(size, chunk=None):
        peer.send_message(WRITE, bytes(size), chunk, stag=memory.rkey, to=memory.addr)

    write(100)
    write(30, 7)
    session.immediate(verbs_immediate(1))
    judge(sut.completion(1), 1, 30)
    session.immediate(verbs_immediate(2))  # no Write since the last one
    judge(sut.completion(2), 2, 0)
    write(50)
    write(0)
    session.immediate(verbs_immediate(3))
    judge(sut.completion(3), 3, 0)
    write(60)
    session.send(b"hello")
    check(sut.completion(4).opcode == WC_RECV, "the Send")
    session.immediate(verbs_immediate(5))  # a Send stands between
    judge(sut.completion(5), 5, 0)
    session.send(b"")
    write(70)
    session.immediate(verbs_immediate(7))
    sut.completion(6)
    judge(sut.completion(7), 7, 70)
    for number in range(8, 20):  # in one TCP segment
        peer.send(wire.fpdu(tagged(WRITE, memory.rkey, memory.addr, bytes(number)))
                  + wire.fpdu(wire.immediate(session.send_msn, verbs_immediate(number))))
        session.send_msn += 1
    for number in range(8, 20):
        judge(sut.completion(number), number, number)


@row("a segment of queue 1 or an answer between the Write and the Immediate Data: the Write's length, or 0")
def between_in(bench):
    """RFC 7306 does not ask that the two be adjacent; "just before" may be meant either way."""
    session, sut, peer = incoming(bench, (1, 2, 3), initiator=True)
    memory = sut.memories["m"]
    responder = Responder(peer)
    for number in (1, 2):
        if number == 2:
            sut.post("call", 9, "read", "in:9000:4", rkey=1, addr=2)
            responder.hear(READ_REQUEST)
        peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, bytes(44)))
        if number == 1:
            session.alive()
        else:
            responder.answer(b"abcd")
            sut.completion(9)
        session.immediate(verbs_immediate(number))
        wc = sut.completion(number)
        judge(wc, number, wc.length if wc.length in (0, 44) else 44)
    session.immediate(verbs_immediate(3))
    judge(sut.completion(3), 3, 0)


@row("Writes on one connection do not count on another")
def connections_in(bench):
    session, sut, peer = incoming(bench, (1, 2))
    other = Session(bench, sut=sut, before=lambda other: sut.recv(other.conn, 10, "in:0:100"))
    memory = sut.memories["m"]
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, bytes(33)))
    session.alive()
    other.immediate(verbs_immediate(10))
    wc = sut.completion(10)
    judge(wc, 10, 0)
    check(wc.qp == other.qp, f"{wc}: QP")
    session.immediate(verbs_immediate(1))
    judge(sut.completion(1), 1, 33)


@row("all 32 bits in their order; the last four octets do not reach verbs")
def values_in(bench):
    session, sut, peer = incoming(bench, range(1, 9))
    values = ("0000000000000000", "0102030400000000", "ffffffff00000000", "8000000000000000", "01020304aabbccdd",
              "00000000ffffffff", "1122334455667788", "ffffffffffffffff")
    for number, octets in enumerate(values, 1):
        session.immediate(bytes.fromhex(octets))
        judge(sut.completion(number), int(octets[:8], 16), 0)
    sut.memories["in"].untouched()


@row("a receive without SGEs suffices, and one of no octets")
def empty_receive(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    for number, sges in enumerate(((), ("in:0:0",), (), ("in:5:0", "in:6:0"), ("in:0:3",)), 1):
        sut.recv(session.conn, number, *sges)
        peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, bytes(number)))
        session.immediate(verbs_immediate(number))
        judge(sut.completion(number), number, number)
    sut.memories["in"].untouched()
    session.alive()


@row("Sends and Immediate Data share the MSN of queue 0, completions come in order")
def mixed_in(bench):
    session, sut, peer = incoming(bench, range(1, 41))
    memory = sut.memories["m"]
    stream = b""
    for number in range(1, 41):
        kind = number % 5
        if kind in (0, 1):
            stream += wire.fpdu(untagged(SEND, 0, number, 0, pattern(number, 50)))
        else:
            if kind == 2:
                stream += wire.fpdu(tagged(WRITE, memory.rkey, memory.addr + number, pattern(number, number)))
            stream += wire.fpdu(wire.immediate(number, verbs_immediate(number), kind == 4))
    peer.send(stream, 777)
    for number in range(1, 41):
        wc = sut.completion(number)
        if number % 5 in (0, 1):
            check((wc.opcode, wc.length, wc.flags) == (WC_RECV, 50, 0), f"{wc}")
            check(sut.memories["in"].dump(number * 100, 50) == pattern(number, 50), f"Send {number}")
        else:
            judge(wc, number, number if number % 5 == 2 else 0)


@row("with SE wakes a consumer that asked for solicited events only, without SE does not")
def solicited_in(bench):
    session, sut, peer = incoming(bench, range(1, 8))
    memory = sut.memories["m"]
    sut.command("notify solicited")
    # The CQ was armed for any completion first, and the weaker request does not undo that: the first one tells.
    session.immediate(verbs_immediate(1))
    judge(sut.completion(1), 1, 0)
    sut.asleep()
    session.immediate(verbs_immediate(2))
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"written"))
    session.immediate(verbs_immediate(3))
    session.alive()
    sut.nothing(0.2)
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"solicited"))
    session.immediate(verbs_immediate(4), se=True)
    for number, length in ((2, 0), (3, 7), (4, 9)):
        judge(sut.completion(number), number, length)
    session.immediate(verbs_immediate(5), se=True)
    judge(sut.completion(5), 5, 0)
    sut.asleep()
    session.immediate(verbs_immediate(6))
    session.alive()
    sut.nothing(0.2)
    session.immediate(bytes(7))  # an error wakes as well
    judge(sut.completion(6), 6, 0)
    check(sut.completion(7, None).status != SUCCESS, "the last receive succeeds")


@row("the Write is in memory when its completion is polled")
def visible_in(bench):
    session, sut, peer = incoming(bench, crc=False)
    memory = sut.memories["m"]
    for spin in ("off", "on"):
        sut.command(f"spin {spin}")
        for number in range(1, 30):
            sut.recv(session.conn, number)
            data = pattern(number * 7, 60000)
            peer.send_message(WRITE, data, 1400, stag=memory.rkey, to=memory.addr)
            session.immediate(verbs_immediate(number))
            judge(sut.completion(number), number, 60000)
            check(memory.hash(0, 60000) == zlib.crc32(data), f"round {number}")
    sut.command("spin off")


@row("Immediate Data octet by octet, and with reserved fields set: Invalidate STag, control octets")
def pieces_in(bench):
    session, sut, peer = incoming(bench, (1, 2, 3))
    peer.send(wire.fpdu(wire.immediate(1, verbs_immediate(1))), 1)
    judge(sut.completion(1), 1, 0)
    peer.fpdu(untagged(IMMEDIATE | 0x30, 0, 2, 0, verbs_immediate(2), control=0x7D, inv=0x12345678))
    judge(sut.completion(2), 2, 0)
    peer.fpdu(untagged(IMMEDIATE_SE | 0x30, 0, 3, 0, verbs_immediate(3), control=0x7D, inv=sut.memories["m"].rkey))
    judge(sut.completion(3), 3, 0)
    peer.fpdu(tagged(WRITE, sut.memories["m"].rkey, sut.memories["m"].addr, b"still there"))  # nothing was invalidated
    session.alive()
    check(sut.memories["m"].dump(0, 11) == b"still there", "Write")


@row("Immediate Data in two segments: reassembled, or an error; nothing else changes")
def split_in(bench):
    session, sut, peer = incoming(bench, (1, 2))
    peer.fpdu(untagged(IMMEDIATE, 0, 1, 0, b"\x01\x02\x03", False))
    peer.fpdu(untagged(IMMEDIATE, 0, 1, 3, b"\x04\x05\x06\x07\x08"))
    wc = sut.completion(1, None)
    if wc.status == SUCCESS:
        judge(wc, 0x01020304, 0)
        session.send_msn = 2
        session.immediate(verbs_immediate(2))
        judge(sut.completion(2), 2, 0)
    else:
        peer.terminates(WRONG_LENGTH)
        sut.memories["in"].untouched((100, 200))


# ---- no receive posted -----------------------------------------------------------------------------------------------


def pause(bench, spin, initiator, se):
    session, sut, peer = incoming(bench, initiator=initiator)
    memory, conn = sut.memories["m"], session.conn
    if spin:
        sut.command("spin on")
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"first"))
    session.immediate(verbs_immediate(1), se)
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr + 100, b"behind"))
    session.immediate(verbs_immediate(2), se)
    session.send(b"third")
    session.read(1, 2, 6, memory.rkey, memory.addr + 100)
    peer.quiet(0.3)  # no answer, no Terminate
    sut.nothing(0.05)
    check(memory.dump(0, 5) == b"first", "the Write ahead of the Immediate Data that waits")
    sut.recv(conn, 1)
    judge(sut.completion(1), 1, 5)
    peer.quiet(0.1)
    sut.recv(conn, 2, "in:0:100")
    judge(sut.completion(2), 2, 6)
    peer.quiet(0.1)
    sut.recv(conn, 3, "in:100:100")
    check(sut.completion(3).length == 5, "the Send")
    check(peer.message(READ_RESPONSE)[1] == b"behind", "the Read behind them all")
    sut.memories["in"].untouched((100, 105))
    session.alive()
    check(not sut.asyncs, f"asynchronous events {sut.asyncs}")


for _spin, _initiator, _se in ((False, False, False), (True, False, True), (False, True, True), (True, True, False)):
    _how = (", a consumer that polls" * _spin) + (", uiw called" * _initiator) + (", with SE" * _se)
    row("no receive posted: the stream waits and resumes" + _how, spin=_spin, initiator=_initiator, se=_se)(pause)


@row("no receive posted: many Immediate Data wait, each receive takes one", count=200)
def trickle(bench, count):
    session, sut, peer = incoming(bench)
    for number in range(1, count + 1):
        session.immediate(verbs_immediate(number))
    sut.nothing(0.1)
    for number in range(1, count + 1):
        sut.recv(session.conn, number)
        judge(sut.completion(number), number, 0)
    sut.nothing(0.05)
    session.alive()


@row("no receive posted: what uiw itself sends goes on")
def pause_sends(bench):
    session, sut, peer = incoming(bench, initiator=True)
    session.immediate(verbs_immediate(1))
    sut.post("call", 10, "write_imm", "m:0:100", rkey=1, addr=2, imm=7)
    check(peer.message(WRITE)[1] == pattern(17, 100), "the Write")
    check(immediate_octets(peer.segment()) == verbs_immediate(7), "its Immediate Data")
    check(sut.completion(10).opcode == WC_WRITE, "completion")
    sut.recv("call", 1)
    judge(sut.completion(1), 1, 0)


@row("no receive posted, and the peer resets: the program learns of the end")
def pause_reset(bench):
    session, sut, peer = incoming(bench)
    session.immediate(verbs_immediate(1))
    peer.quiet(0.1)
    peer.close(reset=True)
    session.down()


# ---- errors ----------------------------------------------------------------------------------------------------------

# RFC 7306 6.3 asks for the check and names no code. What is longer than 8 octets may fit no buffer of DDP's.
WRONG_LENGTH = {0x02FF}
# The receive that the message consumes may hold anything; what is behind its 256 octets may not change.
OPEN = {"changed": (("in", (1000, 1256)),)}

for _opcode, _name in ((IMMEDIATE, "Immediate Data"), (IMMEDIATE_SE, "Immediate Data with SE")):
    for _length in (0, 1, 4, 7):
        error(f"{_name} of {_length} octets", WRONG_LENGTH,
              lambda c, opcode=_opcode, n=_length: untagged(opcode, 0, 1, 0, bytes(n)), **OPEN)
    for _length in (9, 12, 16, 257, 60000):
        error(f"{_name} of {_length} octets", WRONG_LENGTH,
              lambda c, opcode=_opcode, n=_length: untagged(opcode, 0, 1, 0, bytes(n)), **OPEN)
    for _msn in (0, 2, 3, 0xFFFFFFFF):
        error(f"{_name}: MSN {_msn:#x} where 1 is due", MSN_ERRORS,
              lambda c, opcode=_opcode, msn=_msn: untagged(opcode, 0, msn, 0, bytes(8)))
    for _mo in (4, 8, 0xFFFFFFFF):
        error(f"{_name}: MO {_mo:#x}", {0x1204}, lambda c, opcode=_opcode, mo=_mo: untagged(opcode, 0, 1, mo, bytes(8)),
              **OPEN)
    for _qn in (1, 2, 3):
        error(f"{_name} on queue {_qn}", {UNEXPECTED},
              lambda c, opcode=_opcode, qn=_qn: untagged(opcode, qn, 1, 0, bytes(8)))
    error(f"{_name} on queue 4", {BAD_QN}, lambda c, opcode=_opcode: untagged(opcode, 4, 1, 0, bytes(8)))
    error(f"{_name}: DDP version 2", {0x1206}, lambda c, opcode=_opcode: untagged(opcode, 0, 1, 0, bytes(8), dv=2))
    error(f"{_name}: RDMAP version 2", {0x0205}, lambda c, opcode=_opcode: untagged(opcode, 0, 1, 0, bytes(8), rv=2),
          **OPEN)
error("Immediate Data in the middle of a Send", MSN_ERRORS,
      lambda c: untagged(IMMEDIATE, 0, 2, 0, bytes(8)), before=lambda c: [untagged(SEND, 0, 1, 0, b"half", False)],
      **OPEN)
error("the Write ahead of Immediate Data is in error: the Terminate names the Write", {STAG},
      lambda c: tagged(WRITE, 5, 6, b"data"))


@row("an error behind good Immediate Data: the Immediate Data completes with success")
def behind(bench):
    case = Case(bench)
    case.session.immediate(verbs_immediate(5))
    judge(case.sut.completion(1), 5, 0)
    ulpdu = wire.immediate(1, verbs_immediate(6))  # its MSN once more
    case.peer.fpdu(ulpdu)
    case.judge(ulpdu, MSN_ERRORS, open_ends=(1,))


@row("Immediate Data behind a Write that is in error does not complete")
def behind_bad_write(bench):
    case = Case(bench)
    ulpdu = tagged(WRITE, 5, 6, b"data")
    case.peer.send(wire.fpdu(ulpdu) + wire.fpdu(wire.immediate(1, verbs_immediate(1))))
    case.judge(ulpdu, {STAG})


if __name__ == "__main__":
    sys.exit(main())
