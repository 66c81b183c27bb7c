# SPDX-License-Identifier: MIT
"""Errors in what the peer sends: tagged and untagged segments (RFC 5040 section 7, RFC 5041 section 7, Verbs draft
8.3.3). Each gives the right Terminate, leaves memory alone and ends the stream, the QP and nothing else."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import BAD_QN, BOUNDS, Case, MSN_ERRORS, NO_BUFFER, NO_RIGHTS, NOT_ASSOCIATED, STAG, TOP, UNEXPECTED, WRAP, error
from peer.sut import FLUSHED, LOC_LEN_ERR, Session, check, main, row
from peer.wire import READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, TERMINATE, WRITE, pattern, tagged, untagged


# ---- tagged segments (DDP layer, type 1) -----------------------------------------------------------------------------

error("Write: an STag that was never issued", {STAG}, lambda c: tagged(WRITE, c.memory["rw"].rkey ^ 0x00F00F00,
                                                                c.memory["rw"].addr, b"data"))
error("Write: STag 0", {STAG}, lambda c: tagged(WRITE, 0, c.memory["rw"].addr, b"data"))
error("Write: STag 0xFFFFFFFF", {STAG}, lambda c: tagged(WRITE, 0xFFFFFFFF, c.memory["rw"].addr, b"data"))
error("Write: only the key octet of the STag is wrong", {STAG},
      lambda c: tagged(WRITE, c.memory["rw"].rkey ^ 1, c.memory["rw"].addr, b"data"))
error("Write: the STag of a region that was deregistered", {STAG}, lambda c: tagged(WRITE, *c.place("gone"), b"data"))
error("Write: one octet beyond the end", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw", 4093), b"data"))
error("Write: begins at the end", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw", 4096), b"d"))
error("Write: one octet before the start", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw", -1), b"data"))
error("Write: ends before the start", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw", -100), b"data"))
error("Write: TO 0", {BOUNDS}, lambda c: tagged(WRITE, c.memory["rw"].rkey, 0, b"data"))
error("Write: longer than the region", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw"), bytes(4097)))
error("Write: TO wraps", {WRAP}, lambda c: tagged(WRITE, c.memory["rw"].rkey, TOP - 2, b"data"))
error("Write: TO and length reach 2^64 and no further", {WRAP},
      lambda c: tagged(WRITE, c.memory["rw"].rkey, TOP - 4, b"data"))
error("Write: a region of another PD", {NOT_ASSOCIATED}, lambda c: tagged(WRITE, *c.place("foreign"), b"data"))
error("Write: a region without remote write", NO_RIGHTS, lambda c: tagged(WRITE, *c.place("ro"), b"data"))
error("Write: a region without remote access", NO_RIGHTS,
      lambda c: tagged(WRITE, *c.place("local"), b"data"))
error("Write: a receive buffer's region", NO_RIGHTS, lambda c: tagged(WRITE, *c.place("in"), b"data"))
error("Write: the second segment is beyond the end", {BOUNDS},
      lambda c: tagged(WRITE, *c.place("rw", 4096), b"over"),
      before=lambda c: [tagged(WRITE, *c.place("rw", 4090), b"inside", False)], changed=(("rw", (4090, 4096)),))
error("Write: CRC off, an STag that was never issued", {STAG}, lambda c: tagged(WRITE, 5, 6, b"data"), crc=False)
for _dv in (0, 2, 3):
    error(f"DDP version {_dv} in a tagged segment", {0x1104}, lambda c, dv=_dv: tagged(WRITE, *c.place("rw"), b"data",
                                                                                      dv=dv))
    error(f"DDP version {_dv} in an untagged segment", {0x1206}, lambda c, dv=_dv: untagged(SEND, 0, 1, 0, b"data",
                                                                                            dv=dv))
    error(f"DDP version {_dv} in a Terminate", {0x1206},
          lambda c, dv=_dv: untagged(TERMINATE, 2, 1, 0, bytes(4), dv=dv))
for _rv in (0, 2, 3):
    error(f"RDMAP version {_rv} in a Terminate", {0x0205},
          lambda c, rv=_rv: untagged(TERMINATE, 2, 1, 0, bytes(4), rv=rv))
    error(f"RDMAP version {_rv} in a Write", {0x0205}, lambda c, rv=_rv: tagged(WRITE, *c.place("rw"), b"data", rv=rv))
    error(f"RDMAP version {_rv} in a Send", {0x0205}, lambda c, rv=_rv: untagged(SEND, 0, 1, 0, b"data", rv=rv),
          open_ends=("in",))
    error(f"RDMAP version {_rv} in a Read Request", {0x0205},
          lambda c, rv=_rv: untagged(READ_REQUEST, 1, 1, 0, wire.read_header(1, 2, 10, *c.place("rw")), rv=rv))
for _opcode in (SEND, SEND_INV, READ_REQUEST, TERMINATE, 8, 10, 12, 13, 14, 15):
    error(f"a tagged segment with opcode {_opcode}", {UNEXPECTED},
          lambda c, opcode=_opcode: tagged(opcode, *c.place("rw"), b"data"))
for _opcode in (WRITE, READ_RESPONSE, 12, 13, 14, 15):
    error(f"an untagged segment on queue 0 with opcode {_opcode}", {UNEXPECTED},
          lambda c, opcode=_opcode: untagged(opcode, 0, 1, 0, b"data"), open_ends=("in",))
for _opcode in (READ_REQUEST, TERMINATE):
    error(f"an untagged segment on queue 0 with opcode {_opcode}", {UNEXPECTED},
          lambda c, opcode=_opcode: untagged(opcode, 0, 1, 0, bytes(28)), open_ends=("in",))

# ---- untagged segments (DDP layer, type 2) ---------------------------------------------------------------------------

for _name, _opcode in (("Send with SE", wire.SEND_SE), ("Send with Invalidate", SEND_INV),
                       ("Send with SE and Invalidate", wire.SEND_SE_INV), ("Immediate Data", wire.IMMEDIATE)):
    error(f"a Send goes on as {_name}", {UNEXPECTED},
          lambda c, opcode=_opcode: untagged(opcode, 0, 1, 4, b"more" if opcode != wire.IMMEDIATE else bytes(8)),
          before=lambda c: [untagged(SEND, 0, 1, 0, b"half", False)], open_ends=("in",))

# RFC 5041 section 5.2: each segment of a message but the last has payload.
error("a Write of no octets that is not the last segment", {BOUNDS}, lambda c: tagged(WRITE, *c.place("rw"), b"", False))
error("a Send of no octets that is not the last segment", {0x1204}, lambda c: untagged(SEND, 0, 1, 0, b"", False))
error("a segment of no octets in the middle of a Send", {0x1204}, lambda c: untagged(SEND, 0, 1, 4, b"", False),
      before=lambda c: [untagged(SEND, 0, 1, 0, b"half", False)], open_ends=("in",))

for _qn in (4, 5, 255, 0x10000, 0xFFFFFFFF):
    error(f"queue number {_qn:#x}", {BAD_QN}, lambda c, qn=_qn: untagged(SEND, qn, 1, 0, b"data"))
for _qn in (1, 2):
    error(f"a Send on queue {_qn}", {UNEXPECTED}, lambda c, qn=_qn: untagged(SEND, qn, 1, 0, b"data"))
error("a Send on queue 3 (RFC 7306)", {UNEXPECTED}, lambda c: untagged(SEND, 3, 1, 0, b"data"))
error("an Atomic Response without a request (RFC 7306)", NO_BUFFER,
      lambda c: untagged(11, 3, 1, 0, bytes(12)))
for _msn in (0, 2, 3, 1000, 0x80000001, 0xFFFFFFFF):
    error(f"MSN {_msn:#x} on the Send Queue where 1 is due", MSN_ERRORS,
          lambda c, msn=_msn: untagged(SEND, 0, msn, 0, b"data"))
    error(f"MSN {_msn:#x} on the Read Request queue where 1 is due", MSN_ERRORS,
          lambda c, msn=_msn: wire.read_request(msn, 1, 2, 10, *c.place("rw")))
error("MSN changes within a message", MSN_ERRORS, lambda c: untagged(SEND, 0, 2, 4, b"more"),
      before=lambda c: [untagged(SEND, 0, 1, 0, b"data", False)], open_ends=("in",))
error("MO 4 in the first segment of a message", {0x1204}, lambda c: untagged(SEND, 0, 1, 4, b"data"), open_ends=("in",))
error("MO leaves a gap", {0x1204}, lambda c: untagged(SEND, 0, 1, 5, b"more"),
      before=lambda c: [untagged(SEND, 0, 1, 0, b"data", False)], open_ends=("in",))
error("MO repeats octets", {0x1204}, lambda c: untagged(SEND, 0, 1, 3, b"more"),
      before=lambda c: [untagged(SEND, 0, 1, 0, b"data", False)], open_ends=("in",))
error("MO 0xFFFFFFFF", {0x1204}, lambda c: untagged(SEND, 0, 1, 0xFFFFFFFF, b"more"), open_ends=("in",))


def too_long(bench, sizes):
    """The receive comes back with a length error; not an octet beyond it is touched."""
    case = Case(bench)
    at, ulpdu = 0, b""
    for number, size in enumerate(sizes):
        ulpdu = untagged(SEND, 0, 1, at, pattern(7, size), number == len(sizes) - 1)
        case.peer.fpdu(ulpdu)
        at += size
    term = case.peer.terminated()
    check(term.error == 0x1205 and term.m and term.d and not term.r, f"{term}")
    check(term.ddp == ulpdu[:18] and term.length == len(ulpdu), f"{term}: {term.ddp.hex()} {term.length}")
    case.peer.gone()
    case.session.down()
    wc = case.sut.completion(1, LOC_LEN_ERR)
    case.sut.completion(2, FLUSHED)
    check(wc.qp == case.session.qp, f"{wc}")
    case.memory["in"].untouched((1000, 1256))


row("a message longer than its receive", sizes=(257,))(too_long)
row("a message longer than its receive: the second segment", sizes=(256, 1))(too_long)
row("a message longer than its receive: much longer", sizes=(100, 2000))(too_long)
row("a message longer than its receive: 65517 octets", sizes=(65517,))(too_long)


@row("a duplicate MSN", msn=1)
@row("a gap of one in the MSN after a message in order", msn=3)
def wrong_msn(bench, msn):
    case = Case(bench)
    case.peer.fpdu(untagged(SEND, 0, 1, 0, b"first"))
    case.sut.completion(1)
    ulpdu = untagged(SEND, 0, msn, 0, b"other")
    case.peer.fpdu(ulpdu)
    case.judge(ulpdu, MSN_ERRORS, open_ends=(1,), changed=(("in", (1000, 1005)),))


# ---- ULPDUs that hold no header --------------------------------------------------------------------------------------

# The Verbs draft says 0x1000; RFC 5041 has no code of its own for it.
SHORT = {0x1000}
for _length in (1, 2, 13):
    error(f"a tagged ULPDU of {_length} octets", SHORT, lambda c, n=_length: tagged(WRITE, *c.place("rw"))[:n],
          headers=False)
for _length in (1, 2, 14, 17):
    error(f"an untagged ULPDU of {_length} octets", SHORT, lambda c, n=_length: untagged(SEND, 0, 1)[:n], headers=False)


error("a second ULPDU of no octets", SHORT, lambda c: b"", headers=False, before=lambda c: [b""])
error("a ULPDU of no octets behind a Write", SHORT, lambda c: b"", headers=False,
      before=lambda c: [tagged(WRITE, *c.place("rw"), b"good")], changed=(("rw", (0, 4)),))


@row("a ULPDU of no octets: an error, or ignored; nothing else changes")
def empty(bench):
    case = Case(bench)
    case.peer.fpdu(b"")
    case.peer.fpdu(wire.read_request(1, 1, 2, 0, 0, 0))
    segment = case.peer.segment()
    if segment.opcode == READ_RESPONSE:
        case.session.read_msn = 2
        case.session.alive()
    else:
        check(wire.Terminate(segment).error >> 8 == 0x10, "Terminate")
        case.session.down()
    for memory in case.memory.values():
        memory.untouched()


@row("reserved bits of DDP and RDMAP control octets, and of the Invalidate STag, are ignored")
def reserved_bits(bench):
    case = Case(bench)
    case.peer.fpdu(untagged(SEND | 0x30, 0, 1, 0, b"data", control=0x7D, inv=0x12345678))
    case.sut.completion(1)
    stag, to = case.place("rw")
    case.peer.fpdu(tagged(WRITE | 0x30, stag, to, b"data", control=0xFD))
    case.session.alive()
    check(case.memory["rw"].dump(0, 4) == b"data", "Write")


@row("Send with Invalidate: an STag never issued, of another PD, deregistered, without remote access")
def invalidate(bench):
    # A region is invalidated by its owner alone.
    for name, code in (("nobody", 0x0100), ("foreign", 0x0103), ("gone", 0x0100), ("local", 0x0109), ("rw", 0x0109)):
        for opcode in (SEND_INV, wire.SEND_SE_INV):
            case = Case(bench)
            stag = 0x12345678 if name == "nobody" else case.memory[name].rkey
            ulpdu = untagged(opcode, 0, 1, 0, b"data", inv=stag)
            case.peer.fpdu(ulpdu)
            case.judge(ulpdu, {code}, open_ends=("in",))
            case.sut.quit()


@row("errors on one connection leave the others alone")
def others(bench):
    case = Case(bench)
    first = [Session(bench, sut=case.sut, before=lambda s: s.sut.recv(s.conn, 500, "rw:0:100")) for _ in range(3)]
    case.peer.fpdu(tagged(WRITE, 1, 2, b"data"))
    check(case.peer.terminated().error == STAG, "Terminate")
    case.session.down()
    case.sut.completion(1, FLUSHED)
    case.sut.completion(2, FLUSHED)
    for session in first:
        session.alive()
        session.send(b"fine")
        check(session.sut.completion(500).qp == session.qp, "QP of the completion")


@row("twelve errors one after the other in one program")
def dozen(bench):
    sut = None
    for _ in range(12):
        session = Session(bench, sut=sut)
        sut = session.sut
        session.peer.fpdu(tagged(WRITE, 1, 2, b"data"))
        check(session.peer.terminated().error == STAG, "Terminate")
        session.peer.gone()
        session.down()
        sut.command(f"destroy {session.conn}")


if __name__ == "__main__":
    sys.exit(main())
