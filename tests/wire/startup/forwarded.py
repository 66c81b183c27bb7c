# SPDX-License-Identifier: MIT
"""CRCs between two ends on one host. They can do without, but not where a program forwards TCP (ssh -L, a sidecar): there
each end sees an address of its own host, and what lies between is not known. Both ends are uiw here, since the question
is what two of them agree on (RFC 5044 section 7.1.1, the flag C)."""

import pathlib
import re
import socket
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer.called import accept, listening
from peer.sut import Sut, check, listener, main, row
from peer.wire import CRC, Startup, pattern, wait_until

PAYLOAD = pattern(100, 200)


class Forwarder:
    """Takes one connection, and passes on what comes from either side. to_called, to_caller: what has passed. damage: one
    octet of this text, wherever it passes, is another one behind it."""

    def __init__(self, bench, port, damage=None):
        self.port, self.damage = port, damage
        self.heard = listener()
        self.to_called, self.to_caller = bytearray(), bytearray()
        self.sockets = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        bench.closers.append(self.close)

    def _run(self):
        try:
            caller, _ = self.heard.accept()
        except OSError:
            return
        called = socket.create_connection(("127.0.0.1", self.port))
        self.sockets = [caller, called]
        back = threading.Thread(target=self._pass, args=(called, caller, self.to_caller), daemon=True)
        back.start()
        self._pass(caller, called, self.to_called)
        back.join()

    def _pass(self, source, sink, passed):
        try:
            while octets := source.recv(65536):
                passed += octets
                if self.damage and (at := octets.find(self.damage)) >= 0:
                    octets = octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1:]
                sink.sendall(octets)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for each in [self.heard, *self.sockets]:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        self.thread.join()


class Pair:
    """A connection of two ends of uiw. forwarded: through a forwarder. Each end has its memory "m", and the called one a
    receive (1)."""

    def __init__(self, bench, calling, called, forwarded, damage=None):
        self.logs = [pathlib.Path(bench.tmp) / f"{end}.log" for end in ("calling", "called")]
        self.called, port = listening(bench, **called, UIW_LOG=str(self.logs[1]))
        self.forwarder = Forwarder(bench, port, damage) if forwarded else None
        self.calling = Sut(bench, {**calling, "UIW_LOG": str(self.logs[0])})
        self.calling.command(f"resolve call 127.0.0.1 {self.forwarder.heard.getsockname()[1] if forwarded else port}")
        self.calling.command("qp call")
        self.calling.command("connect call 4 4 -")
        event = self.called.event("CONNECT_REQUEST")
        self.conn = event.conn
        self.calling.memory("m", 4096, "lrw", seed=100)
        self.called.memory("m", 4096, "lrw", seed=3)
        accept(self.called, event)
        self.calling.event("ESTABLISHED")
        self.called.event("ESTABLISHED")
        self.called.recv(self.conn, 1, "m:0:4096")

    def crc(self):
        """What the two ends have agreed on, as each logs it."""
        said = [re.findall(r"MPA revision \d, CRC (on|off)", log.read_text()) for log in self.logs]
        check(said[0] == said[1] and len(said[0]) == 1, f"{said}")
        return said[0][0] == "on"

    def carries(self):
        self.calling.post("call", 2, "send", f"m:0:{len(PAYLOAD)}")
        check(self.called.completion(1).length == len(PAYLOAD), "length")
        check(self.called.memories["m"].dump(0, len(PAYLOAD)) == PAYLOAD, "the Send")
        self.calling.completion(2)

    def ends(self):
        self.calling.command("disconnect call")
        self.calling.event("DISCONNECTED")
        self.called.event("DISCONNECTED")


def both(bench, crc, forwarded, calling=None, called=None, **env):
    pair = Pair(bench, {**env, **(calling or {})}, {**env, **(called or {})}, forwarded)
    check(pair.crc() == crc, f"CRC {'off' if crc else 'on'}")
    if forwarded:
        frame = Startup(bytes(pair.forwarder.to_caller[:24]))
        check(bool(frame.flags & CRC) == crc, f"the flags of the reply are {frame.flags:#04x}")
    pair.carries()
    pair.ends()


MEMORY, TCP = {"UIW_SAME_HOST": "auto"}, {"UIW_SAME_HOST": "tcp"}
for _name, _calling, _called in (("both by shared memory", MEMORY, MEMORY), ("both by TCP", TCP, TCP),
                                 ("the caller by TCP", TCP, MEMORY), ("the called end by TCP", MEMORY, TCP)):
    row(f"through a forwarder: the CRC is on, {_name} where they can", crc=True, forwarded=True, calling=_calling,
        called=_called)(both)
    row(f"without a forwarder: the CRC is off, {_name}", crc=False, forwarded=False, calling=_calling,
        called=_called)(both)
row("through a forwarder: the CRC is on, revision 1", crc=True, forwarded=True, UIW_MPA_REVISION="1")(both)
row("without a forwarder: the CRC is off, revision 1", crc=False, forwarded=False, UIW_MPA_REVISION="1")(both)
row("without a forwarder: the CRC is off, with markers", crc=False, forwarded=False, UIW_MARKERS="on")(both)
row("through a forwarder: the CRC is off where both ends say so", crc=False, forwarded=True, UIW_CRC="off")(both)
row("through a forwarder: the CRC is on where the caller alone says off", crc=True, forwarded=True,
    calling={"UIW_CRC": "off"})(both)
row("without a forwarder: the CRC is off where the caller alone says off", crc=False, forwarded=False,
    calling={"UIW_CRC": "off", **TCP})(both)
row("without a forwarder: the CRC is off where the called end alone says off", crc=False, forwarded=False,
    called={"UIW_CRC": "off"})(both)
row("without a forwarder: the CRC is on where one end says on", crc=True, forwarded=False, called={"UIW_CRC": "on"})(
    both)


@row("an octet that changes behind the forwarder is found")
def damaged(bench):
    pair = Pair(bench, {}, {}, True, damage=PAYLOAD)
    pair.calling.post("call", 2, "send", f"m:0:{len(PAYLOAD)}")
    pair.called.event("DISCONNECTED")
    pair.calling.event("DISCONNECTED")
    wait_until(lambda: pair.called.pump() or pair.called.completions, 15, "the receive is flushed")
    check(pair.called.completions.pop(0).status != 0, "damaged octets are delivered")
    pair.called.memories["m"].untouched()


if __name__ == "__main__":
    sys.exit(main())
