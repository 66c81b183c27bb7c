# SPDX-License-Identifier: MIT
"""Every RDMAP operation in both directions, octet by octet (RFC 5040 sections 4 and 5, RFC 5041 section 4).

The rows of one direction are in operations_out.py and operations_in.py.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import FAR, check, main, outgoing, row
from peer.wire import READ_REQUEST, READ_RESPONSE, SEND, pattern

import operations_out
import operations_in


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


@row("a program that polls all the time: the same octets are sent and the same completions come")
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


@row("the MSNs of Sends, of Read Requests and of each direction count apart")
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
