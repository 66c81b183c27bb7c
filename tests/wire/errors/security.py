# SPDX-License-Identifier: MIT
"""Attacks of RFC 5042 that a peer makes on the wire, as far as no row of the other tests of errors is one of them.
docs/security.md names the rows for each attack."""

import pathlib
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import NO_RIGHTS, STAG, Case
from peer.sut import FLUSHED, PATIENCE, Responder, Session, check, main, outgoing, processor_time, row
from peer.wire import SEND, WRITE, pattern, tagged, untagged


@row("6.2.2: a Write behind the Send that told of the data: placed while the STag is valid, refused once it is taken back")
def after_indication(bench):
    case = Case(bench)
    sut, peer, memory = case.sut, case.peer, case.memory["rw"]
    peer.fpdu(tagged(WRITE, *case.place("rw"), b"the data"))
    case.session.send(b"it is there")
    sut.completion(1)
    peer.fpdu(tagged(WRITE, *case.place("rw"), b"changed!"))
    case.session.alive()
    check(memory.dump(0, 8) == b"changed!", "a Write through a valid STag was not placed")
    sut.command("dereg rw")
    peer.fpdu(tagged(WRITE, *case.place("rw"), b"too late"))
    check(peer.terminated().error == STAG, "Terminate")
    check(memory.dump(0, 8) == b"changed!", "memory that was taken back has changed")
    sut.completion(2, FLUSHED)


@row("6.2.2: segments of a message that has been received do not change it any more")
def received(bench):
    case = Case(bench)
    sut, peer = case.sut, case.peer
    peer.fpdu(untagged(SEND, 0, 1, 0, b"message", True))
    sut.completion(1)
    peer.fpdu(untagged(SEND, 0, 1, 0, b"MESSAGE", True))
    check(peer.terminated().layer == 1, "Terminate")
    check(case.memory["in"].dump(1000, 7) == b"message", "a message that was received has changed")
    sut.completion(2, FLUSHED)


@row("6.3.1: guesses beside a valid STag all miss, and each costs its connection")
def guesses(bench):
    case = Case(bench)
    names = {memory.rkey for memory in case.memory.values()}
    valid = case.memory["rw"].rkey
    near = [valid ^ 1 << bit for bit in range(32)] + [valid + 0x100 & 0xFFFFFFFF, valid - 0x100 & 0xFFFFFFFF]
    for stag in near:
        if stag in names:
            continue
        session = Session(bench, sut=case.sut)
        session.peer.fpdu(tagged(WRITE, stag, case.memory["rw"].addr, b"guessed"))
        term = session.peer.terminated()
        check(term.error == STAG, f"{stag:#x} beside {valid:#x}: {term}")
        session.peer.gone()
        session.down()
        case.sut.command(f"destroy {session.conn}")
    for memory in case.memory.values():
        memory.untouched()
    case.session.alive()


@row("6.3.5: the sink of a Read is no target of a Write, neither before nor behind the answer")
def sink(bench):
    for answered in (False, True):
        session, sut, peer = outgoing(bench)
        sut.memory("sink", 4096, "l", seed=5)
        sut.post("call", 1, "read", "sink:0:100", rkey=1, addr=2)
        responder = Responder(peer)
        request = responder.hear()
        if answered:
            responder.answer(pattern(77, 100))
            sut.completion(1)
        peer.fpdu(tagged(WRITE, request.sink_stag, request.sink_to, b"written"))
        check(peer.terminated().error in NO_RIGHTS, "Terminate")
        if answered:
            check(sut.memories["sink"].dump(0, 100) == pattern(77, 100), "the sink has changed behind the answer")
        else:
            sut.memories["sink"].untouched()


class Flood(threading.Thread):
    """Sends these octets again and again, as fast as they are taken."""

    def __init__(self, peer, octets):
        super().__init__(daemon=True)
        self.peer, self.octets, self.rounds, self.over = peer, octets, 0, False

    def run(self):
        try:
            while not self.over:
                self.peer.send(self.octets)
                self.rounds += 1
        except OSError:
            pass  # the stream has ended


ENOUGH = 10  # turns of the one and of the other: with a sanitizer, one of them takes up to half a second
FLOODS = {
    "Writes of no octets": lambda stag, to: tagged(WRITE, stag, to),
    "Writes of one octet": lambda stag, to: tagged(WRITE, stag, to, b"x"),
    "Writes that fill the region": lambda stag, to: tagged(WRITE, stag, to, bytes(4096)),
}


def flood(bench, ulpdu):
    case = Case(bench, env={"UIW_CAPTURE": ""})  # tshark would read the flood for minutes
    other = Session(bench, sut=case.sut)
    octets = wire.fpdu(ulpdu(*case.place("rw")), case.peer.crc)
    attack = Flood(case.peer, octets * max(1, 32768 // len(octets)))
    attack.start()
    end = time.monotonic() + 4 * PATIENCE
    turns = 0
    while (turns < ENOUGH or attack.rounds < ENOUGH) and time.monotonic() < end:
        other.alive()
        turns += 1
    attack.over = True
    check(turns >= ENOUGH and attack.rounds >= ENOUGH, f"{turns} turns of the other stream, {attack.rounds} of the flood")
    attack.join(PATIENCE)
    case.session.alive()


for _title, _ulpdu in FLOODS.items():
    row(f"6.4.4: a flood of {_title} on one stream: another stream is served all the time", ulpdu=_ulpdu)(flood)


@row("6.4.2: forty connected peers that say nothing cost no processor, and others are served")
def idle(bench):
    case = Case(bench)
    for _ in range(40):
        Session(bench, sut=case.sut).alive()
    before = processor_time(case.sut.process)
    for _ in range(3):
        time.sleep(0.3)
        case.session.alive()
    used = processor_time(case.sut.process) - before
    check(used < 0.3, f"{used:.2f} s of processor in 0.9 s")
    Session(bench, sut=case.sut).alive()


if __name__ == "__main__":
    sys.exit(main())
