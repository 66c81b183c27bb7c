# SPDX-License-Identifier: MIT
"""Every RDMAP operation in both directions, octet by octet (RFC 5040 sections 4 and 5, RFC 5041 section 4)."""

import sys

import wire
from sut import (FAR, FAR_ADDRESS, FLUSHED, LOC_ACCESS_ERR, LOC_LEN_ERR, LOC_PROT_ERR, SIZES, SUCCESS, WC_READ, WC_RECV,
                 WC_SEND, WC_WITH_INV, WC_WRITE, Session, check, incoming, main, outgoing, row)
from wire import (READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, WRITE, pattern)


# ---- uiw sends -------------------------------------------------------------------------------------------------------


@row("uiw sends: Send of every size, MSN from 1, Send Queue 0")
def send_out(bench):
    session, sut, peer = outgoing(bench)
    for number, size in enumerate(SIZES, 1):
        sut.post("call", number, "send", f"m:{number}:{size}")
        first, payload = peer.message(SEND)
        check((first.qn, first.msn, first.mo, first.inv) == (0, number, 0, 0), f"message {number}: {first}")
        check(payload == pattern(11 + number, size), f"payload of the Send of {size} octets")
        wc = sut.completion(number)
        check(wc.opcode == WC_SEND, f"{wc}")
    session.hang_up()


@row("uiw sends: the octets of a Send, all of them")
def send_octets(bench):
    session, sut, peer = outgoing(bench)
    sut.command("poke m 0 68656c6c6f")
    sut.post("call", 1, "send", "m:0:5")
    want = bytes.fromhex("0017" "41" "43" "00000000" "00000000" "00000001" "00000000") + b"hello" + bytes(3)
    got = peer.take(len(want) + 4)
    check(got[:-4] == want, f"{got.hex()} is not {want.hex()}")
    check(got[-4:] == wire.crc32c(want).to_bytes(4, "little"), "CRC")


@row("uiw sends: Send with SE")
def send_se_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "send", "m:0:10", flags="s")
    sut.post("call", 2, "send", "m:10:10")
    for number, opcode in ((1, SEND_SE), (2, SEND)):
        first, payload = peer.message(opcode)
        check((first.qn, first.msn, first.inv) == (0, number, 0), f"{first}")
        check(payload == pattern(1 + number * 10, 10), "payload")
        sut.completion(number)


@row("uiw sends: Send with Invalidate, Send with SE and Invalidate")
def send_inv_out(bench):
    session, sut, peer = outgoing(bench)
    for number, (letters, code) in enumerate((("-", SEND_INV), ("s", SEND_SE_INV)), 1):
        sut.post("call", number, "send_inv", "m:0:3000", rkey=0xABCDEF12, flags=letters)
        first, payload = peer.message(code)
        check((first.qn, first.msn, first.inv) == (0, number, 0xABCDEF12), f"{first} invalidates {first.inv:#x}")
        check(payload == pattern(11, 3000), "payload")
        sut.completion(number)


@row("uiw sends: several SGEs, inline data, unsignaled")
def sges_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "send", "m:0:3", "m:1000:0", "m:100:1", "m:7:500", "m:9999:77")
    first, payload = peer.message(SEND)
    check(payload == pattern(11, 3) + pattern(111, 1) + pattern(18, 500) + pattern(10010, 77), "gathered payload")
    sut.completion(1)
    sut.post("call", 2, "send", "m:5:60", "m:500:40", flags="i")
    check(peer.message(SEND)[1] == pattern(16, 60) + pattern(511, 40), "inline payload")
    sut.completion(2)
    sut.post("call", 3, "write", "m:5:60", flags="iu", rkey=FAR, addr=FAR_ADDRESS)
    sut.post("call", 4, "send", "m:6:1", flags="u")
    sut.post("call", 5, "send", "m:7:1")
    check(peer.message(WRITE)[1] == pattern(16, 60), "inline payload of a Write")
    check([peer.message(SEND)[0].msn for _ in range(2)] == [3, 4], "MSNs")
    sut.completion(5)
    sut.nothing()


@row("uiw sends: RDMA Write of every size")
def write_out(bench):
    session, sut, peer = outgoing(bench)
    for number, size in enumerate(SIZES, 1):
        sut.post("call", number, "write", f"m:{number}:{size}", rkey=FAR, addr=FAR_ADDRESS + number)
        first, payload = peer.message(WRITE)
        check(first.to == FAR_ADDRESS + number and (size == 0 or first.stag == FAR), f"{first}")
        check(payload == pattern(11 + number, size), f"payload of the Write of {size} octets")
        wc = sut.completion(number)
        check(wc.opcode == WC_WRITE, f"{wc}")
    session.hang_up()


@row("uiw sends: the octets of a Write and of a Read Request")
def write_octets(bench):
    session, sut, peer = outgoing(bench)
    sut.command("poke m 0 0102030405")
    sut.post("call", 1, "write", "m:0:5", rkey=0x01020304, addr=0x1122334455667788)
    want = bytes.fromhex("0013" "c1" "40" "01020304" "1122334455667788" "0102030405" "000000")
    got = peer.take(len(want) + 4)
    check(got[:-4] == want, f"{got.hex()} is not {want.hex()}")
    sut.post("call", 2, "read", "m:64:5", rkey=0x01020304, addr=0x1122334455667788)
    got = peer.take(52)
    want = bytes.fromhex("002e" "41" "41" "00000000" "00000001" "00000001" "00000000")
    check(got[:20] == want, f"{got.hex()} does not begin with {want.hex()}")
    want = bytes.fromhex("00000005" "01020304" "1122334455667788")
    check(got[32:48] == want, f"Read header {got[20:48].hex()} does not end with {want.hex()}")


@row("uiw sends: Write, Send, Read, Send in the order posted")
def order_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "write", "m:0:5000", rkey=FAR, addr=0)
    sut.post("call", 2, "send", "m:1:100")
    sut.post("call", 3, "read", "m:30000:10", rkey=FAR, addr=5)
    sut.post("call", 4, "send", "m:2:100")
    sut.post("call", 5, "write", "m:0:1", rkey=FAR, addr=1)
    check(peer.message(WRITE)[1] == pattern(11, 5000), "Write")
    check(peer.message(SEND)[0].msn == 1, "Send")
    request = wire.read_fields(peer.segment())
    check(peer.message(SEND)[0].msn == 2, "second Send")
    check(peer.message(WRITE)[0].to == 1, "second Write")
    sut.completion(1)
    sut.completion(2)
    sut.nothing(0.1)  # completions come in the order posted: those behind the Read wait for it
    peer.send_message(READ_RESPONSE, b"0123456789", stag=request.sink_stag, to=request.sink_to)
    for number in (3, 4, 5):
        sut.completion(number)
    check(sut.memories["m"].dump(30000, 10) == b"0123456789", "what was read")


@row("uiw sends: RDMA Read of every size; several SGEs in the sink")
def read_out(bench):
    session, sut, peer = outgoing(bench)
    sink = sut.memory("sink", 65536, "l", seed=1)
    for number, size in enumerate(SIZES, 1):
        sut.post("call", number, "read", f"sink:{number}:{size}", rkey=FAR, addr=FAR_ADDRESS)
        segment = peer.segment()
        request = wire.read_fields(segment)
        check((segment.qn, segment.msn, segment.mo, segment.last, segment.inv) == (1, number, 0, True, 0), f"{segment}")
        check(request.size == size and request.source_to == FAR_ADDRESS, f"{request}")
        check(size == 0 or request.source_stag == FAR, f"{request}")
        data = pattern(100 + number, size)
        peer.send_message(READ_RESPONSE, data, 1000, stag=request.sink_stag, to=request.sink_to)
        wc = sut.completion(number)
        check(wc.opcode == WC_READ and wc.length == size, f"{wc}, {wc.length} octets")
        check(sink.dump(number, size) == data, f"{size} octets read")
        sink.untouched((number, number + size))
        sink.fill(1)
    sut.post("call", 99, "read", "sink:0:10", "sink:100:1", "sink:200:1000", rkey=FAR, addr=1)
    request = wire.read_fields(peer.segment())
    check(request.size == 1011, f"{request}")
    data = pattern(55, 1011)
    peer.send_message(READ_RESPONSE, data, 7, stag=request.sink_stag, to=request.sink_to)
    sut.completion(99)
    check(sink.dump(0, 10) + sink.dump(100, 1) + sink.dump(200, 1000) == data, "scattered data")
    session.hang_up()


@row("uiw sends: Reads outstanding up to ORD, the next waits; answers complete them in order", depth=3)
def read_depth_out(bench, depth):
    session, sut, peer = outgoing(bench, ord_=depth)
    for number in range(1, 8):
        sut.post("call", number, "read", f"m:{number * 100}:50", rkey=FAR, addr=number * 1000)
    requests = []
    for number in range(1, depth + 1):
        segment = peer.segment()
        check(segment.msn == number, f"{segment}")
        requests.append(wire.read_fields(segment))
    for number in range(1, 8):
        peer.quiet(0.05)
        request = requests.pop(0)
        check(request.source_to == number * 1000, f"Read {number}: {request}")
        peer.send_message(READ_RESPONSE, pattern(number, 50), 20, stag=request.sink_stag, to=request.sink_to)
        sut.completion(number)
        check(sut.memories["m"].dump(number * 100, 50) == pattern(number, 50), f"Read {number}")
        if number <= 7 - depth:
            requests.append(wire.read_fields(peer.segment()))
    peer.quiet(0.05)


@row("uiw sends: ORD is limited to the IRD of the peer's reply", own_ird=2)
def read_depth_peer(bench, own_ird):
    session, sut, peer = outgoing(bench, own_ird=own_ird, ord_=8)
    for number in range(1, 5):
        sut.post("call", number, "read", f"m:{number * 100}:50", rkey=FAR, addr=number * 1000)
    requests = [wire.read_fields(peer.segment()) for _ in range(own_ird)]
    peer.quiet(0.2)
    for number in range(1, 5):
        request = requests.pop(0)
        peer.send_message(READ_RESPONSE, pattern(number, 50), stag=request.sink_stag, to=request.sink_to)
        sut.completion(number)
        if number <= 4 - own_ird:
            requests.append(wire.read_fields(peer.segment()))


@row("uiw sends: fence holds a Send back until the Read is answered")
def fence_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "read", "m:0:4", rkey=FAR, addr=0)
    sut.post("call", 2, "send", "m:0:4", flags="f")
    request = wire.read_fields(peer.segment())
    peer.quiet(0.2)
    peer.send_message(READ_RESPONSE, b"abcd", stag=request.sink_stag, to=request.sink_to)
    check(peer.message(SEND)[1] == b"abcd", "the fenced Send carries what was read")
    sut.completion(1)
    sut.completion(2)


@row("uiw sends: a bad local SGE is not sent; completion error, QP in error, stream ended")
def local_error_out(bench):
    session, sut, peer = outgoing(bench)
    sut.command("pd other")
    sut.memory("foreign", 4096, "l", "other")
    sut.post("call", 1, "send", "m:0:8")
    sut.post("call", 2, "send", "foreign:0:8")
    sut.post("call", 3, "send", "m:0:8")
    check(peer.message(SEND)[0].msn == 1, "the first Send")
    term = peer.terminated()  # Verbs draft figure 23: local catastrophic, no headers
    check((term.layer, term.etype) == (0, 0) and not (term.m or term.d or term.r), f"{term}")
    sut.completion(1)
    sut.completion(2, {LOC_PROT_ERR, LOC_ACCESS_ERR, LOC_LEN_ERR})
    sut.completion(3, FLUSHED)
    peer.gone()
    session.down()


# ---- the peer sends --------------------------------------------------------------------------------------------------


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
    session.send(b"second")
    session.alive()
    sut.nothing(0.2)
    session.send(b"third", SEND_SE)
    sut.completion(2)
    sut.completion(3)
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


@row("peer sends: the biggest FPDU there is: ULPDU of 65535 octets", crc=True)
@row("peer sends: the biggest FPDU there is: ULPDU of 65535 octets, CRC off", crc=False)
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


@row("peer sends: as many Reads as IRD at once, in one TCP segment, answered in order", ird=5)
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


@row("both directions at once: Reads in, Reads and Sends out")
def both(bench):
    session, sut, peer = outgoing(bench)
    memory = sut.memories["m"]
    sut.memory("sink", 8192, "l")
    sut.post("call", 1, "read", "sink:0:3000", rkey=FAR, addr=1)
    sut.post("call", 2, "send", "m:0:3000")
    request = wire.read_fields(peer.segment())
    check(peer.message(SEND)[1] == pattern(11, 3000), "Send")
    peer.fpdu(wire.read_request(1, 5, 6, 4000, memory.rkey, memory.addr))
    data = pattern(3, 3000)
    peer.fpdu(wire.tagged(READ_RESPONSE, request.sink_stag, request.sink_to, data[:1000], False))
    check(peer.message(READ_RESPONSE)[1] == pattern(11, 4000), "Read Response to the peer")
    peer.fpdu(wire.read_request(2, 5, 6, 10, memory.rkey, memory.addr))
    peer.fpdu(wire.tagged(READ_RESPONSE, request.sink_stag, request.sink_to + 1000, data[1000:]))
    check(peer.message(READ_RESPONSE)[1] == pattern(11, 10), "second Read Response")
    sut.completion(1)
    sut.completion(2)
    check(sut.memories["sink"].dump(0, 3000) == data, "what uiw read")


@row("a consumer that polls all the time sees the same wire")
def spinning(bench):
    session, sut, peer = outgoing(bench)
    sut.command("spin on")
    sut.memory("in", 65536, "l")
    for number in range(1, 20):
        sut.recv("call", 1000 + number, "in:0:65536")
        sut.post("call", number, "send", f"m:0:{number * 700}")
        check(peer.message(SEND)[1] == pattern(11, number * 700), "Send")
        sut.completion(number)
        session.send(pattern(number, 3000), chunk=1000)
        check(sut.completion(1000 + number).length == 3000, "length")
        sut.post("call", 2000 + number, "read", "in:0:2000", rkey=FAR, addr=0)
        request = wire.read_fields(peer.segment())
        peer.send_message(READ_RESPONSE, pattern(number, 2000), 999, stag=request.sink_stag, to=request.sink_to)
        sut.completion(2000 + number)
    sut.command("spin off")
    session.hang_up()


@row("MSN of Sends and of Read Requests count alone, and each direction alone")
def msn(bench):
    session, sut, peer = outgoing(bench)
    sut.memory("in", 4096, "l")
    for number in range(1, 6):
        sut.recv("call", 100 + number, "in:0:100")
    sut.post("call", 1, "send", "m:0:1")
    check(peer.message(SEND)[0].msn == 1, "first Send")
    sut.completion(1)
    session.send(b"a")
    session.send(b"b")
    sut.completion(101)
    sut.completion(102)
    sut.post("call", 2, "read", "in:0:1", rkey=FAR, addr=0)
    segment = peer.segment()
    check((segment.opcode, segment.msn) == (READ_REQUEST, 1), f"{segment}")
    request = wire.read_fields(segment)
    session.alive()
    peer.send_message(READ_RESPONSE, b"z", stag=request.sink_stag, to=request.sink_to)
    sut.completion(2)
    sut.post("call", 3, "send", "m:0:1")
    check(peer.message(SEND)[0].msn == 2, "second Send")
    sut.completion(3)
    session.send(b"c")
    sut.completion(103)


if __name__ == "__main__":
    sys.exit(main())
