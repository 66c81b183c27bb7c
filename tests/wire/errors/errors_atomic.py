# SPDX-License-Identifier: MIT
"""Errors in Atomic Requests and Atomic Responses that the peer sends, and Terminates of the peer that name an Atomic
Request (RFC 7306 section 8, RFC 5040 sections 4.8 and 7).

RFC 7306 8.1: the Terminate carries the DDP header, and of no Atomic Request its RDMA header."""

import pathlib
import struct
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import faults, wire
from peer.faults import BAD_QN, Case, MSN_ERRORS, NO_BUFFER, TOP, UNEXPECTED, error
from peer.sut import FLUSHED, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR, SUCCESS, Responder, Session, check, main, row
from peer.wire import (ATOMIC_REQUEST, ATOMIC_RESPONSE, COMPARE_SWAP, FETCH_ADD, IMMEDIATE, IMMEDIATE_SE, READ_REQUEST,
                       READ_RESPONSE, SEND, WRITE, pattern, tagged, untagged)

# Remote protection errors of RFC 5040 figure 9.
NO_STAG, OUTSIDE, NO_RIGHT, FOREIGN, WRAPS = 0x0100, 0x0101, 0x0102, 0x0103, 0x0104
MISALIGNED = 0x0207  # RFC 7306 8.2
# RFC 7306 gives no code of its own to an AOpCode that is none (section 1.1: "a Remote Operation Error or Unexpected
# OpCode error"), to a header of another length, or to an answer that does not fit.
NO_OPERATION = {UNEXPECTED}
LENGTH = {0x1205}
UNFIT = {0x0207}


def prepare(session):
    faults.prepare(session)
    sut = session.sut
    for seed, (name, size, access, pd) in enumerate((("at", 4096, "lrwa", "pd"), ("cut", 4092, "lrwa", "pd"),
                                                     ("theirs", 4096, "lrwa", "other"))):
        sut.memory(name, size, access, pd, seed=seed * 30 + 5)
    sut.memory("lost", 4096, "lrwa", seed=9)
    sut.command("dereg lost")


def header(case, place, aopcode=FETCH_ADD, identifier=0xABCD):
    """Changes every word that it may touch: adds an odd number, or swaps whatever is there."""
    return wire.atomic_header(aopcode, identifier, *place, 0x0123456789ABCDEF, 0 if aopcode == FETCH_ADD else wire.ONES,
                              0, 0)


# ---- requests --------------------------------------------------------------------------------------------------------


def request_error(title, allowed, place, aopcodes=(FETCH_ADD, COMPARE_SWAP)):
    """place(case): STag and Tagged Offset. The request before is right, its answer comes; what is behind counts not."""

    def run(bench, aopcode):
        case = Case(bench, prepare)
        first = untagged(ATOMIC_REQUEST, 1, 1, 0, wire.atomic_header(FETCH_ADD, 77, *case.place("at", 8), 0, 0))
        ulpdu = untagged(ATOMIC_REQUEST, 1, 2, 0, header(case, place(case), aopcode))
        behind = untagged(ATOMIC_REQUEST, 1, 3, 0, header(case, case.place("at", 16), aopcode))
        case.peer.send(b"".join(wire.fpdu(piece) for piece in (first, ulpdu, behind)))
        check(case.session.original(77) == case.memory["at"].word(8), "the FetchAdd before")
        case.judge(ulpdu, allowed)

    for aopcode in aopcodes:
        name = {FETCH_ADD: "FetchAdd", COMPARE_SWAP: "CmpSwap"}.get(aopcode, f"AOpCode {aopcode}")
        row(f"{name}: {title}", aopcode=aopcode)(run)


for _offset in range(1, 8):
    request_error(f"an address that is {_offset} beyond a multiple of 8", {MISALIGNED},
                  lambda c, offset=_offset: c.place("at", 64 + offset))
request_error("an STag that was never issued", {NO_STAG},
              lambda c: (c.memory["at"].rkey ^ 0x0F0F0F00, c.memory["at"].addr))
request_error("only the key octet of the STag is wrong", {NO_STAG},
              lambda c: (c.memory["at"].rkey ^ 1, c.memory["at"].addr))
request_error("STag 0", {NO_STAG}, lambda c: (0, c.memory["at"].addr))
request_error("a region that was deregistered", {NO_STAG}, lambda c: c.place("lost"))
request_error("begins at the end", {OUTSIDE}, lambda c: c.place("at", 4096))
request_error("far behind the end", {OUTSIDE}, lambda c: c.place("at", 1 << 40))
request_error("the eight octets before the begin", {OUTSIDE}, lambda c: c.place("at", -8))
request_error("half of the word is beyond the end", {OUTSIDE}, lambda c: c.place("cut", 4088))
request_error("Tagged Offset 0", {OUTSIDE}, lambda c: (c.memory["at"].rkey, 0))
request_error("Tagged Offset 2^64 - 8", {WRAPS}, lambda c: (c.memory["at"].rkey, TOP - 8))
request_error("Tagged Offset 2^64 - 4, which wraps", {WRAPS},
              lambda c: (c.memory["at"].rkey, TOP - 4))
request_error("a region of another PD", {FOREIGN}, lambda c: c.place("theirs"))
request_error("a region with remote read and write, without remote atomic", {NO_RIGHT}, lambda c: c.place("rw"))
request_error("a region with remote read", {NO_RIGHT}, lambda c: c.place("ro"))
request_error("a region with remote write", {NO_RIGHT}, lambda c: c.place("wo"))
request_error("a region without remote access", {NO_RIGHT}, lambda c: c.place("local"))
request_error("a bad STag and a bad alignment", {NO_STAG}, lambda c: (0, c.memory["at"].addr + 1))
request_error("no right and a bad alignment", {NO_RIGHT}, lambda c: c.place("rw", 1))
request_error("no operation of RFC 7306", NO_OPERATION, lambda c: c.place("at"), (1, *range(3, 16)))


@row("a Read and a Write where only atomics are allowed")
def only_atomics(bench):
    for build, allowed in ((lambda c, place: wire.read_request(1, 1, 2, 8, *place), {NO_RIGHT}),
                           (lambda c, place: tagged(WRITE, *place, bytes(8)), faults.NO_RIGHTS)):
        case = Case(bench, lambda session: (prepare(session), session.sut.memory("only", 64, "la", seed=3)))
        ulpdu = build(case, case.place("only"))
        case.peer.fpdu(ulpdu)
        case.judge(ulpdu, allowed, read=ulpdu[18:] if ulpdu[1] & 15 == READ_REQUEST else None)
        case.sut.quit()


def fault(title, allowed, build, **more):
    error(title, allowed, build, prepare=prepare, **more)


for _length in (0, 1, 4, 8, 28, 44, 51, 53, 60, 104, 1000):
    fault(f"Atomic Request: a header of {_length} octets", LENGTH,
          lambda c, n=_length: untagged(ATOMIC_REQUEST, 1, 1, 0, (header(c, c.place("at")) + bytes(1000))[:n]))
fault("Read Request: a header of 52 octets, as an Atomic Request has it", LENGTH,
      lambda c: untagged(READ_REQUEST, 1, 1, 0, wire.read_header(1, 2, 10, *c.place("rw")) + bytes(24)))
for _msn in (0, 2, 3, 0x80000001, 0xFFFFFFFF):
    fault(f"Atomic Request: MSN {_msn:#x} where 1 is due", MSN_ERRORS,
          lambda c, msn=_msn: untagged(ATOMIC_REQUEST, 1, msn, 0, header(c, c.place("at"))))
for _mo in (4, 52, 0xFFFFFFFF):
    fault(f"Atomic Request: MO {_mo:#x}", {0x1204},
          lambda c, mo=_mo: untagged(ATOMIC_REQUEST, 1, 1, mo, header(c, c.place("at"))))
for _dv in (0, 2, 3):
    fault(f"Atomic Request: DDP version {_dv}", {0x1206},
          lambda c, dv=_dv: untagged(ATOMIC_REQUEST, 1, 1, 0, header(c, c.place("at")), dv=dv))
for _rv in (2, 3):
    fault(f"Atomic Request: RDMAP version {_rv}", {0x0205},
          lambda c, rv=_rv: untagged(ATOMIC_REQUEST, 1, 1, 0, header(c, c.place("at")), rv=rv))
fault("Atomic Request on queue 0", {UNEXPECTED},
      lambda c: untagged(ATOMIC_REQUEST, 0, 1, 0, header(c, c.place("at"))), open_ends=("in",))
for _qn in (2, 3):
    fault(f"Atomic Request on queue {_qn}", {UNEXPECTED},
          lambda c, qn=_qn: untagged(ATOMIC_REQUEST, qn, 1, 0, header(c, c.place("at"))))
fault("Atomic Request on queue 4", {BAD_QN}, lambda c: untagged(ATOMIC_REQUEST, 4, 1, 0, header(c, c.place("at"))))
for _opcode in (IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE):
    fault(f"a tagged segment with opcode {_opcode:#x}", {UNEXPECTED},
          lambda c, opcode=_opcode: tagged(opcode, *c.place("at"), bytes(52)))
for _opcode in (IMMEDIATE, IMMEDIATE_SE, ATOMIC_RESPONSE, SEND):
    fault(f"queue 1 with opcode {_opcode:#x}", {UNEXPECTED},
          lambda c, opcode=_opcode: untagged(opcode, 1, 1, 0, bytes(8)))
fault("Atomic Request: CRC off, an address that is not aligned", {MISALIGNED},
      lambda c: untagged(ATOMIC_REQUEST, 1, 1, 0, header(c, c.place("at", 4))), crc=False)


@row("Atomic Request: longer than 52 octets")
def too_long(bench):
    """The first segment, which is not the last, may be an error already."""
    case = Case(bench, prepare)
    segments = [untagged(ATOMIC_REQUEST, 1, 1, 0, header(case, case.place("at")), False),
                untagged(ATOMIC_REQUEST, 1, 1, 52, b"more")]
    for segment in segments:
        case.peer.fpdu(segment)
    term = case.peer.terminates(LENGTH)
    culprits = [(segment[:18], len(segment)) for segment in segments]
    check((term.ddp, term.length) in culprits, f"{term}: DDP header {term.ddp.hex()} length {term.length}")
    case.session.down()
    case.memory["at"].untouched()


@row("an MSN of queue 1 used for a Read and again for an atomic")
def duplicate(bench):
    case = Case(bench, prepare)
    case.peer.fpdu(wire.read_request(1, 1, 2, 10, *case.place("rw")))
    check(case.peer.message(READ_RESPONSE)[1] == pattern(0, 10), "the Read")
    ulpdu = untagged(ATOMIC_REQUEST, 1, 1, 0, header(case, case.place("at")))
    case.peer.fpdu(ulpdu)
    case.judge(ulpdu, MSN_ERRORS)


def too_many(bench, ird, kinds, sips=0):
    """The peer does not read, so the answers to the first, a big Read, cannot have gone, nor those behind it. sips: a peer that
    reads so slowly that the stream lingers for longer than where nothing is read."""
    session, sut, peer = Session(bench, ird=ird, crc=False, rcvbuf=8192)
    big = sut.memory("big", 6 << 20, "lr", seed=3)
    memory = sut.memory("at", 4096, "lrwa", seed=5)
    session.read(1, 0, big.size, big.rkey, big.addr)
    for number, kind in enumerate(kinds, 2):
        if kind == "atomic":
            session.fetch_add(number, memory.rkey, memory.addr + number * 8, 1)
        else:
            session.read(number, 0, big.size, big.rkey, big.addr)
    peer.taken()
    for _ in range(sips):
        time.sleep(1)
        peer.ready += peer.socket.recv(1 << 16)
    term = peer.terminates(NO_BUFFER, skip=(READ_RESPONSE, ATOMIC_RESPONSE))
    check(term.m and term.d and not term.r, f"{term}")
    last = len(kinds) + 1
    opcode = ATOMIC_REQUEST if kinds[-1] == "atomic" else READ_REQUEST
    check(term.ddp == untagged(opcode, 1, last), f"{term}: DDP header {term.ddp.hex()}, not that of MSN {last}")
    # Those within IRD may have been carried out.
    memory.untouched((16, 8 * last))
    session.down()
    session.qp_event()


row("one more than IRD outstanding: an atomic behind Reads", ird=3, kinds=("read", "read", "atomic"))(too_many)
row("one more than IRD outstanding: atomics behind a Read", ird=3, kinds=("atomic", "atomic", "atomic"))(too_many)
row("one more than IRD outstanding: a Read behind atomics", ird=3, kinds=("atomic", "atomic", "read"))(too_many)
row("one more than IRD outstanding: IRD 1", ird=1, kinds=("atomic",))(too_many)
row("one more than IRD outstanding: a peer that reads slowly", ird=1, kinds=("atomic",), sips=8)(too_many)


@row("IRD atomics outstanding behind a big Read: all are answered", ird=4)
def enough(bench, ird):
    session = Session(bench, ird=ird, crc=False, rcvbuf=8192)
    big = session.sut.memory("big", 4 << 20, "lr", seed=3)
    memory = session.sut.memory("at", 64, "lrwa")
    session.read(1, 0, big.size, big.rkey, big.addr)
    session.fetch_add(2, memory.rkey, memory.addr, 5)
    session.read(3, 0, 100, big.rkey, big.addr)
    session.fetch_add(4, memory.rkey, memory.addr, 6)
    session.peer.taken()
    check(session.peer.message(READ_RESPONSE)[1] == pattern(3, big.size), "the big Read")
    check(session.original(2) == 0, "the first FetchAdd")
    check(session.peer.message(READ_RESPONSE)[1] == pattern(3, 100), "the small Read")
    check(session.original(4) == 5, "the second FetchAdd")
    session.hang_up()


@row("IRD 0: an Atomic Request finds no buffer")
def no_depth(bench):
    session = Session(bench, ird=0, own_ord=0)
    memory = session.sut.memory("at", 64, "lrwa", seed=4)
    session.fetch_add(1, memory.rkey, memory.addr, 5)
    term = session.peer.terminates(NO_BUFFER)
    check(term.m and term.d and not term.r, f"{term}")
    memory.untouched()
    session.down()


@row("errors on one connection leave the atomics of another alone")
def others(bench):
    case = Case(bench, prepare)
    other = Session(bench, sut=case.sut)
    ulpdu = untagged(ATOMIC_REQUEST, 1, 1, 0, header(case, case.place("at", 1)))
    case.peer.fpdu(ulpdu)
    other.fetch_add(1, *case.place("at"), 0)
    check(other.original(1) == case.memory["at"].word(0), "original value")
    case.judge(ulpdu, {MISALIGNED})
    other.fetch_add(2, *case.place("at"), 0)
    other.original(2)


# ---- responses -------------------------------------------------------------------------------------------------------


def response_error(title, allowed, answers, good=0):
    """uiw has asked for a FetchAdd and a CmpSwap; answers(case, requests): segments, the last of which is in error, or
    any of them where they are one message. good: how many of the operations are answered rightly before."""

    def run(bench):
        case = Case(bench, prepare, initiator=True)
        case.sut.post("call", 50, "fetch_add", "local:104:8", rkey=0x77, addr=0x1000, add=1)
        case.sut.post("call", 51, "compare_swap", "local:200:8", rkey=0x77, addr=0x2000, compare=1, swap=2)
        responder = Responder(case.peer)
        requests = [responder.hear(ATOMIC_REQUEST), responder.hear(ATOMIC_REQUEST)]
        segments = answers(case, requests)
        case.peer.send(b"".join(wire.fpdu(segment) for segment in segments))
        term = case.peer.terminates(allowed)
        check(term.m and term.d and not term.r, f"{term}")
        culprits = [(segment[:len(term.ddp)], len(segment)) for segment in segments[good:]]
        check((term.ddp, term.length) in culprits,
              f"{term}: DDP header {term.ddp.hex()} length {term.length}, not of {segments[-1].hex()}")
        check(case.peer.gone() == "fin", "reset, so that the Terminate may be lost")
        case.session.down()
        told = False
        for number in (50, 51):
            status = case.sut.completion(number, None).status
            check((status == SUCCESS) == (number - 50 < good), f"operation {number} completes with status {status}")
            told = told or status not in (SUCCESS, FLUSHED)
        for number in (1, 2):
            case.sut.completion(number, FLUSHED)
        if not told:
            case.session.qp_event()
        for name, memory in case.memory.items():
            memory.untouched((104, 112) if good and name == "local" else (0, 0))

    row(f"Atomic Response: {title}")(run)


def _raw(payload, qn=3, msn=1, mo=0, opcode=ATOMIC_RESPONSE, **more):
    return untagged(opcode, qn, msn, mo, payload, **more)


def _answer(request, value=0x0102030405060708):
    return struct.pack(">IQ", request.identifier, value)


for _msn in (0, 2, 3, 0xFFFFFFFF):
    response_error(f"MSN {_msn:#x} where 1 is due", MSN_ERRORS, lambda c, r, msn=_msn: [_raw(_answer(r[0]), msn=msn)])
response_error("the MSN of the one before", MSN_ERRORS, lambda c, r: [_raw(_answer(r[0])), _raw(_answer(r[1]))], good=1)
response_error("another identifier", UNFIT,
               lambda c, r: [_raw(struct.pack(">IQ", r[0].identifier ^ r[1].identifier ^ 0x5A5A5A5A, 5))])
response_error("the identifier of the one behind", UNFIT, lambda c, r: [_raw(_answer(r[1]))])
response_error("the identifier of the one before", UNFIT,
               lambda c, r: [_raw(_answer(r[0])), _raw(_answer(r[0]), msn=2)], good=1)
for _length in (0, 4, 8, 11):
    response_error(f"{_length} octets", LENGTH, lambda c, r, n=_length: [_raw(_answer(r[0])[:n])])
for _length in (13, 16, 20, 32, 1000):
    response_error(f"{_length} octets", LENGTH, lambda c, r, n=_length: [_raw((_answer(r[0]) + bytes(n))[:n])])
response_error("goes on after the 12th octet", LENGTH,
               lambda c, r: [_raw(_answer(r[0]), last=False), _raw(b"more", mo=12)])
for _mo in (4, 12, 0xFFFFFFFF):
    response_error(f"MO {_mo:#x}", {0x1204}, lambda c, r, mo=_mo: [_raw(_answer(r[0]), mo=mo)])
for _qn in (0, 1):
    response_error(f"on queue {_qn}", {UNEXPECTED}, lambda c, r, qn=_qn: [_raw(_answer(r[0]), qn=qn)])
response_error("on queue 2", {UNEXPECTED}, lambda c, r: [_raw(_answer(r[0]), qn=2)])
response_error("on queue 4", {BAD_QN}, lambda c, r: [_raw(_answer(r[0]), qn=4)])
response_error("DDP version 2", {0x1206}, lambda c, r: [_raw(_answer(r[0]), dv=2)])
response_error("RDMAP version 2", {0x0205}, lambda c, r: [_raw(_answer(r[0]), rv=2)])
for _opcode in (SEND, IMMEDIATE, ATOMIC_REQUEST, READ_REQUEST, 0xC, 0xF):
    response_error(f"opcode {_opcode:#x} on queue 3 in its place", {UNEXPECTED},
                   lambda c, r, opcode=_opcode: [_raw(_answer(r[0]), opcode=opcode)])
response_error("a Read Response in its place", {UNEXPECTED},
               lambda c, r: [tagged(READ_RESPONSE, *c.place("local", 104), bytes(8))])
response_error("a Read Response of no octets in its place", {UNEXPECTED},
               lambda c, r: [tagged(READ_RESPONSE, 0, 0)])

SURPLUS = NO_BUFFER
fault("Atomic Response: nobody asked for it", SURPLUS, lambda c: wire.atomic_response(1, 0, 5))
fault("Atomic Response: nobody asked for it, no octets", SURPLUS, lambda c: _raw(b""))


@row("Atomic Response: one more than was requested")
def surplus(bench):
    case = Case(bench, prepare, initiator=True)
    responder = Responder(case.peer)
    case.sut.post("call", 50, "fetch_add", "local:104:8", rkey=0x77, addr=0x1000, add=1)
    identifier = responder.hear(ATOMIC_REQUEST).identifier
    responder.answer(5)
    case.sut.completion(50)
    ulpdu = wire.atomic_response(2, identifier, 6)
    case.peer.fpdu(ulpdu)
    term = case.peer.terminates(SURPLUS)
    check(term.ddp == ulpdu[:18], f"{term}: DDP header {term.ddp.hex()}")
    case.session.down()
    case.session.qp_event()
    check(case.memory["local"].word(104) == 5, "the answer before")
    case.memory["local"].untouched((104, 112))


@row("Atomic Response where a Read is outstanding and no atomic")
def for_read(bench):
    case = Case(bench, prepare, initiator=True)
    case.sut.post("call", 50, "read", "local:104:8", rkey=0x77, addr=0x1000)
    wire.read_fields(case.peer.segment())
    case.peer.fpdu(wire.atomic_response(1, 0, 5))
    case.peer.terminates({UNEXPECTED})
    check(case.sut.completion(50, None).status != SUCCESS, "the Read succeeds")
    case.session.down()
    case.memory["local"].untouched()


@row("Atomic Response ahead of the answer to an earlier Read: an error, or both complete; nothing else changes")
def overtaking(bench):
    """RFC 7306 section 7: the Responder must not, the Requester has no placement guarantee between the two."""
    case = Case(bench, prepare, initiator=True)
    case.sut.post("call", 50, "read", "local:104:8", rkey=0x77, addr=0x1000)
    case.sut.post("call", 51, "fetch_add", "local:200:8", rkey=0x77, addr=0x2000, add=1)
    responder = Responder(case.peer)
    read, atomic = responder.hear(READ_REQUEST), responder.hear(ATOMIC_REQUEST)
    case.peer.fpdu(wire.atomic_response(1, atomic.identifier, 5))
    case.peer.fpdu(tagged(READ_RESPONSE, read.sink_stag, read.sink_to, b"12345678"))
    status = case.sut.completion(50, None).status
    check((case.sut.completion(51, None).status == SUCCESS) == (status == SUCCESS), "one good, one not")
    if status == SUCCESS:
        check(case.memory["local"].dump(104, 8) == b"12345678", "what was read")
        check(case.memory["local"].word(200) == 5, "original value")
    else:
        case.peer.terminates({UNEXPECTED})
        case.session.down()


@row("Atomic Response in two segments: reassembled, or an error; nothing else changes")
def split(bench):
    case = Case(bench, prepare, initiator=True)
    case.sut.post("call", 50, "fetch_add", "local:104:8", rkey=0x77, addr=0x1000, add=1)
    answer = _answer(Responder(case.peer).hear(ATOMIC_REQUEST))
    case.peer.fpdu(_raw(answer[:5], last=False))
    case.peer.fpdu(_raw(answer[5:], mo=5))
    if case.sut.completion(50, None).status == SUCCESS:
        check(case.memory["local"].word(104) == 0x0102030405060708, "original value")
    else:
        case.peer.terminates(LENGTH)
    case.memory["local"].untouched((104, 112))


# ---- Terminates of the peer that name an Atomic Request --------------------------------------------------------------

ANY_ERROR = set(range(1, 23))


class Asker:
    """A FetchAdd, a CmpSwap and a Read of uiw's are outstanding, numbers 50 to 52."""

    def __init__(self, bench):
        def before(session):
            session.sut.memory("m", 4096, "lrw", seed=5)
            session.sut.recv(session.conn, 1, "m:3000:100")

        self.session, self.sut, self.peer = Session(bench, initiator=True, before=before)
        self.sut.post("call", 50, "fetch_add", "m:104:8", rkey=0x77, addr=0x1000, add=3)
        self.sut.post("call", 51, "compare_swap", "m:200:8", rkey=0x77, addr=0x2000, compare=3, swap=4)
        self.sut.post("call", 52, "read", "m:300:10", rkey=0x77, addr=0x3000)
        self.responder = Responder(self.peer)
        self.ulpdus = [self.responder.hear(opcode).ulpdu for opcode in (ATOMIC_REQUEST, ATOMIC_REQUEST, READ_REQUEST)]

    def judge(self, *statuses, changed=(0, 0)):
        check(self.peer.gone() in ("fin", "reset"), "the stream stands")  # and nothing is said
        self.session.down()
        for number, status in enumerate(statuses, 50):
            self.sut.completion(number, status)
        self.sut.completion(1, FLUSHED)
        self.sut.memories["m"].untouched(changed)


def named(bench, which, code, statuses, rdma):
    """RFC 5040 5.4: what stands before the one that is named was not answered and is flushed, as is all behind it."""
    asker = Asker(bench)
    ulpdu = asker.ulpdus[which]
    asker.peer.fpdu(wire.terminate(*code, ulpdu[:18], len(ulpdu), ulpdu[18:46] if rdma else b""))
    if which == 0:
        asker.judge(statuses, {FLUSHED}, {FLUSHED})
    else:
        asker.judge(ANY_ERROR, statuses, {FLUSHED})


for _which, _name in ((0, "the FetchAdd"), (1, "the CmpSwap")):
    for _code, _what in ((0, "invalid STag"), (1, "bounds"), (2, "access rights"), (3, "not associated"),
                         (4, "TO wrap"), (0xFF, "unspecified")):
        row(f"the peer terminates: remote protection error, {_what}, names {_name}", which=_which, code=(0, 1, _code),
            statuses={REM_ACCESS_ERR}, rdma=False)(named)
    row(f"the peer terminates: remote protection error, bounds, with 28 octets of RDMA header, names {_name}",
        which=_which, code=(0, 1, 1), statuses={REM_ACCESS_ERR}, rdma=True)(named)
    row(f"the peer terminates: unexpected opcode, names {_name}", which=_which, code=(0, 2, 6),
        statuses={REM_INV_REQ_ERR}, rdma=False)(named)
    for _code in (5, 7, 8, 0xFF):
        row(f"the peer terminates: remote operation error {_code:#x}, names {_name}", which=_which, code=(0, 2, _code),
            statuses={REM_INV_REQ_ERR, REM_OP_ERR}, rdma=False)(named)
    for _code in (1, 2, 3, 4, 5, 6):
        row(f"the peer terminates: untagged buffer error {_code:#x}, names {_name}", which=_which, code=(1, 2, _code),
            statuses={REM_INV_REQ_ERR, REM_OP_ERR}, rdma=False)(named)


@row("the peer terminates: names the Read behind two atomics that are not answered")
def names_read(bench):
    asker = Asker(bench)
    asker.peer.fpdu(wire.terminate(0, 1, 1, asker.ulpdus[2][:18], 46, asker.ulpdus[2][18:]))
    asker.judge(ANY_ERROR, ANY_ERROR, {REM_ACCESS_ERR})


@row("the peer terminates: names the CmpSwap when the FetchAdd is answered: the FetchAdd completes with success")
def names_second(bench):
    asker = Asker(bench)
    asker.responder.answer(0x1122334455667788)
    asker.peer.fpdu(wire.terminate(0, 2, 6, asker.ulpdus[1][:18], len(asker.ulpdus[1])))
    asker.judge({SUCCESS}, {REM_INV_REQ_ERR}, {FLUSHED}, changed=(104, 112))
    check(asker.sut.memories["m"].word(104) == 0x1122334455667788, "the original value that came in time")


@row("the peer terminates: names an Atomic Request that is not outstanding, a Send of the same MSN, or no request")
def names_nobody(bench):
    for ddp in (untagged(ATOMIC_REQUEST, 1, 4), untagged(ATOMIC_REQUEST, 1, 0), untagged(SEND, 0, 1),
                untagged(ATOMIC_RESPONSE, 3, 1), b""):
        asker = Asker(bench)
        asker.peer.fpdu(wire.terminate(0, 2, 6, ddp))
        asker.judge(ANY_ERROR, ANY_ERROR, ANY_ERROR)
        asker.session.qp_event()
        asker.sut.quit()


@row("the peer terminates: the probe of RFC 7306 1.1, a FetchAdd of 0 that the peer does not know")
def probe(bench):
    session = Session(bench, initiator=True)
    session.sut.memory("m", 64, "l", seed=5)
    session.sut.post("call", 1, "fetch_add", "m:0:8", rkey=0x77, addr=0x1000, add=0)
    request = Responder(session.peer).hear(ATOMIC_REQUEST)
    session.peer.fpdu(wire.terminate(0, 2, 6, request.ulpdu[:18], len(request.ulpdu)))
    session.peer.finish()
    session.sut.completion(1, REM_INV_REQ_ERR)
    session.peer.gone()
    session.down()
    session.sut.memories["m"].untouched()


if __name__ == "__main__":
    sys.exit(main())
