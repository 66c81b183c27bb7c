# SPDX-License-Identifier: MIT
"""Flow: a message without a receive pauses its stream (Verbs draft 13.2); a peer that does not read makes uiw wait."""

import pathlib
import sys
import time
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import FLUSHED, SUCCESS, Session, check, main, processor_time, row
from peer.wire import CLOSE_WAIT, READ_RESPONSE, SEND, WRITE, fpdu, pattern, tagged, untagged, wait_until


def prepare(session):
    session.sut.memory("m", 65536, "lrw", seed=5)
    session.sut.memory("in", 65536, "l", seed=6)


def pause(bench, spin, initiator):
    session = Session(bench, initiator=initiator, before=prepare)
    sut, peer, conn = session.sut, session.peer, session.conn
    if spin:
        sut.command("spin on")
    session.send(b"first")
    memory = sut.memories["m"]
    peer.fpdu(tagged(WRITE, memory.rkey, memory.addr, b"behind"))
    session.send(b"second")
    peer.fpdu(wire.read_request(1, 1, 2, 6, memory.rkey, memory.addr))
    session.read_msn = 2
    peer.quiet(0.3)  # no answer, no Terminate
    sut.nothing(0.05)
    sut.recv(conn, 1, "in:0:100")
    check(sut.completion(1).length == 5, "the first Send")
    peer.quiet(0.2)
    check(memory.dump(0, 6) == b"behind", "the Write behind the first Send")
    sut.recv(conn, 2, "in:100:100")
    check(sut.completion(2).length == 6, "the second Send")
    check(peer.message(READ_RESPONSE)[1] == b"behind", "the Read behind the second Send")
    check(sut.memories["in"].dump(0, 5) + sut.memories["in"].dump(100, 6) == b"firstsecond", "memory")
    session.alive()
    check(not sut.asyncs, f"asynchronous events {sut.asyncs}")


for _spin in (False, True):
    for _initiator in (False, True):
        row("no receive posted: the stream pauses and resumes" + (", a consumer that polls" if _spin else "")
            + (", uiw called" if _initiator else ""), spin=_spin, initiator=_initiator)(pause)


@row("no receive posted: TCP pushes back, and all comes when receives do", count=300)
def push_back(bench, count):
    session, sut, peer = Session(bench, before=prepare, crc=False)
    stream = b"".join(fpdu(untagged(SEND, 0, number, 0, pattern(number, 60000)), False)
                      for number in range(1, count + 1))
    peer.socket.setblocking(False)
    sent, still = 0, time.monotonic()
    while sent < len(stream) and time.monotonic() - still < 0.5:
        try:
            sent += peer.socket.send(stream[sent:sent + (1 << 20)])
            still = time.monotonic()
        except BlockingIOError:
            time.sleep(0.005)
    check(sent < len(stream), f"{sent} octets were taken with no receive posted")
    sut.nothing(0.05)
    for number in range(1, count + 1):
        sut.recv(session.conn, number, "in:0:60000")
        end = time.monotonic() + 15
        while not sut.completions and time.monotonic() < end:
            try:
                if sent < len(stream):
                    sent += peer.socket.send(stream[sent:sent + (1 << 18)])
            except BlockingIOError:
                pass
            sut.pump()
        check(sut.completion(number).length == 60000, "length")
        if number % 50 == 1:
            check(sut.memories["in"].hash(0, 60000) == zlib.crc32(pattern(number, 60000)), f"Send {number}")
    check(sent == len(stream), "not all was sent")


@row("no receive posted: a paused stream costs no processor, other streams go on")
def pause_cost(bench):
    session = Session(bench, before=prepare)
    session.send(b"waits")
    session.peer.taken()
    session.send(b"waits")
    other = Session(bench, sut=session.sut)
    other.alive()
    before = processor_time(session.sut.process)
    for _ in range(3):
        time.sleep(0.3)
        other.alive()
    used = processor_time(session.sut.process) - before
    check(used < 0.3, f"{used:.2f} s of processor in 0.9 s of waiting")
    session.sut.recv(session.conn, 1, "in:0:10")
    session.sut.completion(1)


@row("no receive posted: what uiw itself sends goes on")
def pause_sends(bench):
    session = Session(bench, initiator=True, before=prepare)
    session.send(b"waits")
    session.sut.post("call", 10, "send", "m:0:100")
    session.sut.post("call", 11, "write", "m:0:100", rkey=1, addr=2)
    session.peer.message(SEND)
    session.peer.message(WRITE)
    session.sut.completion(10)
    session.sut.completion(11)


@row("no receive posted, in the middle of a message of several segments")
def pause_segments(bench):
    session = Session(bench, before=prepare)
    data = pattern(1, 5000)
    session.send(data[:7])
    session.peer.taken()
    session.send(data, chunk=700)
    session.sut.recv(session.conn, 1, "in:0:100")
    session.sut.completion(1)
    session.sut.nothing(0.1)
    session.sut.recv(session.conn, 2, "in:1000:5000")
    session.sut.completion(2)
    check(session.sut.memories["in"].dump(1000, 5000) == data, "memory")


def pause_end(bench, how):
    """The peer goes while its message waits. The end must be seen; nothing was delivered."""
    session = Session(bench, before=prepare)
    session.send(b"waits")
    session.peer.taken()
    if how == "reset":
        session.peer.close(reset=True)
        session.down()
        session.sut.recv(session.conn, 1, "in:0:10")
        check(session.sut.completion(1, None).status in (SUCCESS, FLUSHED), "completion")
    else:
        session.peer.finish()
        wait_until(lambda: session.peer.other_end()[0] == CLOSE_WAIT, 15, "the FIN is there")
        session.peer.close()
        session.sut.recv(session.conn, 1, "in:0:10")
        wc = session.sut.completion(1, None)  # the message came before FIN, so it may be delivered
        check(wc.status in (SUCCESS, FLUSHED), f"{wc}")
        session.down()


row("no receive posted, and the peer closes", how="close")(pause_end)
row("no receive posted, and the peer resets", how="reset")(pause_end)


@row("no receive posted, and rdma_disconnect")
def pause_disconnect(bench):
    session = Session(bench, before=prepare)
    session.send(b"waits")
    session.peer.taken()
    session.sut.command(f"disconnect {session.conn}")
    session.peer.gone()
    session.peer.close()
    session.sut.event("DISCONNECTED")


# ---- a peer that does not read ---------------------------------------------------------------------------------------


def slow_reader(bench, op, spin):
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=False, rcvbuf=8192)
    big = sut.memory("big", 16 << 20, "l", seed=1)
    if spin:
        sut.command("spin on")
    for number in range(3):
        sut.post("call", number, op, f"big:0:{big.size}", rkey=9, addr=1 << 40)
    time.sleep(0.2)
    sut.pump()
    check(not [wc for wc in sut.completions if wc.wr_id == 2], "48 MiB went into a window of 8 KiB")
    if not spin:
        before = processor_time(sut.process)
        time.sleep(1)
        used = processor_time(sut.process) - before
        check(used < 0.3, f"{used:.2f} s of processor in 1 s of waiting")
    # The other direction works all the while.
    peer.fpdu(tagged(WRITE, sut.memories["m"].rkey, sut.memories["m"].addr, b"still here"))
    sut.recv("call", 100, "in:0:100")
    session.send(b"and here")
    sut.wait(lambda: next((True for wc in sut.completions if wc.wr_id == 100), None), 15, "the Send of the peer")
    check(sut.memories["m"].dump(0, 10) == b"still here", "the Write of the peer")
    opcode = {"send": SEND, "write": WRITE}[op]
    for number in range(3):
        check(peer.message(opcode)[1] == pattern(1, big.size), f"message {number}")
    sut.pump()
    sut.completions = [wc for wc in sut.completions if wc.wr_id != 100]
    for number in range(3):
        sut.completion(number)
    session.hang_up()


row("the peer does not read: Sends wait", op="send", spin=False)(slow_reader)
row("the peer does not read: Writes wait", op="write", spin=False)(slow_reader)
row("the peer does not read: Sends of a consumer that polls wait", op="send", spin=True)(slow_reader)


@row("the peer does not read: answers to its Reads wait; memory that changes meanwhile is sent with a right CRC")
def slow_answers(bench):
    session = Session(bench, before=prepare, rcvbuf=8192)
    big = session.sut.memory("big", 2 << 20, "lr", seed=1)
    for number in range(1, 5):
        session.peer.fpdu(wire.read_request(number, number, 2, big.size, big.rkey, big.addr))
    session.peer.taken()
    for seed in range(5):
        big.fill(seed)
    for number in range(1, 5):  # every FPDU with a right CRC
        first, payload = session.peer.message(READ_RESPONSE)
        check(first.stag == number and len(payload) == big.size, f"{first}")
    session.hang_up()


@row("neither end reads for a while: both directions get through in the end")
def floods(bench):
    session, sut, peer = Session(bench, initiator=True, before=prepare, crc=False, rcvbuf=8192)
    big = sut.memory("big", 8 << 20, "lrw", seed=1)
    sut.post("call", 1, "write", f"big:0:{big.size}", rkey=9, addr=0)
    data = pattern(77, 4 << 20)
    target = sut.memory("target", 4 << 20, "lrw", seed=2)
    peer.send_message(WRITE, data, 32000, stag=target.rkey, to=target.addr)  # without reading
    check(peer.message(WRITE)[1] == pattern(1, big.size), "what uiw wrote")
    sut.completion(1)
    session.alive()
    check(target.hash() == zlib.crc32(data), "what the peer wrote")


@row("one octet read at a time")
def crawl(bench):
    session = Session(bench, initiator=True, before=prepare, rcvbuf=4096)
    session.sut.post("call", 1, "send", "m:0:20000")
    octets = b""
    peer = session.peer
    peer.socket.settimeout(10)
    while len(octets) < 20000:
        octets += peer.socket.recv(13)
    peer.ready = octets
    check(peer.message(SEND)[1] == pattern(5, 20000), "Send")
    session.sut.completion(1)


if __name__ == "__main__":
    sys.exit(main())
