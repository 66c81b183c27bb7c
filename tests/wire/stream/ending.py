# SPDX-License-Identifier: MIT
"""The ends of a stream: the peer closes or resets at every stage, uiw disconnects (RFC 5040 section 6.2)."""

import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import ERR, FLUSHED, SUCCESS, Session, Sut, accept, check, listener, main, row, two_receives
from peer.wire import (CRC, ENHANCED, READ_RESPONSE, REPLY, REQUEST, SEND, WRITE, Peer, enhanced, pattern, startup,
                       tagged)

HOWS = ("FIN", "close", "reset")
ENDS = {"REJECTED", "UNREACHABLE", "CONNECT_ERROR", "DISCONNECTED"}
prepare = two_receives()


def end(peer, how):
    if how == "FIN":
        peer.finish()
    else:
        peer.close(reset=how == "reset")


def serves(bench, sut, port):
    """Another peer is served."""
    sut.port = port
    other = Session(bench, sut=sut)
    other.alive()


def each(title):
    """One row for each way to end."""

    def mark(function):
        for how in HOWS:
            def run(bench, how=how):
                function(bench, how)
            row(f"{title}: {how}")(run)
        return function

    return mark


# ---- uiw as responder ------------------------------------------------------------------------------------------------


@each("responder: after the TCP connection")
def after_connect(bench, how):
    sut = Sut(bench, {"UIW_STARTUP_TIMEOUT": "1000"})
    port = sut.listen()
    peer = Peer.call(port)
    end(peer, how)
    sut.nothing(0.2)
    serves(bench, sut, port)


@each("responder: after the request, before the consumer answers")
def after_request(bench, how):
    for answer in ("accept", "reject", "destroy"):
        sut = Sut(bench)
        port = sut.listen()
        peer = Peer.call(port)
        peer.send(startup(REQUEST, CRC | ENHANCED, 2, enhanced(4, 4)))
        conn = sut.event("CONNECT_REQUEST").conn
        sut.command(f"qp {conn}")
        end(peer, how)
        time.sleep(0.1)
        # The call may fail, or succeed and be followed by an event; a half closed stream may even stand for a while.
        text = {"accept": f"accept {conn} 4 4 -", "reject": f"reject {conn} -", "destroy": f"destroy {conn}"}[answer]
        sut.process.popen.stdin.write(text.encode() + b"\n")
        sut.process.popen.stdin.flush()
        kind, _ = sut.wait(lambda: sut.answers.pop(0) if sut.answers else None, 15, f"an answer to {text}")
        check(answer != "destroy" or kind == "ok", "rdma_destroy_id fails")
        if answer == "accept" and kind == "ok":
            event = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "an event")
            if event.name == "ESTABLISHED":
                event = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "an event")
            check(event.name in ENDS, f"{event}")
        sut.pump()
        sut.events.clear()
        serves(bench, sut, port)
        if how == "FIN":
            peer.close()
        sut.quit()


@each("responder: between reply and first FPDU")
def before_first(bench, how):
    session = Session(bench, before=prepare)
    session.sut.post(session.conn, 10, "send", "m:0:10")
    end(session.peer, how)
    session.down()
    for number in (10, 1, 2):
        wc = session.sut.completion(None, None)
        check(wc.wr_id != 10 or wc.status in (SUCCESS, FLUSHED), f"{wc}")
        check(wc.wr_id == 10 or wc.status == FLUSHED, f"{wc}")
    session.sut.memories["m"].untouched()


# ---- both ------------------------------------------------------------------------------------------------------------


@each("idle, with receives posted")
def idle(bench, how):
    for initiator in (False, True):
        session = Session(bench, initiator=initiator, before=prepare).begun()
        end(session.peer, how)
        session.down()
        session.sut.completion(1, FLUSHED)
        session.sut.completion(2, FLUSHED)
        check(how == "reset" or not session.sut.asyncs, f"asynchronous events at an orderly end: {session.sut.asyncs}")
        session.sut.nothing(0.05)
        session.sut.quit()


@each("Reads outstanding")
def reading(bench, how):
    session = Session(bench, initiator=True, before=prepare)
    session.sut.post("call", 10, "read", "m:0:100", rkey=1, addr=2)
    session.sut.post("call", 11, "send", "m:0:100")
    request = wire.read_fields(session.peer.segment())
    session.peer.message(SEND)
    session.peer.fpdu(tagged(READ_RESPONSE, request.sink_stag, request.sink_to, pattern(5, 50), False))
    end(session.peer, how)
    if how == "FIN":  # Verbs draft figure 24: LLP closed while Reads are outstanding; a Terminate 0x0207 may tell
        session.peer._more(10)
        if session.peer.ready:
            check(session.peer.terminated().error == 0x0207, "Terminate")
        session.peer.gone()
    session.down()
    check(session.sut.completion(10, None).status != SUCCESS, "the Read succeeds")
    # In the order posted; the Send behind it has gone, but who could know that it has arrived?
    session.sut.completion(11, None)
    session.sut.completion(1, FLUSHED)
    session.sut.completion(2, FLUSHED)
    session.sut.memories["m"].untouched()


@each("in the middle of a message")
def halfway(bench, how):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"first", False))
    session.peer.fpdu(wire.untagged(SEND, 0, 1, 0, b"half", False))
    session.alive()
    end(session.peer, how)
    session.down()
    session.sut.completion(1, FLUSHED)
    session.sut.completion(2, FLUSHED)
    memory.untouched((0, 2000))


@each("while uiw sends and the peer does not read")
def sending(bench, how):
    session = Session(bench, initiator=True, before=prepare, rcvbuf=8192, crc=False)
    big = session.sut.memory("big", 16 << 20, "l", seed=1)
    for number in range(10, 14):
        session.sut.post("call", number, "send", f"big:0:{big.size}")
    time.sleep(0.1)
    end(session.peer, how)
    if how == "FIN":
        # The peer still reads: what was posted may be sent or not, whole FPDUs only.
        while session.peer._more(10):
            session.peer.ready = b""
    session.down()
    statuses = {}
    for _ in range(6):
        wc = session.sut.completion(None, None)
        statuses[wc.wr_id] = wc.status
    check(sorted(statuses) == [1, 2, 10, 11, 12, 13], f"completions {statuses}")
    check(how == "FIN" or statuses[13] != SUCCESS, "64 MiB went nowhere with success")


@each("while uiw answers a Read and the peer does not read")
def answering(bench, how):
    session = Session(bench, before=prepare, rcvbuf=8192, crc=False)
    big = session.sut.memory("big", 32 << 20, "lr", seed=1)
    session.peer.fpdu(wire.read_request(1, 1, 2, big.size, big.rkey, big.addr))
    time.sleep(0.1)
    end(session.peer, how)
    if how == "FIN":
        while session.peer._more(10):
            session.peer.ready = b""
    session.down()
    session.sut.completion(1, FLUSHED)
    session.sut.completion(2, FLUSHED)


def together(bench, how, whole):
    """Octets and the end arrive in the same moment: the program learns of the end each time, soon."""
    sut = None
    for turn in range(40):
        session = Session(bench, sut=sut, before=None if sut else lambda first: first.sut.memory("m", 4096, "lrw"))
        sut, memory = session.sut, session.sut.memories["m"]
        session.alive()
        octets = wire.fpdu(tagged(WRITE, memory.rkey, memory.addr, pattern(turn, 50)))
        session.peer.send(octets if whole else octets[:31])
        end(session.peer, how)
        try:
            sut.event("DISCONNECTED", session.conn, 3)
        except wire.Failure:
            check(False, f"round {turn + 1}: no DISCONNECTED in 3 s, QP state {sut.state(session.conn)}")
        check(not whole or how == "reset" or memory.dump(0, 50) == pattern(turn, 50), "the Write before the end")


for _how in HOWS:
    row(f"a whole FPDU and the end at once: {_how}", how=_how, whole=True)(together)
    row(f"half an FPDU and the end at once: {_how}", how=_how, whole=False)(together)


@row("what came before FIN is placed and completes")
def last_words(bench):
    session = Session(bench, before=prepare)
    memory = session.sut.memories["m"]
    session.peer.send(wire.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"last words"))
                      + wire.fpdu(wire.untagged(SEND, 0, 1, 0, b"bye")))
    session.peer.finish()
    check(session.sut.completion(1).length == 3, "the Send")
    session.sut.completion(2, FLUSHED)
    session.down()
    check(memory.dump(0, 10) == b"last words" and memory.dump(1000, 3) == b"bye", "memory")
    check(not session.sut.asyncs, f"asynchronous events {session.sut.asyncs}")


def sending(bench, initiator):
    """A session of uiw in either role, with Sends 10 to 14 posted."""
    session = Session(bench, initiator=initiator, before=prepare).begun()
    for number in range(10, 15):
        session.sut.post(session.conn, number, "send", "m:0:5000")
    return session


# ---- uiw ends --------------------------------------------------------------------------------------------------------


@row("rdma_disconnect: FIN behind what was posted, no Terminate")
def disconnect(bench):
    for initiator in (False, True):
        session = sending(bench, initiator)
        session.sut.command(f"disconnect {session.conn}")
        for number in range(5):
            first, payload = session.peer.message(SEND)
            check(first.msn == number + 1 and payload == pattern(5, 5000), f"{first}")
        check(session.peer.gone() == "fin", "reset")
        session.peer.close()
        session.sut.event("DISCONNECTED")
        statuses = {}
        for _ in range(7):
            wc = session.sut.completion(None, None)
            statuses[wc.wr_id] = wc.status
        check(statuses == {1: FLUSHED, 2: FLUSHED, **{n: SUCCESS for n in range(10, 15)}}, f"completions {statuses}")
        check(not session.sut.asyncs, f"asynchronous events {session.sut.asyncs}")
        check(session.sut.state(session.conn) == ERR, "QP state")
        session.sut.quit()


@row("a Terminate that the peer does not read: the connection is reset in bounded time")
def terminate_deaf(bench):
    session = Session(bench, before=prepare, rcvbuf=8192, crc=False)
    big = session.sut.memory("big", 16 << 20, "lr", seed=1)
    session.peer.fpdu(wire.read_request(1, 1, 2, big.size, big.rkey, big.addr))
    session.peer.fpdu(tagged(WRITE, 0x12345678, 0, b"x"))
    session.sut.event("DISCONNECTED")
    session.peer.reset(15)


@row("what was sent before the program disconnects, destroys all and exits arrives, although the peer still sends",
     destroys=True)
@row("what was sent before the program disconnects and exits arrives, although the peer still sends", destroys=False)
def exits(bench, destroys):
    session = Session(bench, rcvbuf=2048, before=prepare)
    session.send(pattern(1, 10))
    session.sut.completion(1)
    session.sut.post(session.conn, 10, "send", "m:0:20000")
    session.sut.completion(10)  # TCP has it, and the peer's window has no room for most of it
    session.sut.command(f"disconnect {session.conn}")
    session.sut.over = True
    if destroys:
        session.sut.command("quit")
    else:
        session.sut.process.popen.stdin.close()
    session.send(pattern(2, 10))
    check(session.peer.message(SEND)[1] == pattern(5, 20000), "the message")
    check(session.peer.gone() == "fin", "the stream is reset")
    session.peer.close()
    check(session.sut.process.wait(5) == (0 if destroys else 1), "the program fails")


@row("rdma_disconnect while the peer keeps its side open: the end comes in bounded time, and is a reset, with an event")
def disconnect_alone(bench):
    session = Session(bench, before=prepare)
    session.alive()
    session.sut.command(f"disconnect {session.conn}")
    check(session.peer.gone() == "fin", "reset")
    session.sut.event("DISCONNECTED")
    for number in (1, 2):
        session.sut.completion(number, FLUSHED)
    check(session.sut.state(session.conn) == ERR, "QP state")
    session.peer.reset(15)
    session.qp_event()
    session.sut.nothing(0.05)
    check(session.sut.asyncs == [(1, session.qp)], f"asynchronous events {session.sut.asyncs}")


@row("ibv_modify_qp to ERR: what has completed reaches the peer, then FIN")
def modified(bench):
    for initiator in (False, True):
        session = sending(bench, initiator)
        for number in range(10, 15):
            session.sut.completion(number)
        session.sut.command(f"fail {session.conn}")
        for number in (1, 2):
            session.sut.completion(number, FLUSHED)
        for number in range(5):
            first, payload = session.peer.message(SEND)
            check(first.msn == number + 1 and payload == pattern(5, 5000), f"{first}")
        check(session.peer.gone() == "fin", "reset")
        session.down()
        check(not session.sut.asyncs, f"asynchronous events {session.sut.asyncs}")
        session.sut.quit()


@row("rdma_destroy_id and the end of the program close the stream")
def destroy(bench):
    session = Session(bench, before=prepare)
    session.sut.command(f"destroy {session.conn}")
    session.peer.gone()
    session = Session(bench, before=prepare)
    session.sut.quit()
    session.peer.gone()
    session = Session(bench, before=prepare)
    session.sut.process.kill()
    session.sut.over = True
    session.peer.gone()


@row("uiw as initiator: the peer closes right after its reply")
def behind_reply(bench):
    for how in HOWS:
        sut = Sut(bench)
        with listener() as heard:
            sut.command(f"resolve call 127.0.0.1 {heard.getsockname()[1]}")
            sut.command("qp call")
            sut.command("connect call 4 4 -")
            peer = accept(bench, heard)
        peer.startup()
        peer.send(startup(REPLY, CRC | ENHANCED, 2, enhanced(4, 4)))
        end(peer, how)
        event = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "an event")
        if event.name == "ESTABLISHED":
            event = sut.wait(lambda: sut.events.pop(0) if sut.events else None, 15, "an event")
        check(event.name in ENDS, f"{event}")
        sut.nothing(0.05)
        sut.quit()


if __name__ == "__main__":
    sys.exit(main())
