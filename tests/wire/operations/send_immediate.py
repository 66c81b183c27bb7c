# SPDX-License-Identifier: MIT
"""Send with immediate, which iWARP has not: how two ends of uiw find each other, its octets, its completions, and that
no other peer ever sees it."""

import errno
import pathlib
import sys
from functools import partial

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.faults import MSN_ERRORS, UNEXPECTED, error
from peer.sut import (FLUSHED, LOC_ACCESS_ERR, LOC_LEN_ERR, LOC_PROT_ERR, REM_INV_REQ_ERR, SIZES, WC_RECV, WC_SEND,
                      PATIENCE, Responder, Session, check, check_immediate, fpdu_comes, incoming, main, outgoing,
                      post_in_turn, row)
from peer.wire import (HELLO_STAG, HELLO_TO, IMMEDIATE, READ_REQUEST, SEND, SEND_IMM, SEND_INV, SEND_SE, SEND_SE_IMM,
                       WRITE, pattern, tagged, untagged, verbs_immediate)

VALUES = (0, 1, 0x01020304, 0x04030201, 0x80000000, 0xFFFFFFFF, 0x00FF00FF)

# Both ends are uiw.
outgoing = partial(outgoing, uiw=True)
incoming = partial(incoming, uiw=True)


def expect(peer, msn, payload, value, se=False):
    first, sent = peer.message(SEND_SE_IMM if se else SEND_IMM)
    check((first.qn, first.msn) == (0, msn), f"{first}: MSN {msn} of queue 0 is due")
    check(first.inv == value, f"immediate data {first.inv:#010x}, not {value:#010x}")
    check(sent == payload, f"{len(sent)} octets come, not those {len(payload)} that were posted")


def judge(wc, value, length):
    check_immediate(wc, WC_RECV, value, length)


# ---- out -------------------------------------------------------------------------------------------------------------


@row("the octets of the message, all of them")
def octets_out(bench):
    for flags, control in (("-", "4f"), ("s", "4e")):
        session, sut, peer = outgoing(bench)
        sut.command("poke m 0 0102030405")
        sut.post("call", 1, "send_imm", "m:0:5", imm=0xA1B2C3D4, flags=flags)
        want = bytes.fromhex("0017" "41" + control + "a1b2c3d4" "00000000" "00000001" "00000000" "0102030405" "000000")
        fpdu_comes(peer, want)
        sut.quit()


def sizes_out(bench, **more):
    session, sut, peer = outgoing(bench, **more)
    for number, size in enumerate(SIZES, 1):
        value = VALUES[number % len(VALUES)]
        sut.post("call", number, "send_imm", f"m:{number}:{size}", imm=value)
        expect(peer, number, pattern(11 + number, size), value)
        wc = sut.completion(number)
        check(wc.opcode == WC_SEND, f"{wc}")
    sut.nothing(0.05)
    session.hang_up()


row("every size, also of no octets: one completion each")(sizes_out)
row("every size, CRC off", crc=False)(sizes_out)
row("every size, small FPDUs", env={"UIW_MULPDU": "256"})(sizes_out)
row("every size, the RTR is a Read", p2p="read")(sizes_out)


@row("uiw is called")
def responder_out(bench):
    session, sut, peer = incoming(bench)
    session.alive()  # the responder sends after the peer
    sut.post(session.conn, 1, "send_imm", "m:0:100", imm=5)
    expect(peer, 1, pattern(17, 100), 5)
    sut.completion(1)


@row("several SGEs, inline, unsignaled, solicited")
def sges_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "send_imm", "m:0:3", "m:1000:0", "m:7:500", "m:9999:77", imm=1)
    expect(peer, 1, pattern(11, 3) + pattern(18, 500) + pattern(10010, 77), 1)
    sut.completion(1)
    sut.post("call", 2, "send_imm", "m:5:60", "m:500:40", imm=2, flags="i")
    sut.command("fill m 99")  # the octets inline are those of the call
    expect(peer, 2, pattern(16, 60) + pattern(511, 40), 2)
    sut.completion(2)
    sut.command("fill m 11")
    sut.post("call", 3, "send_imm", "m:5:60", imm=3, flags="ius")
    sut.post("call", 4, "send_imm", imm=4, flags="u")
    sut.post("call", 5, "send", "m:7:1")
    expect(peer, 3, pattern(16, 60), 3, True)
    expect(peer, 4, b"", 4)
    check(peer.message(SEND)[0].msn == 5, "the Send behind")
    sut.completion(5)
    sut.nothing()


@row("all kinds of Send share the MSN of queue 0, in the order posted")
def msn_out(bench):
    session, sut, peer = outgoing(bench)
    post_in_turn(sut, [("send", {}), ("send_inv", {"rkey": 5}), ("write_imm", {"rkey": 5, "addr": 6}), ("send_imm", {})])
    for number in range(1, 41):
        data = pattern(11 + number, 30)
        if number % 4 == 3:
            expect(peer, number, data, number)
        elif number % 4 == 2:
            check(peer.message(WRITE)[1] == data, f"Write {number}")
            segment = peer.segment()
            check((segment.opcode, segment.msn, segment.payload) == (IMMEDIATE, number, verbs_immediate(number)),
                  f"Immediate Data {number}: {segment}")
        else:
            first, payload = peer.message((SEND, SEND_INV)[number % 4])
            check((first.msn, payload) == (number, data), f"message {number}: {first}")
        sut.completion(number)


@row("fence holds it back")
def fence_out(bench):
    session, sut, peer = outgoing(bench)
    responder = Responder(peer)
    sut.post("call", 1, "read", "m:0:4", rkey=1, addr=0)
    sut.post("call", 2, "send_imm", "m:0:4", imm=9, flags="f")
    responder.hear(READ_REQUEST)
    peer.quiet(0.2)
    responder.answer(b"abcd")
    expect(peer, 1, b"abcd", 9)
    sut.completion(1)
    sut.completion(2)


@row("a bad local SGE: it is not sent")
def local_error_out(bench):
    session, sut, peer = outgoing(bench)
    sut.command("pd other")
    sut.memory("foreign", 4096, "l", "other")
    sut.post("call", 1, "send_imm", "m:0:8", imm=1)
    sut.post("call", 2, "send_imm", "foreign:0:8", imm=2)
    sut.post("call", 3, "send_imm", "m:0:8", imm=3)
    expect(peer, 1, pattern(11, 8), 1)
    term = peer.terminated()
    check((term.layer, term.etype) == (0, 0) and not (term.m or term.d or term.r), f"{term}")
    sut.completion(1)
    sut.completion(2, {LOC_PROT_ERR, LOC_ACCESS_ERR, LOC_LEN_ERR})
    sut.completion(3, FLUSHED)
    session.down()
    sut.post("call", 4, "send_imm", "m:0:8", imm=4)  # to a QP in error
    sut.completion(4, FLUSHED)


@row("the peer terminates and names it: the work behind a Read that is not answered fails")
def terminated_out(bench):
    session, sut, peer = outgoing(bench)
    sut.post("call", 1, "read", "m:0:4", rkey=1, addr=0)
    sut.post("call", 2, "send_imm", "m:0:8", imm=1)
    Responder(peer).hear(READ_REQUEST)
    ulpdu = peer.segment().ulpdu
    peer.fpdu(wire.terminate(0, 2, 6, ulpdu[:18], len(ulpdu)))
    check(peer.gone() in ("fin", "reset"), "the stream stands")
    session.down()
    sut.completion(1, FLUSHED)
    sut.completion(2, REM_INV_REQ_ERR)


# ---- in --------------------------------------------------------------------------------------------------------------


def sizes_in(bench, **more):
    session, sut, peer = incoming(bench, **more)
    if session.conn == "call":  # the peer has not heard from uiw, which may send first
        session.alive()
    memory = sut.memories["in"]
    number = 0
    for chunk in (None, 700, 1):
        for size in SIZES:
            if size > 1000 and chunk == 1:
                continue
            number += 1
            memory.fill(29)
            sut.recv(session.conn, number, f"in:100:{size // 2}", "in:5:0", f"in:30000:{size - size // 2 + 3}")
            data, value = pattern(number * 3, size), 0xA0B0C000 + number
            session.send(data, (SEND_IMM, SEND_SE_IMM)[number % 2], chunk, inv=value)
            wc = sut.completion(number)
            judge(wc, value, size)
            check(wc.qp == session.qp, f"{wc}: QP")
            got = memory.dump(100, size // 2) + memory.dump(30000, size - size // 2)
            check(got == data, f"{size} octets in segments of {chunk}")
            check(memory.dump(30000 + size - size // 2, 3) == pattern(30029 + size - size // 2, 3), "behind them")
    sut.nothing(0.05)
    session.alive()
    session.hang_up()


row("in of every size, in one segment and in several")(sizes_in)
row("in of every size, CRC off", crc=False)(sizes_in)
row("in of every size, the RTR is a Read", p2p="read")(sizes_in)
row("in of every size, uiw has called", initiator=True)(sizes_in)


@row("solicited wakes a consumer that asked for solicited events only, the other does not")
def solicited_in(bench):
    session, sut, peer = incoming(bench, range(1, 6))
    sut.command("notify solicited")
    # The CQ was armed for any completion first, and the weaker request does not undo that: the first one tells.
    session.send(b"1", SEND_IMM, inv=1)
    judge(sut.completion(1), 1, 1)
    sut.asleep()
    session.send(b"22", SEND_IMM, inv=2)
    session.alive()
    sut.nothing(0.2)
    session.send(b"333", SEND_SE_IMM, inv=3)
    judge(sut.completion(2), 2, 2)
    judge(sut.completion(3), 3, 3)
    session.send(b"", SEND_SE_IMM, inv=4)
    judge(sut.completion(4), 4, 0)
    sut.asleep()
    session.send(b"", SEND_IMM, inv=5)
    session.alive()
    sut.nothing(0.2)


@row("no receive posted: the stream waits and resumes")
def pause_in(bench):
    session, sut, peer = incoming(bench)
    for number in range(1, 21):
        session.send(pattern(number, number * 50), SEND_IMM, 300, inv=number)
    sut.nothing(0.1)
    for number in range(1, 21):
        sut.recv(session.conn, number, "in:0:1000")
        judge(sut.completion(number), number, number * 50)
        check(sut.memories["in"].dump(0, number * 50) == pattern(number, number * 50), f"message {number}")
    session.alive()


@row("among Sends, Writes and Immediate Data: order, MSN, flags, and no length of a Write before it")
def mixed_in(bench):
    session, sut, peer = incoming(bench, range(1, 41))
    memory = sut.memories["m"]
    for number in range(1, 41):
        kind = number % 4
        if kind == 0:
            session.send(bytes(number), SEND)
        elif kind == 1:
            session.send(bytes(number), SEND_SE)
        else:
            peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, bytes(70)))
            if kind == 2:
                session.send(bytes(number), SEND_IMM, 9, inv=number)
            else:
                session.immediate(verbs_immediate(number))
    for number in range(1, 41):
        wc = sut.completion(number)
        kind = number % 4
        if kind == 2:
            judge(wc, number, number)
        elif kind < 2:
            check((wc.opcode, wc.length, wc.flags) == (WC_RECV, number, 0), f"{wc}")
        else:
            check((wc.extra, wc.length) == (number, 70), f"{wc}")


@row("the control octet's reserved bits are ignored")
def reserved_in(bench):
    session, sut, peer = incoming(bench, range(1, 5))
    for number, opcode in enumerate((SEND_IMM | 0x20, SEND_SE_IMM | 0x20, SEND_IMM | 0x10, SEND_SE_IMM | 0x30), 1):
        peer.fpdu(untagged(opcode, 0, number, 0, b"abc", inv=number))
        judge(sut.completion(number), number, 3)


# The receive that the message consumes may hold anything; what is behind its 256 octets may not change.
AGREED = {"uiw": True, "changed": (("in", (1000, 1256)),)}

for _msn in (0, 2, 0xFFFFFFFF):
    error(f"agreed: MSN {_msn:#x} where 1 is due", MSN_ERRORS, lambda c, n=_msn: untagged(SEND_IMM, 0, n, 0, b"data"),
          **AGREED)
error("agreed: longer than the receive", {0x1205}, lambda c: untagged(SEND_IMM, 0, 1, 0, bytes(257)), **AGREED)
for _qn in (1, 2, 3):
    error(f"agreed: on queue {_qn}", {UNEXPECTED},
          lambda c, qn=_qn: untagged(SEND_IMM, qn, 1, 0, b"data"), **AGREED)
error("agreed: tagged", {UNEXPECTED}, lambda c: tagged(SEND_IMM, *c.place("rw"), b"data"), **AGREED)
for _first, _second in ((SEND, SEND_IMM), (SEND_IMM, SEND), (SEND_IMM, SEND_SE_IMM), (SEND_SE_IMM, SEND_IMM)):
    error(f"agreed: a message begun as {_first:#x} goes on as {_second:#x}", {UNEXPECTED},
          lambda c, opcode=_second: untagged(opcode, 0, 1, 4, b"rest"),
          before=lambda c, opcode=_first: [untagged(opcode, 0, 1, 0, b"half", False)], **AGREED)


# ---- not agreed ------------------------------------------------------------------------------------------------------


def not_agreed(bench, reserved=0, initiator=True, **more):
    def before(session):
        session.sut.memory("in", 4096, "l", seed=3)
        session.sut.recv(session.conn, 100, "in:0:100")

    session = Session(bench, initiator=initiator, reserved=reserved, before=before, **more)
    sut, peer, conn = session.sut, session.peer, session.conn
    session.alive()
    sut.memory("m", 4096, "l", seed=11)
    sut.post(conn, 1, "send_imm", "m:0:8", imm=1, errno={errno.EOPNOTSUPP})
    sut.post(conn, 2, "send_imm", imm=1, flags="is", errno={errno.EOPNOTSUPP})
    # Of a list, what stands before it is posted.
    sut.post(conn, 3, "send", "m:0:8", flags="c")
    sut.post(conn, 4, "send_imm", "m:0:8", imm=1, flags="c")
    sut.post(conn, 5, "send", "m:0:8", errno={errno.EOPNOTSUPP})
    check(peer.message(SEND)[1] == pattern(11, 8), "the Send before")
    sut.completion(3)
    sut.nothing(0.05)
    session.alive()
    # What the peer sends all the same is an unexpected opcode.
    ulpdu = untagged(SEND_IMM, 0, session.send_msn, 0, b"data", inv=5)
    peer.fpdu(ulpdu)
    term = peer.terminates({UNEXPECTED})
    check(term.ddp == ulpdu[:18], f"{term}: {term.ddp.hex()}")
    session.down()
    sut.completion(100, FLUSHED)
    sut.memories["in"].untouched()


for _initiator in (True, False):
    for _revision in (2, 1):
        row(f"not agreed: refused at the call; uiw {'calls' if _initiator else 'is called'}, revision {_revision}",
            initiator=_initiator, revision=_revision,
            env={"UIW_MPA_REVISION": str(_revision)} if _initiator else None)(not_agreed)
row("not agreed: a peer whose reply has all reserved flags set", reserved=0x0F)(not_agreed)
row("not agreed: a peer whose request has reserved flags set", reserved=0x07, initiator=False)(not_agreed)
for _kind in ("write", "read"):
    row(f"not agreed: a peer that calls, and whose RTR is a {_kind} without a hello", p2p=_kind, initiator=False)(not_agreed)


# ---- not known yet ---------------------------------------------------------------------------------------------------

LOC_QP_OP_ERR = 2


def waits(bench, **more):
    """uiw calls, the peer has the RTR and says nothing. Send with immediate waits, what stands before it does not."""
    session, sut, peer = Session(bench, initiator=True, p2p="write", **more)
    sut.memory("m", 4096, "lrw", seed=11)
    session.hear_hello("write")
    sut.post("call", 1, "send", "m:0:8")
    check(peer.message(SEND)[1] == pattern(11, 8), "the Send before")
    sut.completion(1)
    sut.post("call", 2, "send_imm", "m:8:8", imm=9)
    sut.post("call", 3, "send", "m:0:8")
    peer.quiet(0.3)
    sut.nothing(0)
    return session


@row("not known yet: it waits for the peer's hello")
def then_hello(bench):
    session = waits(bench)
    session.peer.fpdu(tagged(WRITE, HELLO_STAG, HELLO_TO))
    expect(session.peer, 2, pattern(19, 8), 9)
    check(session.peer.message(SEND)[0].msn == 3, "the Send behind")
    session.sut.completion(2)
    session.sut.completion(3)


def fails(session):
    """The work that has waited, and the connection with it."""
    session.peer.terminated(skip=(wire.READ_RESPONSE,))
    session.sut.completion(2, LOC_QP_OP_ERR)
    session.sut.completion(3, FLUSHED)
    session.down()


def then_other(bench, message):
    session = waits(bench)
    session.peer.fpdu(message(session.sut.memories["m"]))
    fails(session)


for _title, _message in {
        "a Write of no octets": lambda m: tagged(WRITE, 0, 0),
        "a Write of no octets to the STag of a hello": lambda m: tagged(WRITE, HELLO_STAG, HELLO_TO + 1),
        "a Write": lambda m: tagged(WRITE, m.rkey, m.addr, b"data"),
        "a Read Request": lambda m: wire.read_request(1, 1, 2, 4, m.rkey, m.addr)}.items():
    row(f"not known yet: it fails where the peer's first message is {_title}", message=_message)(then_other)


@row("not known yet: it fails where the peer says nothing for as long as a start-up may take")
def then_nothing(bench):
    fails(waits(bench, env={"UIW_STARTUP_TIMEOUT": "2000"}))


@row("not known yet: it fails where the program disconnects, and the peer says nothing")
def then_disconnects(bench):
    session = waits(bench)
    session.sut.command("disconnect call")
    fails(session)


@row("not known yet: a peer that has been silent for too long may still say hello")
def silent_at_first(bench):
    log = pathlib.Path(bench.tmp) / "log"
    env = {"UIW_STARTUP_TIMEOUT": "2000", "UIW_LOG": str(log), "UIW_LOG_LEVEL": "info"}
    session = Session(bench, initiator=True, p2p="write", env=env)
    session.hear_hello("write")
    session.sut.memory("m", 4096, "lrw", seed=11)
    wire.wait_until(lambda: "counts as no uiw" in log.read_text(), PATIENCE, "the time of the start-up is over")
    session.sut.post("call", 1, "send_imm", "m:0:8", imm=1, errno={errno.EOPNOTSUPP})
    session.peer.fpdu(tagged(WRITE, HELLO_STAG, HELLO_TO))
    session.alive()
    session.sut.post("call", 2, "send_imm", "m:0:8", imm=2)
    expect(session.peer, 1, pattern(11, 8), 2)
    session.sut.completion(2)


@row("not known yet: a hello that is not the first message is a Write of no octets")
def late_hello(bench):
    session = Session(bench, initiator=True, p2p="write")
    session.hear_hello("write")
    session.alive()
    session.sut.memory("m", 4096, "lrw", seed=11)
    for _ in range(2):
        session.peer.fpdu(tagged(WRITE, HELLO_STAG, HELLO_TO))
        session.sut.post("call", 1, "send_imm", "m:0:8", imm=1, errno={errno.EOPNOTSUPP})
        session.alive()

for _opcode in (SEND_IMM, SEND_SE_IMM):
    for _last in (True, False):
        error(f"not agreed: opcode {_opcode:#x}{'' if _last else ', more to come'}", {UNEXPECTED},
              lambda c, opcode=_opcode, last=_last: untagged(opcode, 0, 1, 0, b"data", last, inv=5))


if __name__ == "__main__":
    sys.exit(main())
