# SPDX-License-Identifier: MIT
"""The rows of wire.operations in which uiw sends and the peer looks at every octet."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import (FAR, FAR_ADDRESS, FLUSHED, LOC_ACCESS_ERR, LOC_LEN_ERR, LOC_PROT_ERR, SIZES, WC_READ, WC_SEND,
                      WC_WRITE, check, fpdu_comes, outgoing, row)
from peer.wire import READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, WRITE, pattern


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
    fpdu_comes(peer, want)


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
