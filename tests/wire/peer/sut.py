# SPDX-License-Identifier: MIT
"""The system under test as the rows see it: uiw_wire_target under uiw, and a connection between it and a Peer."""

import os
import socket
import subprocess
import sys
import time

from peer import wire  # also makes support importable
from support import harness
from support.harness import Failure, check
from peer.wire import PATIENCE, Peer

# enum ibv_wc_status, ibv_wc_opcode, ibv_qp_state, ibv_event_type
SUCCESS, LOC_LEN_ERR, LOC_PROT_ERR, FLUSHED = 0, 1, 4, 5
LOC_ACCESS_ERR, REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR = 8, 9, 10, 11
WC_SEND, WC_WRITE, WC_READ, WC_COMPARE_SWAP, WC_FETCH_ADD, WC_RECV, WC_RECV_IMMEDIATE = 0, 1, 2, 3, 4, 128, 129
WC_GRH, WC_WITH_IMM, WC_WITH_INV = 1, 2, 8
RESET, INIT, RTR, RTS, ERR = 0, 1, 2, 3, 6
FAR, FAR_ADDRESS = 0xC0FFEE77, 0xFEDCBA9876543210  # a tagged buffer of the peer
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 31, 100, 1000, 1441, 4096, 20000)  # of messages
QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR = QP_EVENTS = range(1, 4)


def processor_time(process):
    """Seconds of processor that a process has used."""
    with open(f"/proc/{process.pid}/stat") as stat:
        column = stat.read().rsplit(")", 1)[1].split()
    return (int(column[11]) + int(column[12])) / 100


class Completion:
    """extra: the immediate data, its first octet on the wire the most significant, or the STag invalidated.
    source: the number of the queue pair that sent a datagram."""

    def __init__(self, words):
        self.wr_id, self.status, self.opcode, self.length, self.flags, self.qp, self.extra, self.source = (
            int(word, 0) for word in words)

    def __repr__(self):
        return f"wc {self.wr_id} status {self.status} opcode {self.opcode} length {self.length} flags {self.flags}"


class Event:
    def __init__(self, words):
        self.name, self.conn = words[0], words[1]
        self.status, self.responder_resources, self.initiator_depth = (int(word) for word in words[2:5])
        self.private = b"" if words[5] == "-" else bytes.fromhex(words[5])

    def __repr__(self):
        return f"event {self.name} {self.conn} {self.status}"


class Memory:
    def __init__(self, sut, name, size, answer):
        field = dict(word.split("=") for word in answer.split())
        self.sut, self.name, self.size = sut, name, size
        self.addr, self.lkey, self.rkey = (int(field[key], 0) for key in ("addr", "lkey", "rkey"))
        self.seed = None

    def fill(self, seed):
        self.seed = seed
        self.sut.command(f"fill {self.name} {seed}")
        return self

    def dump(self, offset=0, length=None):
        text = self.sut.command(f"dump {self.name} {offset} {self.size - offset if length is None else length}")
        return b"" if text == "-" else bytes.fromhex(text)

    def word(self, offset):
        """The 64-bit value there, as the program under test reads it."""
        return int.from_bytes(self.dump(offset, 8), sys.byteorder)

    def put(self, offset, value):
        self.sut.command(f"poke {self.name} {offset} {value.to_bytes(8, sys.byteorder).hex()}")

    def hash(self, offset=0, length=None):
        return int(self.sut.command(
            f"hash {self.name} {offset} {self.size - offset if length is None else length}"), 0)

    def untouched(self, but=(0, 0)):
        """Holds what fill() put there, but for the octets but[0]..but[1]."""
        now, then = self.dump(), wire.pattern(self.seed, self.size)
        changed = [i for i in range(self.size) if now[i] != then[i] and not but[0] <= i < but[1]]
        check(not changed, f"memory {self.name} changed at {changed[:8]} ({len(changed)} octets)")


class Sut:
    def __init__(self, bench, env=None, address="127.0.0.1", namespace=None):
        program = os.path.join(bench.build, "tests", "wire", "uiw_wire_target")
        program = os.environ.get("UIW_WIRE_TARGET", program)
        check(os.access(program, os.X_OK), f"{program} is not built")
        env = dict(env or {})
        env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        self.process = bench.start([program], env=env, stdin=subprocess.PIPE, namespace=namespace)
        bench.closers.append(self.process.popen.stdin.close)
        self.output = open(self.process.stdout_path, "rb")
        bench.closers.append(self.output.close)
        bench.suts.append(self)
        self.rest, self.over = b"", False
        self.answers, self.events, self.asyncs, self.completions = [], [], [], []
        self.address = address
        self.device = self.command(f"open {address}")
        self.memories = {}

    # What it says.

    def pump(self):
        # Everything that was said before the end is read before the end counts.
        running = self.process.running()
        lines = (self.rest + self.output.read()).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            kind, _, text = line.decode().partition(" ")
            if kind in ("ok", "error"):
                self.answers.append((kind, text))
            elif kind == "event":
                self.events.append(Event(text.split()))
            elif kind == "async":
                self.asyncs.append(tuple(int(word, 0) for word in text.split()))
            elif kind == "wc":
                self.completions.append(Completion(text.split()))
        check(running or self.over or lines, "the program under test is gone: "
              + harness.describe(self.process.status()))

    def wait(self, condition, timeout, what):
        end = time.monotonic() + timeout
        pause = 0.0003
        while True:
            self.pump()
            value = condition()
            if value is not None:
                return value
            if time.monotonic() > end:
                raise Failure(f"not within {timeout:g} s: {what}; events {self.events}, async {self.asyncs}, "
                              f"completions {self.completions}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)

    def attempt(self, text, timeout=PATIENCE):
        """A command that may fail: "ok" or "error", and the text of the answer."""
        try:
            self.process.popen.stdin.write(text.encode() + b"\n")
            self.process.popen.stdin.flush()
        except BrokenPipeError:
            raise Failure("the program under test is gone: " + harness.describe(self.process.wait(5))) from None
        return self.wait(lambda: self.answers.pop(0) if self.answers else None, timeout, f"an answer to {text[:200]}")

    def command(self, text, errno=None, timeout=PATIENCE):
        """The text of the answer. errno: the command must fail, with one of these where it is a set."""
        kind, answer = self.attempt(text, timeout)
        if errno is None:
            check(kind == "ok", f"{text[:200]}: {answer}")
        else:
            check(kind == "error", f"{text[:200]} succeeds")
            check(errno == set() or int(answer.split()[0]) in errno, f"{text[:200]}: {answer}")
        return answer

    def event(self, name, conn=None, timeout=PATIENCE):
        """The next event must be this one."""
        event = self.wait(lambda: self.events.pop(0) if self.events else None, timeout, f"event {name}")
        check(event.name == name and conn in (None, event.conn), f"{event} where {name} {conn or ''} should come")
        return event

    def completion(self, wr_id=None, status=SUCCESS, timeout=PATIENCE):
        """The next completion must be this one; status None for any, or a set."""
        wc = self.wait(lambda: self.completions.pop(0) if self.completions else None, timeout,
                       f"completion of {wr_id}")
        check(wr_id in (None, wc.wr_id), f"{wc} where {wr_id} should come")
        check(status is None or wc.status in (status if isinstance(status, set) else {status}),
              f"{wc}, not status {status}")
        return wc

    def nothing(self, seconds=0.15, events=True):
        """No completion, no event."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump()
            check(not self.completions, f"completions that should not come: {self.completions}")
            check(not events or not self.events, f"events that should not come: {self.events}")
            time.sleep(0.01)

    def asleep(self):
        """It has taken what its completion queue holds, and waits for an event: a command is answered only then. Before
        that it polls, and what comes meanwhile needs no event to be found."""
        self.memories["m"].dump(0, 1)

    # What it does.

    def memory(self, name, size=4096, access="lrw", pd="pd", seed=None):
        """access: l local write, r remote read, w remote write, a remote atomic."""
        memory = Memory(self, name, size, self.command(f"mr {name} {size} {access} {pd}"))
        self.memories[name] = memory
        return memory if seed is None else memory.fill(seed)

    def listen(self):
        return int(self.command(f"listen l {self.address} 0"))

    def post(self, conn, wr_id, op, *sges, rkey=0, addr=0, flags="-", errno=None, **values):
        """values: imm, add, compare, swap."""
        words = [*sges, *(f"{key}={value:#x}" for key, value in values.items())]
        return self.command(f"post {conn} {wr_id} {op} {flags} {rkey:#x} {addr:#x} " + " ".join(words), errno)

    def recv(self, conn, wr_id, *sges):
        return self.command(f"recv {conn} {wr_id} " + " ".join(sges))

    def state(self, conn):
        return int(self.command(f"state {conn}"))

    def quit(self):
        self.command("quit")
        self.over = True
        status = self.process.wait(PATIENCE)
        check(status == 0, f"the program under test ended with {harness.describe(status)}")
        noise = self.process.stderr
        check(not noise, f"the program under test says on stderr: {noise[:300]}")


# ---- connections ---------------------------------------------------------------------------------------------------


class Session:
    """A Sut with one connection to a Peer. The connection is called `conn` on the Sut's side.

    initiator: uiw calls, else the peer calls. revision, crc, reserved (more flags, such as wire.MARKERS): of the peer's
    frame. p2p: the RTR that the peer sends (responder) or chooses (initiator): "write", "read", "send" or None for
    client-server. uiw: the peer says that it is uiw too, with its first message; that takes an RTR.
    before(session): what is to be done between the making of the QP and the connection (receives, memory).

        session, sut, peer = Session(bench, initiator=True, before=two_receives())
    """

    def __init__(self, bench, initiator=False, revision=2, crc=True, env=None, ird=8, ord_=8, own_ird=8, own_ord=8,
                 p2p=None, before=None, mss=None, rcvbuf=None, address="127.0.0.1", sut=None, sndbuf=None, reserved=0,
                 uiw=False):
        p2p = p2p or ("write" if uiw else None)
        settings = {"UIW_CRC": "on" if crc else "off"}
        settings.update(env or {})
        self.sut = sut or Sut(bench, settings, address)
        self.bench, self.crc, self.before = bench, crc, before
        self.read_msn = self.send_msn = 1  # of what the peer sends next
        self.answer_msn = 1  # of the next Atomic Response of uiw
        flags = (wire.CRC if crc else 0) | reserved
        data = b""
        if revision == 2:
            flags |= wire.ENHANCED
            data = wire.enhanced(own_ird | (wire.PEER_TO_PEER if p2p else 0) | (wire.RTR_SEND if p2p == "send" else 0),
                                 own_ord | {"write": wire.RTR_WRITE, "read": wire.RTR_READ}.get(p2p, 0))
        if initiator:
            self.conn = "call"
            with listener(address, mss, rcvbuf) as heard:
                self.sut.command(f"resolve call {address} {heard.getsockname()[1]}")
                self._make_qp()
                self.sut.command(f"connect call {ird} {ord_} -")
                self.peer = accept(bench, heard, crc)
            self.request = self.peer.startup()
            check(self.request.key == wire.REQUEST, f"key {self.request.key}")
            self.peer.send(wire.startup(wire.REPLY, flags, revision, data))
            self._agree_on_markers(flags, self.request)
            self.sut.event("ESTABLISHED", "call")
            if uiw:
                self.hear_hello(p2p, answers=True)
                self.alive()  # uiw has taken the hello, so that what it sends from here on is for another uiw
        else:
            self.port = self.sut.listen() if sut is None else sut.port
            self.sut.port = self.port
            self.peer = Peer.call(self.port, address, mss, crc, rcvbuf)
            bench.closers.append(self.peer.close)
            self.peer.send(wire.startup(wire.REQUEST, flags, revision, data))
            self.conn = self.sut.event("CONNECT_REQUEST").conn
            self._make_qp()
            self.sut.command(f"accept {self.conn} {ird} {ord_} -")
            self.reply = self.peer.startup()
            check(self.reply.key == wire.REPLY, f"key {self.reply.key}")
            check(self.reply.revision == revision, f"the reply has revision {self.reply.revision}")
            check(not self.reply.flags & wire.REJECT, "the reply rejects")
            self._agree_on_markers(flags, self.reply)
            both = self.reply.flags & wire.LONG_FPDUS, reserved & wire.LONG_FPDUS
            check(both[0] == both[1], f"long FPDUs: {both[1]:#x} in the request, {both[0]:#x} in the reply")
            if p2p:
                self.ready(p2p, (wire.HELLO_STAG, wire.HELLO_TO) if uiw else (0, 0))
            self.sut.event("ESTABLISHED", self.conn)

    def __iter__(self):
        return iter((self, self.sut, self.peer))

    def _agree_on_markers(self, flags, frame):
        self.peer.marked, self.peer.marks = bool(flags & wire.MARKERS), bool(frame.flags & wire.MARKERS)

    def _make_qp(self):
        self.qp = int(self.sut.command(f"qp {self.conn}"), 0)
        if self.before:
            self.before(self)

    def hear_hello(self, kind, answers=False):
        """uiw says that it is uiw, by an RDMA Write of no octets, or a Read as its RTR. answers: the peer says so too."""
        segment = self.peer.segment()
        if kind == "read":
            request = wire.read_fields(segment)
            said = request.source_stag, request.source_to, request.size
        else:
            said = segment.stag, segment.to, len(segment.payload)
        check(said == (wire.HELLO_STAG, wire.HELLO_TO, 0), f"no hello: {segment}")
        if answers:
            self.peer.fpdu(wire.tagged(wire.WRITE, wire.HELLO_STAG, wire.HELLO_TO))
        if kind == "read":
            self.peer.fpdu(wire.tagged(wire.READ_RESPONSE, request.sink_stag, request.sink_to))

    def ready(self, p2p, place=(0, 0)):
        """Sends the RTR, with this STag and offset. To a hello the answer is one."""
        if p2p == "write":
            self.peer.fpdu(wire.tagged(wire.WRITE, *place))
        elif p2p == "read":
            self.peer.fpdu(wire.read_request(1, 0, 0, 0, *place))
            self.read_msn = 2
        elif p2p == "send":
            self.peer.fpdu(wire.untagged(wire.SEND, 0, 1))
            self.send_msn = 2
        if place == (wire.HELLO_STAG, wire.HELLO_TO):
            self.hear_hello("write")
        if p2p == "read":
            first, payload = self.peer.message(wire.READ_RESPONSE)
            check((first.stag, first.to, payload) == (0, 0, b""), f"answer to the zero-length Read: {first}")

    def send(self, payload, opcode=wire.SEND, chunk=None, inv=0):
        self.peer.send_message(opcode, payload, chunk, self.send_msn, inv=inv)
        self.send_msn += 1

    def immediate(self, octets, se=False):
        self.peer.fpdu(wire.immediate(self.send_msn, octets, se))
        self.send_msn += 1

    def read(self, sink_stag, sink_to, size, stag, to):
        self.peer.fpdu(wire.read_request(self.read_msn, sink_stag, sink_to, size, stag, to))
        self.read_msn += 1

    def fetch_add(self, identifier, stag, to, add, mask=0):
        self.peer.fpdu(wire.fetch_add(self.read_msn, identifier, stag, to, add, mask))
        self.read_msn += 1

    def compare_swap(self, identifier, stag, to, *more):
        self.peer.fpdu(wire.compare_swap(self.read_msn, identifier, stag, to, *more))
        self.read_msn += 1

    def original(self, identifier, timeout=PATIENCE):
        """The Atomic Response that must come next: the value that was there."""
        answer = wire.answer_fields(self.peer.segment(timeout))
        check((answer.msn, answer.identifier) == (self.answer_msn, identifier),
              f"{answer}, not MSN {self.answer_msn} identifier {identifier:#x}")
        self.answer_msn += 1
        return answer.value

    def sge(self, name, offset=0, length=None):
        memory = self.sut.memories[name]
        return f"{name}:{offset}:{memory.size - offset if length is None else length}"

    def alive(self):
        """The stream works in both directions: a zero-length Read of the peer is answered."""
        self.peer.fpdu(wire.read_request(self.read_msn, 7, 0x77, 0, 0, 0))
        self.read_msn += 1
        first, payload = self.peer.message(wire.READ_RESPONSE)
        check((first.stag, first.to, payload) == (7, 0x77, b""), f"answer to a zero-length Read: {first}")

    def begun(self):
        """Once uiw may send: where it was called, that is behind the peer's first FPDU."""
        if self.conn != "call":
            self.alive()
        return self

    def taken(self, name, offset):
        """Waits until uiw has taken, and not only read, all that the peer has sent: a Write behind it is placed, into this
        memory."""
        memory, octets = self.sut.memories[name], b"taken"
        self.peer.fpdu(wire.tagged(wire.WRITE, memory.rkey, memory.addr + offset, octets))
        wire.wait_until(lambda: memory.dump(offset, len(octets)) == octets, PATIENCE, "what the peer has sent is taken")

    def down(self, timeout=PATIENCE):
        """The consumer is told of the end, and the QP is in error."""
        self.sut.event("DISCONNECTED", self.conn, timeout)
        check(self.sut.state(self.conn) == ERR, f"the QP is in state {self.sut.state(self.conn)}")

    def hang_up(self):
        """An orderly end, by the peer."""
        self.peer.finish()
        self.peer.gone()
        self.down()
        check(not self.sut.asyncs, f"async events {self.sut.asyncs}")

    def qp_event(self):
        """An asynchronous error event of the QP must come."""
        self.sut.wait(lambda: next((True for kind, qp in self.sut.asyncs if kind in QP_EVENTS and qp == self.qp), None),
                      PATIENCE, "an asynchronous error event of the QP")


RECEIVES = ((1, FLUSHED), (2, FLUSHED))  # what becomes of them where the stream ends


def two_receives(size=65536, access="lrw"):
    """The `before` of a session with memory "m" and, in it, the receives 1 and 2 of 100 octets each."""

    def before(session):
        if "m" not in session.sut.memories:
            session.sut.memory("m", size, access, seed=5)
        for number in (1, 2):
            session.sut.recv(session.conn, number, f"m:{number * 1000}:100")

    return before


class Responder:
    """The peer as the one that answers uiw's Reads and atomic operations, in the order in which they came."""

    def __init__(self, peer):
        self.peer, self.waiting = peer, []
        self.msn = self.answer_msn = 1

    def hear(self, opcode=None):
        """The Read Request or Atomic Request that must come next."""
        segment = self.peer.segment()
        check(opcode in (None, segment.opcode), f"opcode {opcode} was expected, not {segment}")
        if segment.opcode == wire.READ_REQUEST:
            request = wire.read_fields(segment)
        else:
            request = wire.atomic_fields(segment)
            taken = [other.identifier for other in self.waiting if isinstance(other, wire.atomic_fields)]
            check(request.identifier not in taken, f"{request}: the identifier of another that is outstanding")
        check(segment.msn == self.msn, f"MSN {segment.msn} where {self.msn} is due: {request}")
        request.ulpdu = segment.ulpdu
        self.msn += 1
        self.waiting.append(request)
        return request

    def answer(self, what):
        """The oldest request is answered: what was read, or the original value."""
        request = self.waiting.pop(0)
        if isinstance(request, wire.read_fields):
            self.peer.send_message(wire.READ_RESPONSE, what, stag=request.sink_stag, to=request.sink_to)
        else:
            self.peer.fpdu(wire.atomic_response(self.answer_msn, request.identifier, what))
            self.answer_msn += 1


def outgoing(bench, **more):
    """uiw has called, so it may send first."""
    session = Session(bench, initiator=True, **more)
    session.sut.memory("m", 65536, "lrw", seed=11)
    return session


def incoming(bench, receives=(), **more):
    """receives: numbers, each of 100 octets in "in"."""

    def before(session):
        session.sut.memory("m", 65536, "lrw", seed=17)
        session.sut.memory("in", 65536, "l", seed=29)
        for number in receives:
            session.sut.recv(session.conn, number, f"in:{number * 100}:100")

    return Session(bench, before=before, **more)


def fpdu_comes(peer, want):
    """The next octets of the stream are these: the length field, ULPDU and padding of an FPDU, and behind them its CRC."""
    got = peer.take(len(want) + 4)
    check(got[:-4] == want, f"{got.hex()} is not {want.hex()}")
    check(got[-4:] == wire.crc32c(want).to_bytes(4, "little"), "CRC")


def check_immediate(wc, opcode, value, length):
    """The completion of a receive tells this immediate data, and this length of its message."""
    check((wc.opcode, wc.flags) == (opcode, WC_WITH_IMM), f"{wc}: not opcode {opcode} with WITH_IMM")
    check(wc.extra == value, f"{wc}: immediate data {wc.extra:#010x}, not {value:#010x}")
    check(wc.length == length, f"{wc}: length {wc.length}, the message has {length} octets")


def post_in_turn(sut, kinds):
    """40 requests of 30 octets, in lists of ten. The kinds take turns: an opcode, and what its requests have besides;
    immediate data are the number of the request."""
    for number in range(1, 41):
        opcode, more = kinds[number % len(kinds)]
        if opcode.endswith("_imm"):
            more = {**more, "imm": number}
        sut.post("call", number, opcode, f"m:{number}:30", flags="-" if number % 10 == 0 else "c", **more)


def listener(address="127.0.0.1", mss=None, rcvbuf=None):
    heard = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    heard.settimeout(PATIENCE)
    if mss:
        heard.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    if rcvbuf:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    heard.bind((address, 0))
    heard.listen(8)
    return heard


def accept(bench, heard, crc=True):
    try:
        connection, _ = heard.accept()
    except TimeoutError:
        raise Failure("uiw does not call") from None
    peer = Peer(connection, crc)
    bench.closers.append(peer.close)
    return peer


def row(title, **arguments):
    """As harness.row; programs under test that live at its end must quit in order, having said nothing on stderr."""

    def mark(function):
        def run(bench):
            bench.suts, bench.closers = [], []
            try:
                function(bench, **arguments)
                for sut in bench.suts:
                    if not sut.over:
                        sut.quit()
            finally:
                for close in reversed(bench.closers):
                    try:
                        close()
                    except OSError:
                        pass

        harness.add_row(title, run)
        return function

    return mark


main = harness.main
