# SPDX-License-Identifier: MIT
"""The remote completion rule: Sends, Writes and Immediate Data complete once the peer has answered an RDMA Read behind
them, one of no octets where the consumer has posted none (RFC 5040 section 5.5)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import expected, last_word
from peer.sut import FLUSHED, REM_ACCESS_ERR, REM_INV_REQ_ERR, SUCCESS, Responder, Session, check, main, row
from peer.wire import IMMEDIATE, READ_REQUEST, SEND, WRITE, terminate

RETRY_EXC_ERR = 12


class Remote:
    """uiw as initiator under the rule; the peer grants it `own_ird` Reads."""

    def __init__(self, bench, own_ird=8, rule="remote", env=None, **more):
        self.session, self.sut, self.peer = Session(
            bench, initiator=True, own_ird=own_ird, env={"UIW_COMPLETION": rule, **(env or {})}, **more,
            before=lambda session: session.sut.memory("m", 65536, "lrw", seed=5))
        self.responder = Responder(self.peer)

    def send(self, number, flags="-", size=100):
        self.sut.post("call", number, "send", f"m:0:{size}", flags=flags)
        return self.heard(SEND, size)

    def heard(self, opcode, size):
        first, payload = self.peer.message(opcode)
        check(len(payload) == size, f"{len(payload)} octets of {size}")
        return first

    def probe(self):
        request = self.responder.hear(READ_REQUEST)
        check(request.size == 0, f"{request} where one of no octets should come")
        return request

    def answer(self):
        self.responder.answer(b"")


@row("no completion before the peer answers")
def waits(bench):
    it = Remote(bench)
    it.send(1)
    it.probe()
    it.sut.post("call", 2, "write", "m:0:5000", rkey=0x77, addr=0x1000)
    it.heard(WRITE, 5000)
    it.sut.post("call", 3, "write_imm", "m:0:10", rkey=0x77, addr=0x1000, imm=7)
    it.heard(WRITE, 10)
    it.heard(IMMEDIATE, 8)
    it.peer.quiet(0.1)
    it.sut.nothing(0.1)
    it.answer()
    it.sut.completion(1)
    it.probe()
    it.sut.nothing(0.1)
    it.answer()
    it.sut.completion(2)
    it.sut.completion(3)
    it.peer.quiet(0.1)
    it.session.hang_up()


@row("UIW_COMPLETION=local, auto: rdma_cm has the local rule")
def local(bench):
    for rule in ("local", "auto"):
        it = Remote(bench, rule=rule)
        it.send(1)
        it.sut.completion(1)
        it.peer.quiet(0.1)
        it.sut.quit()


@row("a peer whose IRD is 0: work completes by the local rule, and the log says so")
def no_reads(bench):
    log = pathlib.Path(bench.tmp, "log")
    it = Remote(bench, own_ird=0, env={"UIW_LOG": str(log)})
    it.send(1)
    it.sut.completion(1)
    it.peer.quiet(0.1)
    check("ORD 0; Sends and Writes complete when TCP has them, since the peer takes no RDMA Read" in log.read_text(),
          log.read_text())


@row("a peer that puts octets into its answers to probes, as siw may: dropped, counted, and logged once", crc=True)
@row("a peer that puts octets into its answers to probes: CRC off", crc=False)
def answers_with_octets(bench, crc):
    log = pathlib.Path(bench.tmp, "log")
    it = Remote(bench, crc=crc, env={"UIW_LOG": str(log)})
    for number, octets in enumerate((b"four", b"", bytes(50000)), 1):
        it.send(number)
        it.probe()
        it.responder.answer(octets)
        it.sut.completion(number)
    it.send(4)
    request = it.probe()
    for at, last in ((0, False), (4, True)):
        it.sut.nothing(0.05)
        it.peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag, request.sink_to + at, b"half", last))
    it.sut.completion(4)
    it.sut.memories["m"].untouched()
    lines = [line for line in log.read_text().splitlines() if "octets into the answer to an RDMA Read of no octets" in line]
    check(len(lines) == 1 and " 4 octets" in lines[0], f"not one line of the first four: {lines}")
    counter = it.sut.command("file /sys/class/infiniband/uiw_lo/ports/1/hw_counters/answer_octets_dropped")
    check(int(counter) >= 4 + 50000 + 8, f"{counter} octets are counted")  # and those of other tests
    # The STag is that of the request where there are octets, and is not checked where there are none (RFC 5041 section 5.2).
    it.responder.waiting.clear()
    it.send(5)
    request = it.probe()
    it.peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag ^ 1, request.sink_to))
    it.sut.completion(5)
    it.send(6)
    request = it.probe()
    ulpdu = wire.tagged(wire.READ_RESPONSE, request.sink_stag ^ 1, request.sink_to, b"more")
    it.peer.fpdu(ulpdu)
    last_word(it.peer, expected(0x1100, ulpdu))
    it.session.down()


@row("the answer to uiw's ready-to-receive message has octets: dropped, and the stream goes on")
def ready_with_octets(bench):
    it = Remote(bench, p2p="read")
    request = it.responder.hear(READ_REQUEST)
    check(request.size == 0, f"{request}")
    it.responder.answer(b"four")
    it.send(1)
    it.probe()
    it.answer()
    it.sut.completion(1)
    it.session.hang_up()


@row("a peer whose IRD is 1: the probe uses it")
def one_read(bench):
    it = Remote(bench, own_ird=1)
    it.send(1)
    it.probe()
    it.sut.post("call", 2, "read", "m:100:10", rkey=0x77, addr=0x1000)
    it.peer.quiet(0.1)
    it.answer()
    it.sut.completion(1)
    check(it.responder.hear(READ_REQUEST).size == 10, "the Read")
    it.responder.answer(b"0123456789")
    it.sut.completion(2)


@row("a program that asks for no Reads: uiw asks for an ORD of 4 for its probes; 1 suffices")
def no_reads_wanted(bench):
    it = Remote(bench, own_ird=1, own_ord=1, ird=0, ord_=0)
    request = it.session.request
    check((request.ird & wire.DEPTH, request.ord & wire.DEPTH) == (4, 4), f"IRD {request.ird:#x}, ORD {request.ord:#x}")
    it.send(1)
    it.probe()
    it.answer()
    it.sut.completion(1)
    it.session.alive()
    it.sut.post("call", 2, "read", "m:100:10", rkey=0x77, addr=0x1000, errno={22})


@row("unsignaled work sends no probe, and completes with the signaled work behind it")
def unsignaled(bench):
    it = Remote(bench)
    for number in range(1, 6):
        it.send(number, "u")
    it.peer.quiet(0.1)
    it.sut.post("call", 6, "read", "m:100:10", rkey=0x77, addr=0x1000)
    check(it.responder.hear(READ_REQUEST).size == 10, "the Read")
    it.responder.answer(b"0123456789")
    it.sut.completion(6)
    it.peer.quiet(0.1)
    it.send(7, "u")
    it.session.hang_up()
    it.sut.nothing(0.05)


def ends(bench, reset):
    it = Remote(bench)
    it.send(1)
    it.probe()
    it.send(2, "u")
    it.send(3)
    it.send(4)
    it.answer()
    it.sut.completion(1)
    it.probe()
    if reset:
        it.peer.close(reset=True)
    else:
        it.peer.finish()
    it.session.down()
    it.sut.completion(3, RETRY_EXC_ERR)
    it.sut.completion(4, FLUSHED)
    it.sut.nothing(0.05)


row("FIN before the answer: the oldest signaled work fails, the rest is flushed", reset=False)(ends)
row("reset before the answer: the oldest signaled work fails, the rest is flushed", reset=True)(ends)


@row("rdma_disconnect: FIN comes once signaled work is confirmed")
def disconnect(bench):
    it = Remote(bench)
    it.send(1)
    it.probe()
    it.send(2, "u")
    it.sut.command("disconnect call")
    it.peer.quiet(0.1)
    it.answer()
    it.sut.completion(1)
    check(it.peer.gone() == "fin", "reset")
    it.peer.close()
    it.session.down()


@row("rdma_disconnect, and no answer: the end comes in bounded time, with an event")
def disconnect_deaf(bench):
    it = Remote(bench)
    it.send(1)
    it.probe()
    it.sut.command("disconnect call")
    it.session.down()
    it.sut.completion(1, RETRY_EXC_ERR)


def named(bench, which, status):
    """A Terminate is about one of three; what stands before it is good."""
    it = Remote(bench)
    it.send(1)
    it.probe()
    segments = []
    it.sut.post("call", 2, "write", "m:0:100", rkey=0x77, addr=0x1000)
    segments.append(it.peer.segment())
    it.sut.post("call", 3, "send", "m:0:100")
    segments.append(it.peer.segment())
    it.sut.post("call", 4, "write_imm", "m:0:0", rkey=0x77, addr=0x1000, imm=7)
    segments.append(it.peer.segment())
    segments[-1] = it.peer.segment()
    ulpdu = segments[which].ulpdu
    layer, etype, code, size = (1, 1, 2, 14) if which == 0 else (1, 2, 5, 18)
    it.peer.fpdu(terminate(layer, etype, code, ulpdu[:size], len(ulpdu)))
    it.session.down()
    for number in (1, 2, 3, 4):
        expected = SUCCESS if number < which + 2 else status if number == which + 2 else FLUSHED
        it.sut.completion(number, expected)


row("a Terminate names the Write", which=0, status=REM_ACCESS_ERR)(named)
row("a Terminate names the Send behind it", which=1, status=REM_INV_REQ_ERR)(named)
row("a Terminate names the Immediate Data behind both", which=2, status=REM_INV_REQ_ERR)(named)


@row("as responder: the zero-length Read of a peer is answered behind what stands before it, and before FIN")
def answers(bench):
    session = Session(bench, before=lambda first: first.sut.memory("m", 4096, "lrw", seed=5))
    memory = session.sut.memories["m"]
    session.peer.send(wire.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"placed"))
                      + wire.fpdu(wire.read_request(1, 7, 9, 0, 0, 0)))
    first, payload = session.peer.message(wire.READ_RESPONSE)
    check((first.stag, first.to, payload) == (7, 9, b""), f"{first}")
    check(memory.dump(0, 6) == b"placed", "memory")


if __name__ == "__main__":
    sys.exit(main())
