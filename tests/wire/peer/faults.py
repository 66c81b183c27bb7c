# SPDX-License-Identifier: MIT
"""What the tests of errors share: a connection with memory of every kind, and what must come of a wrong segment."""

from peer import wire
from peer.sut import ERR, FLUSHED, LOC_LEN_ERR, QP_ACCESS_ERR, QP_FATAL, QP_REQ_ERR, RECEIVES, Session, check, row
from peer.wire import WRITE, tagged

TOP = 1 << 64
STAG, BOUNDS, NOT_ASSOCIATED, WRAP = 0x1100, 0x1101, 0x1102, 0x1103
# Where the documents differ, or leave a choice, the rows say what uiw does. RFC 5041 has no code for access rights, and
# "invalid STag" comes next; the Verbs draft takes 0x1102.
NO_RIGHTS = {STAG}
UNEXPECTED, BAD_QN = 0x0206, 0x1201
NO_BUFFER = {0x1202}  # more requests than IRD, an answer to no request
MSN_ERRORS = {0x1203}  # RFC 5041: out of range; the Verbs draft takes 0x1202 on queue 0


def expected(error, ulpdu=b""):
    """The Terminate of this error, 0xLTCC, about this ULPDU, octet by octet: RFC 5040 figures 7 to 10."""
    layer, etype, code = error >> 12, error >> 8 & 15, error & 0xFF
    if layer == 2 or etype == 0 or not ulpdu:
        return wire.terminate(layer, etype, code)
    size = wire.TAGGED_HEADER if ulpdu[0] & wire.T else wire.UNTAGGED_HEADER
    read = (layer, etype) == (0, 1) and ulpdu[1] & 15 == wire.READ_REQUEST
    return wire.terminate(layer, etype, code, ulpdu[:size], len(ulpdu), ulpdu[size:] if read else b"")


def last_word(peer, want, skip=()):
    """The next FPDU, behind messages of the opcodes in `skip`, has exactly these octets, and behind it comes FIN. Returns
    the octets of payload that were skipped."""
    skipped = 0
    segment = peer.segment()
    while segment.opcode in skip:
        skipped += len(segment.payload)
        segment = peer.segment()
    check(segment.ulpdu == want, f"{segment.ulpdu.hex()}, not {want.hex()}")
    check(peer.gone() == "fin", "reset, so that the Terminate may be lost")
    return skipped


def whole_fpdus(peer):
    """All that comes: the octets of payload in whole FPDUs, how the stream ends, and the octets of an FPDU that is not whole."""
    got = 0
    try:
        while True:
            got += len(peer.segment().payload)
    except wire.Failure:
        return got, peer.ended, len(peer.ready)


def ended(session, kind, completions=RECEIVES):
    """The program hears of the end: these completions in this order and no other, and one asynchronous event of this kind;
    none where the kind is None."""
    sut = session.sut
    session.down()
    for number, status in completions:
        sut.completion(number, status)
    if kind is not None:
        session.qp_event()
    sut.nothing(0.05)
    check(sut.asyncs == ([(kind, session.qp)] if kind is not None else []), f"asynchronous events {sut.asyncs}, not {kind}")


def event_of(error):
    """The asynchronous event of an error, 0xLTCC, in what the peer has sent (Verbs draft section 8.3.3)."""
    protection = error >> 8 in (0x01, 0x11)
    return QP_FATAL if error >> 12 == 2 else QP_ACCESS_ERR if protection else QP_REQ_ERR


def prepare(session):
    sut = session.sut
    sut.command("pd other")
    for seed, (name, access, pd) in enumerate((("rw", "lrw", "pd"), ("ro", "lr", "pd"), ("wo", "lw", "pd"),
                                               ("local", "l", "pd"), ("foreign", "lrw", "other"), ("in", "l", "pd"))):
        sut.memory(name, 4096, access, pd, seed=seed * 40)
    sut.memory("gone", 4096, "lrw", seed=9)
    sut.command("dereg gone")
    for number in (1, 2):
        sut.recv(session.conn, number, f"in:{number * 1000}:256")


class Case:
    """What is on the wire when an error is expected."""

    def __init__(self, bench, prepare=prepare, **more):
        self.session, self.sut, self.peer = Session(bench, before=prepare, **more)
        self.memory = self.sut.memories

    def place(self, name, offset=0):
        return self.memory[name].rkey, self.memory[name].addr + offset

    def judge(self, ulpdu, allowed, headers=None, skip=(), open_ends=(), read=None, changed=()):
        """ulpdu: the segment in error. allowed: Terminates by layer, type and code; headers False where the DDP header
        may be missing. open_ends: names of memory whose content is indeterminate."""
        term = self.peer.terminated(skip)
        check(term.error in allowed, f"{term}, not {' or '.join(f'{error:#06x}' for error in sorted(allowed))}")
        size = wire.TAGGED_HEADER if ulpdu[:1] and ulpdu[0] & wire.T else wire.UNTAGGED_HEADER
        complete = len(ulpdu) >= size
        if term.layer == 2 or (term.layer, term.etype) in ((0, 0), (1, 0)):
            check(not term.r, f"{term}: an RDMA header")
            check(term.layer == 1 or not (term.m or term.d), f"{term}: headers (RFC 5040 figure 10)")
        elif complete and headers is not False:
            check(term.m and term.d, f"{term}: no DDP header (RFC 5040 figure 10)")
        if term.d:
            check(complete and term.ddp == ulpdu[:size], f"{term}: DDP header {term.ddp.hex()} of {ulpdu[:size].hex()}")
        if term.m:
            check(term.length == len(ulpdu), f"{term}: segment length {term.length} of {len(ulpdu)}")
        if read is not None and (term.layer, term.etype) == (0, 1):
            check(term.r, f"{term}: no RDMA header (RFC 5040 figure 10)")
            check(term.rdma == read, f"{term}: RDMA header {term.rdma.hex()}, not {read.hex()}")
        else:
            check(not term.r, f"{term}: an RDMA header")
        check(self.peer.gone() == "fin", "reset, so that the Terminate may be lost")
        self.session.down()
        self.after(term, open_ends)
        for name, memory in self.memory.items():
            if name not in open_ends:
                memory.untouched(dict(changed).get(name, (0, 0)))
        return term

    def after(self, term, open_ends=()):
        """Both receives are flushed, and one asynchronous event tells what has happened (Verbs draft section 8.3.3). Of a
        message that is longer than its receive, the completion tells."""
        sut = self.sut
        too_long = term.error == 0x1205 and term.ddp[6:10] == bytes(4)
        for number in (1, 2):
            if number not in open_ends:
                sut.completion(number, LOC_LEN_ERR if too_long and number == 1 else FLUSHED)
        if too_long:
            check(not sut.asyncs, f"asynchronous events {sut.asyncs}")
        else:
            self.told(term)
        # Work posted to a QP in error is flushed.
        sut.post(self.session.conn, 77, "send", "rw:0:1")
        sut.completion(77, FLUSHED)
        sut.recv(self.session.conn, 78, "in:0:1")
        sut.completion(78, FLUSHED)
        sut.nothing(0.05)
        # And others are served.
        check(sut.state(self.session.conn) == ERR, "QP state")
        other = Session(self.session.bench, sut=sut)
        other.alive()

    def told(self, term):
        """By one asynchronous event, of the right kind."""
        sut = self.sut
        self.session.qp_event()
        kind = event_of(term.error)
        check(sut.asyncs == [(kind, self.session.qp)], f"{term}: asynchronous events {sut.asyncs}, not {kind}")


def error(title, allowed, build, headers=None, before=None, open_ends=(), changed=(), **more):
    """A row: `build(case)` gives the ULPDU in error, `before(case)` ULPDUs that are right."""

    def run(bench, piece=None):
        case = Case(bench, **more)
        octets = b"".join(wire.fpdu(ulpdu, case.peer.crc) for ulpdu in (before(case) if before else ()))
        ulpdu = build(case)
        # Something right behind it must not count any more.
        behind = tagged(WRITE, *case.place("rw", 3000), b"behind the error")
        case.peer.send(octets + wire.fpdu(ulpdu, case.peer.crc) + wire.fpdu(behind, case.peer.crc), piece)
        case.judge(ulpdu, allowed, headers, open_ends=open_ends, changed=changed)

    row(title)(run)
