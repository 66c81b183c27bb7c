# SPDX-License-Identifier: MIT
"""The rows of wire.operations in which the peer sends."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import FAR_ADDRESS, FLUSHED, SIZES, SUCCESS, WC_RECV, WC_WITH_INV, Session, check, incoming, row
from peer.wire import READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, WRITE, pattern


@row("peer sends: Send of every size into receives of one and of several SGEs")
def send_in(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["in"]
    for number, size in enumerate(SIZES, 1):
        sut.recv(session.conn, number, "in:0:13", f"in:1000:{size + 5}")
        data = pattern(number * 3, size)
        session.send(data)
        wc = sut.completion(number)
        check((wc.opcode, wc.length, wc.flags) == (WC_RECV, size, 0), f"{wc}")
        check((memory.dump(0, 13) + memory.dump(1000, size))[:size] == data, f"Send of {size} octets")
        check(size >= 13 or memory.dump(1000, 1) == pattern(1029, 1), "octets beyond the message changed")
        memory.fill(29)
    session.alive()
    session.hang_up()


@row("peer sends: a message in segments of every size", sizes=(1, 2, 3, 5, 18, 100, 333, 999))
def segments_in(bench, sizes):
    session, sut, peer = incoming(bench)
    for number, chunk in enumerate(sizes, 1):
        data = pattern(chunk, 1000)
        sut.recv(session.conn, number, "in:0:999", "in:5000:1")
        session.send(data, chunk=chunk)
        check(sut.completion(number).length == 1000, "length")
        check(sut.memories["in"].dump(0, 999) + sut.memories["in"].dump(5000, 1) == data, f"segments of {chunk}")
        session.peer.send_message(WRITE, data, chunk, stag=sut.memories["m"].rkey, to=sut.memories["m"].addr + chunk)
        session.alive()
        check(sut.memories["m"].dump(chunk, 1000) == data, f"Write in segments of {chunk}")


@row("peer sends: Send with SE wakes a consumer that asked for solicited events only")
def send_se_in(bench):
    session, sut, peer = incoming(bench)
    for number in range(1, 6):
        sut.recv(session.conn, number, f"in:{number * 100}:100")
    sut.command("notify solicited")
    # The CQ was armed for any completion first, and the weaker request does not undo that: the first one tells.
    session.send(b"first")
    sut.completion(1)
    sut.asleep()
    session.send(b"second")
    session.alive()
    sut.nothing(0.2)
    session.send(b"third", SEND_SE)
    sut.completion(2)
    sut.completion(3)
    sut.asleep()
    session.send(b"fourth")
    session.alive()
    sut.nothing(0.2)
    peer.fpdu(wire.untagged(SEND, 0, 99))  # an error wakes as well
    sut.completion(4)
    check(sut.completion(5, None).status != SUCCESS, "the last receive succeeds")


def send_inv_in(bench, opcode):
    """RFC 5040 5.3: the STag of a region that any stream of the PD may use cannot be invalidated (8.1.1 number 7)
    unless uiw takes it for associated with this stream; either way it must be one of the two."""
    session, sut, peer = incoming(bench)
    sut.recv(session.conn, 1, "in:0:100")
    stag, addr = sut.memories["m"].rkey, sut.memories["m"].addr
    session.send(b"data", opcode, inv=stag)
    wc = sut.completion(1, None)
    if wc.status == SUCCESS:
        check(wc.flags & WC_WITH_INV and wc.extra == stag, f"{wc} invalidated {wc.extra:#x}")
        peer.fpdu(wire.tagged(WRITE, stag, addr, b"x"))
        term = peer.terminated()
        check(term.error == 0x1100, f"a Write to an invalidated STag: {term}")
    else:
        term = peer.terminated()
        check(term.error == 0x0109 and term.m and term.d and not term.r, f"{term}")
        check(term.ddp[2:6] == stag.to_bytes(4, "big"), f"DDP header {term.ddp.hex()}")
    peer.gone()
    session.down()
    sut.memories["m"].untouched()


row("peer sends: Send with Invalidate of a memory region", opcode=SEND_INV)(send_inv_in)
row("peer sends: Send with SE and Invalidate of a memory region", opcode=SEND_SE_INV)(send_inv_in)


@row("peer sends: Send with Invalidate of a region that another stream uses too: refused, and the other goes on")
def send_inv_shared(bench):
    """RFC 5040 section 8.1.1 number 7."""
    session, sut, peer = incoming(bench)
    other, memory = Session(bench, sut=sut), sut.memories["m"]
    sut.recv(session.conn, 1, "in:0:100")
    session.send(b"data", SEND_INV, inv=memory.rkey)
    check(peer.terminated().error == 0x0109, "Terminate")
    peer.gone()
    session.down()
    sut.completion(1, FLUSHED)
    other.peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"written"))
    other.alive()
    check(memory.dump(0, 7) == b"written", "the Write of the other stream")


@row("peer sends: RDMA Write of every size, the octets around it untouched")
def write_in(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    for number, size in enumerate(SIZES, 1):
        data = pattern(number * 5, size)
        peer.send_message(WRITE, data, 1440, stag=memory.rkey, to=memory.addr + 33 + number)
        session.alive()
        check(memory.dump(33 + number, size) == data, f"Write of {size} octets")
        memory.untouched((33 + number, 33 + number + size))
        memory.fill(17)
    peer.send_message(WRITE, b"Z", stag=memory.rkey, to=memory.addr + memory.size - 1)
    peer.send_message(WRITE, b"A", stag=memory.rkey, to=memory.addr)
    session.alive()
    check(memory.dump(memory.size - 1) + memory.dump(0, 1) == b"ZA", "first and last octet")
    sut.nothing(0.05)
    session.hang_up()


@row("peer sends: a zero-length Write touches and checks nothing")
def write_empty_in(bench):
    session, sut, peer = incoming(bench)
    peer.fpdu(wire.tagged(WRITE, sut.memories["m"].rkey, sut.memories["m"].addr))
    session.alive()
    sut.memories["m"].untouched()
    sut.nothing(0.05)


@row("peer sends: the largest possible FPDU: a ULPDU of 65535 octets", crc=True)
@row("peer sends: the largest possible FPDU: a ULPDU of 65535 octets, CRC off", crc=False)
def biggest_in(bench, crc):
    session, sut, peer = incoming(bench, crc=crc)
    memory = sut.memories["m"]
    data = pattern(77, 65535 - wire.TAGGED_HEADER)
    peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + 3, data))
    session.alive()
    check(memory.dump(3, len(data)) == data, "Write")
    memory.untouched((3, 3 + len(data)))
    data = pattern(78, 65535 - wire.UNTAGGED_HEADER)
    sut.recv(session.conn, 1, "in:0:65536")
    session.send(data)
    check(sut.completion(1).length == len(data), "length")
    check(sut.memories["in"].dump(0, len(data)) == data, "Send")
    sut.memories["in"].untouched((0, len(data)))


@row("peer sends: RDMA Read Request of every size, answered octet by octet")
def read_in(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    for number, size in enumerate(SIZES, 1):
        peer.fpdu(wire.read_request(number, 0x99887766, FAR_ADDRESS + number, size, memory.rkey,
                                    memory.addr + number))
        first, payload = peer.message(READ_RESPONSE)
        check((first.stag, first.to) == (0x99887766, FAR_ADDRESS + number), f"{first}")
        check(payload == pattern(17 + number, size), f"Read of {size} octets")
    sut.nothing(0.05)  # the consumer learns nothing of it
    memory.untouched()
    session.hang_up()


@row("peer sends: the octets of a Read Response")
def read_octets(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    sut.command("poke m 0 0102030405")
    peer.fpdu(wire.read_request(1, 0x01020304, 0x1122334455667788, 5, memory.rkey, memory.addr))
    want = bytes.fromhex("0013" "c1" "42" "01020304" "1122334455667788" "0102030405" "000000")
    got = peer.take(len(want) + 4)
    check(got[:-4] == want, f"{got.hex()} is not {want.hex()}")


@row("peer sends: a zero-length Read Request is answered whatever its STag and offset say")
def read_empty_in(bench):
    session, sut, peer = incoming(bench)
    for number, (stag, to) in enumerate(((0, 0), (0xFFFFFFFF, (1 << 64) - 1), (sut.memories["in"].rkey, 5)), 1):
        peer.fpdu(wire.read_request(number, 0xAA, 0xBB, 0, stag, to))
        first, payload = peer.message(READ_RESPONSE)
        check((first.stag, first.to, payload) == (0xAA, 0xBB, b""), f"{first}")
    sut.nothing(0.05)


@row("peer sends: IRD Reads at once, in one TCP segment, are answered in order", ird=5)
def read_depth_in(bench, ird):
    session, sut, peer = incoming(bench, ird=ird)
    memory = sut.memories["m"]
    for turn in range(3):
        burst = b"".join(wire.fpdu(wire.read_request(turn * ird + number, number, number, 1000 + number, memory.rkey,
                                                     memory.addr + number)) for number in range(1, ird + 1))
        peer.send(burst)
        for number in range(1, ird + 1):
            first, payload = peer.message(READ_RESPONSE)
            check((first.stag, first.to) == (number, number), f"{first}")
            check(payload == pattern(17 + number, 1000 + number), f"Read {number}")


@row("peer sends: a Read sees the Write before it")
def write_read_in(bench):
    session, sut, peer = incoming(bench)
    memory = sut.memories["m"]
    for number in range(1, 20):
        data = pattern(number * 7, 5000)
        peer.send(b"".join(wire.fpdu(piece) for piece in (
            wire.tagged(WRITE, memory.rkey, memory.addr, data[:3000], False),
            wire.tagged(WRITE, memory.rkey, memory.addr + 3000, data[3000:]),
            wire.read_request(number, 1, 2, 5000, memory.rkey, memory.addr))))
        check(peer.message(READ_RESPONSE)[1] == data, f"round {number}")
