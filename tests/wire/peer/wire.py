# SPDX-License-Identifier: MIT
"""DDP and RDMAP written down once more from RFC 5041, 5040 and 7306, over MPA (mpa.py), to test uiw from outside.

Encoders take what they are told, also what no RFC allows. Decoders hold every octet against the RFCs and raise
Failure. Peer is one end of a TCP connection that speaks all this from a Python socket.
"""

import errno
import fcntl
import pathlib
import select
import socket
import struct
import sys
import termios
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
from support.harness import Failure, check, wait_until

from peer.mpa import (CRC, DEPTH, ENHANCED, LONG_FPDUS, MARKER_SPACING, MARKERS, PEER_TO_PEER, REJECT, REPLY, REQUEST,
                      RTR_READ, RTR_SEND, RTR_WRITE, Startup, crc32c, enhanced, fpdu, marked_fpdu, marker,
                      startup)  # also for those that import this file

# ---- DDP and RDMAP -----------------------------------------------------------------------------------------------

WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INV, SEND_SE, SEND_SE_INV, TERMINATE = range(8)
IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE = range(8, 12)  # RFC 7306 figure 2
SEND_SE_IMM, SEND_IMM = 0xE, 0xF  # uiw's own
# What two ends of uiw tell each other, in messages of no octets: the STag and the offset of a hello.
HELLO_STAG, HELLO_TO = 0x756977FF, 0x7569776957415250
FETCH_ADD, COMPARE_SWAP = 0, 2  # AOpCode, RFC 7306 figure 5
ONES = (1 << 64) - 1
T, L = 0x80, 0x40
TAGGED_HEADER, UNTAGGED_HEADER, READ_HEADER = 14, 18, 28
ATOMIC_HEADER, ATOMIC_ANSWER, IMMEDIATE_SIZE = 52, 12, 8


def tagged(opcode, stag, to, payload=b"", last=True, dv=1, rv=1, control=None):
    first = (T | (L if last else 0) | dv) if control is None else control
    return struct.pack(">BBIQ", first, rv << 6 | opcode, stag, to) + payload


def untagged(opcode, qn, msn, mo=0, payload=b"", last=True, dv=1, rv=1, inv=0, control=None):
    first = ((L if last else 0) | dv) if control is None else control
    return struct.pack(">BBIIII", first, rv << 6 | opcode, inv, qn, msn, mo) + payload


def read_header(sink_stag, sink_to, size, source_stag, source_to):
    return struct.pack(">IQIIQ", sink_stag, sink_to, size, source_stag, source_to)


def read_request(msn, sink_stag, sink_to, size, source_stag, source_to):
    return untagged(READ_REQUEST, 1, msn, 0, read_header(sink_stag, sink_to, size, source_stag, source_to))


def atomic_header(aopcode, identifier, stag, to, data, mask, compare=0, compare_mask=ONES, reserved=0):
    """RFC 7306 figure 4; data and mask: add or swap. What a FetchAdd does not use is as it must be sent."""
    return struct.pack(">IIIQQQQQ", reserved << 4 | aopcode, identifier, stag, to, data, mask, compare, compare_mask)


def fetch_add(msn, identifier, stag, to, add, mask=0):
    return untagged(ATOMIC_REQUEST, 1, msn, 0, atomic_header(FETCH_ADD, identifier, stag, to, add, mask))


def compare_swap(msn, identifier, stag, to, swap, compare, swap_mask=ONES, compare_mask=ONES):
    return untagged(ATOMIC_REQUEST, 1, msn, 0, atomic_header(COMPARE_SWAP, identifier, stag, to, swap, swap_mask,
                                                             compare, compare_mask))


def atomic_response(msn, identifier, value):
    return untagged(ATOMIC_RESPONSE, 3, msn, 0, struct.pack(">IQ", identifier, value))


def immediate(msn, octets, se=False):
    return untagged(IMMEDIATE_SE if se else IMMEDIATE, 0, msn, 0, octets)


def verbs_immediate(value):
    """The eight octets for the 32 bits of the verbs: as the program stored them, in network order, then zero."""
    return struct.pack(">II", value, 0)


def terminate(layer, etype, code, ddp=b"", length=None, rdma=b"", msn=1, qn=2, bits=None):
    """A Terminate as RFC 5040 figure 7; the header bits follow from what is given unless `bits` says them."""
    if bits is None:
        bits = (4 if ddp or length is not None else 0) | (2 if ddp else 0) | (1 if rdma else 0)
    payload = struct.pack(">BBH", layer << 4 | etype, code, bits << 13)
    if ddp or length is not None:
        payload += struct.pack(">H", len(ddp) + len(rdma) if length is None else length)
    return untagged(TERMINATE, qn, msn, 0, payload + ddp + rdma)


class Segment:
    """A DDP segment that was received; every fixed bit checked."""

    def __init__(self, ulpdu):
        self.ulpdu = ulpdu
        check(len(ulpdu) >= 2, f"a ULPDU of {len(ulpdu)} octets")
        control, rdmap = ulpdu[0], ulpdu[1]
        self.tagged, self.last, self.opcode = bool(control & T), bool(control & L), rdmap & 0x0F
        check(control & 0x3C == 0, f"reserved bits set in the DDP control octet {control:#04x}")
        check(control & 0x03 == 1, f"DDP version in {control:#04x}")
        check(rdmap & 0x30 == 0, f"reserved bits set in the RDMAP control octet {rdmap:#04x}")
        check(rdmap & 0xC0 == 0x40, f"RDMAP version in {rdmap:#04x}")
        if self.tagged:
            check(len(ulpdu) >= TAGGED_HEADER, "a tagged segment cut short")
            self.stag, self.to = struct.unpack(">IQ", ulpdu[2:14])
            self.payload = ulpdu[14:]
        else:
            check(len(ulpdu) >= UNTAGGED_HEADER, "an untagged segment cut short")
            self.inv, self.qn, self.msn, self.mo = struct.unpack(">IIII", ulpdu[2:18])
            self.payload = ulpdu[18:]
            if self.opcode not in (SEND_INV, SEND_SE_INV, SEND_IMM, SEND_SE_IMM):
                check(self.inv == 0, f"Invalidate STag {self.inv:#x} with opcode {self.opcode}")
        check(self.tagged == (self.opcode in (WRITE, READ_RESPONSE)), f"T flag and opcode {self.opcode}")
        check(self.payload or self.last, "an empty segment that is not the last")

    def __repr__(self):
        place = f"STag {self.stag:#x} TO {self.to:#x}" if self.tagged else f"QN {self.qn} MSN {self.msn} MO {self.mo}"
        error = f" Terminate 0x{self.payload[:2].hex()}" if self.opcode == TERMINATE else ""
        return f"opcode {self.opcode} {place} last {self.last} payload {len(self.payload)}{error}"


class Terminate:
    """The Terminate header of a received segment, held against RFC 5040 figures 7, 8 and 10."""

    def __init__(self, segment):
        check(segment.opcode == TERMINATE, f"a Terminate was expected, not {segment}")
        check((segment.qn, segment.msn, segment.mo, segment.last) == (2, 1, 0, True), f"DDP header: {segment}")
        payload = segment.payload
        check(len(payload) >= 4, f"a Terminate header of {len(payload)} octets")
        first, self.code, rest = struct.unpack(">BBH", payload[:4])
        self.layer, self.etype = first >> 4, first & 15
        check(rest & 0x1FFF == 0, f"reserved bits of the Terminate header: {rest:#x}")
        self.m, self.d, self.r = bool(rest & 0x8000), bool(rest & 0x4000), bool(rest & 0x2000)
        rest = payload[4:]
        self.length, self.ddp, self.rdma = None, b"", b""
        if self.m or self.d:
            check(len(rest) >= 2, f"{self}: the segment length is missing")
            self.length = struct.unpack(">H", rest[:2])[0]
            rest = rest[2:]
        if self.d:
            check(rest, f"{self}: the DDP header is missing")
            size = TAGGED_HEADER if rest[0] & T else UNTAGGED_HEADER
            check(len(rest) >= size, f"{self}: the DDP header is cut short")
            self.ddp, rest = rest[:size], rest[size:]
        if self.r:
            check(len(rest) >= READ_HEADER, f"{self}: the RDMA header is cut short")
            self.rdma, rest = rest[:READ_HEADER], rest[READ_HEADER:]
        check(not any(rest), f"{self}: {len(rest)} octets after the last field")

    @property
    def error(self):
        """As the Verbs draft writes it: 0xLTCC."""
        return self.layer << 12 | self.etype << 8 | self.code

    def __str__(self):
        return f"Terminate {self.error:#06x} M{self.m:d} D{self.d:d} R{self.r:d}"


# ---- the peer ----------------------------------------------------------------------------------------------------

PATIENCE = 15.0
CLOSE_WAIT = "08"  # a state of /proc/net/tcp: the FIN of the other end is there


def pattern(seed, length):
    """Octet i is (seed + i) mod 251, as `fill` of the target has it."""
    start = seed % 251
    return (bytes(range(251)) * ((start + length) // 251 + 1))[start:start + length]


class Peer:
    """One end of a TCP connection. crc: whether FPDUs carry and are checked for CRCs. `marks`, `marked`: whether FPDUs
    that it sends, and receives, have markers.

    `record`, a list, receives (sent by us, octets) for everything that passes."""

    def __init__(self, connection, crc=True):
        self.socket = connection
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.crc = crc
        self.marks = self.marked = False
        self.octets_out = self.octets_in = 0  # of FPDUs
        self.ready = b""
        self.ended = None
        self.record = []
        self.fpdus = 0

    @classmethod
    def call(cls, port, address="127.0.0.1", mss=None, crc=True, rcvbuf=None):
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        if mss:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
        if rcvbuf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        connection.settimeout(PATIENCE)
        connection.connect((address, port))
        return cls(connection, crc)

    def close(self, reset=False):
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def finish(self):
        """Half close: FIN."""
        self.socket.shutdown(socket.SHUT_WR)

    def other_end(self):
        """(state, octets that have come and are not read) of the other end, which is on this host; None if it is gone."""
        ports = [self.socket.getpeername()[1], self.socket.getsockname()[1]]  # in its order
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}") as lines:
                next(lines)
                for line in lines:
                    column = line.split()
                    if [int(address.rsplit(":", 1)[1], 16) for address in column[1:3]] == ports:
                        return column[3], int(column[4].split(":")[1], 16)
        return None

    def taken(self, timeout=PATIENCE):
        """Waits until the other end has read all that was sent."""
        unsent = bytearray(4)

        def all_read():
            fcntl.ioctl(self.socket, termios.TIOCOUTQ, unsent)
            return not any(unsent) and self.other_end()[1] == 0

        wait_until(all_read, timeout, "all that was sent is read")

    # Octets.

    def send(self, octets, piece=None, pause=0.0):
        """piece: octets in each TCP send."""
        self.record.append((True, octets))
        self.socket.settimeout(PATIENCE)
        for at in range(0, len(octets), piece or len(octets) or 1):
            self.socket.sendall(octets[at:at + (piece or len(octets))])
            if pause:
                time.sleep(pause)

    def _more(self, timeout):
        """False when nothing came in time or the stream has ended."""
        if self.ended or not select.select([self.socket], [], [], max(0, timeout))[0]:
            return False
        try:
            octets = self.socket.recv(1 << 18)
        except ConnectionError:
            octets, self.ended = b"", "reset"
        if not octets:
            self.ended = self.ended or "fin"
            return False
        self.ready += octets
        return True

    def take(self, count, timeout=PATIENCE, what="octets"):
        end = time.monotonic() + timeout
        while len(self.ready) < count:
            if not self._more(end - time.monotonic()) and (self.ended or time.monotonic() >= end):
                raise Failure(f"{what}: {len(self.ready)} of {count} octets came ({self.ready[:64].hex()}), then "
                              + (f"the end ({self.ended})" if self.ended else f"nothing in {timeout:g} s"))
        octets, self.ready = self.ready[:count], self.ready[count:]
        self.record.append((False, octets))
        return octets

    def quiet(self, seconds=0.2):
        """Nothing may come, and the stream may not end."""
        end = time.monotonic() + seconds
        while not self.ended and time.monotonic() < end:
            self._more(end - time.monotonic())
        check(not self.ready, f"octets that should not come: {self.ready[:64].hex()}")
        check(not self.ended, f"the stream ended ({self.ended})")

    def gone(self, timeout=PATIENCE):
        """Waits until the other end has closed, without another octet. Returns "fin" or "reset"."""
        end = time.monotonic() + timeout
        while not self.ended and time.monotonic() < end:
            self._more(end - time.monotonic())
        check(self.ended, f"the stream stands after {timeout:g} s")
        check(not self.ready, f"octets that should not come: {self.ready[:64].hex()}")
        return self.ended

    def reset(self, timeout=PATIENCE):
        """Waits for a reset, without reading; what came before it can still be read."""
        poll = select.poll()
        poll.register(self.socket, 0)
        check(poll.poll(timeout * 1000), f"the stream stands after {timeout:g} s")
        error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        # Linux says EPIPE where a FIN came before.
        check(error in (errno.ECONNRESET, errno.EPIPE), f"no reset: SO_ERROR {error}")

    # Frames.

    def startup(self, timeout=PATIENCE):
        head = self.take(20, timeout, "start-up frame")
        frame = Startup(head + self.take(struct.unpack(">H", head[18:20])[0], timeout, "private data"))
        self.record[-2:] = [(False, frame.raw)]
        return frame

    def frame(self, ulpdu, **more):
        """The octets of the next FPDU; the caller sends them."""
        more = {"crc": self.crc, **more}
        octets = marked_fpdu(self.octets_out, ulpdu, **more) if self.marks else fpdu(ulpdu, **more)
        self.octets_out += len(octets)
        return octets

    def fpdu(self, ulpdu, **more):
        self.send(self.frame(ulpdu, **more))

    def fpdu_raw(self, timeout=PATIENCE):
        """The next FPDU, as (ulpdu, pad, crc field); pad and CRC checked."""
        before, raw, start = len(self.record), b"", None  # start: of ULPDU_Length

        def take(count, what):
            nonlocal raw, start
            octets = b""
            while count:
                room = MARKER_SPACING - (self.octets_in + len(raw)) % MARKER_SPACING if self.marked else count
                if self.marked and room == MARKER_SPACING:
                    mark = self.take(4, timeout, "a marker")
                    expected = marker(0 if start is None else len(raw) - start)
                    check(mark == expected, f"marker {mark.hex()}, not {expected.hex()}")
                    raw += mark
                    room -= 4
                if start is None:
                    start = len(raw)
                part = self.take(min(room, count), timeout, what)
                raw, octets, count = raw + part, octets + part, count - len(part)
            return octets

        length = struct.unpack(">H", take(2, "FPDU"))[0]
        rest = take(length + -(2 + length) % 4, f"FPDU of {length} octets")
        trailer = take(4, f"CRC of an FPDU of {length} octets")
        ulpdu, pad = rest[:length], rest[length:]
        self.record[before:] = [(False, raw)]
        self.octets_in += len(raw)
        check(not any(pad), f"pad octets {pad.hex()}")
        if self.crc:
            check(struct.unpack("<I", trailer)[0] == crc32c(raw[:-4]), f"CRC of an FPDU of {length} octets")
        self.fpdus += 1
        return ulpdu, pad, trailer

    def segment(self, timeout=PATIENCE):
        return Segment(self.fpdu_raw(timeout)[0])

    def message(self, opcode, timeout=PATIENCE):
        """Segments until the last flag: (first segment, payload). Offsets must follow each other."""
        first = segment = self.segment(timeout)
        parts = []
        offset = 0
        while True:
            check(segment.opcode == opcode, f"opcode {opcode} was expected, not {segment}")
            if segment.tagged:
                check((segment.stag, segment.to) == (first.stag, first.to + offset), f"after {first}: {segment}")
            else:
                check((segment.qn, segment.msn, segment.mo, segment.inv)
                      == (first.qn, first.msn, offset, first.inv), f"after {first}: {segment}")
            parts.append(segment.payload)
            offset += len(segment.payload)
            if segment.last:
                return first, b"".join(parts)
            segment = self.segment(timeout)

    def send_message(self, opcode, payload, chunk=None, msn=None, qn=0, stag=0, to=0, inv=0):
        """A message in segments of `chunk` octets, tagged where the opcode is."""
        for at in range(0, max(1, len(payload)), chunk or max(1, len(payload))):
            part = payload[at:at + (chunk or len(payload))]
            last = at + len(part) == len(payload)
            if opcode in (WRITE, READ_RESPONSE):
                self.fpdu(tagged(opcode, stag, to + at, part, last))
            else:
                self.fpdu(untagged(opcode, qn, msn, at, part, last, inv=inv))

    def terminated(self, skip=(), timeout=PATIENCE):
        """The Terminate that must come now; messages of the opcodes in `skip` may precede it. Nothing follows it."""
        end = time.monotonic() + timeout
        segment = self.segment(timeout)
        while segment.opcode in skip:
            segment = self.segment(end - time.monotonic())
        return Terminate(segment)

    def terminates(self, allowed, skip=()):
        """As terminated(), with one of these errors."""
        term = self.terminated(skip)
        check(term.error in allowed, f"{term}, not {' or '.join(f'{error:#06x}' for error in sorted(allowed))}")
        return term


class read_fields:
    """The RDMA Read Request header of a received segment."""

    def __init__(self, segment):
        check((segment.opcode, segment.last, segment.mo) == (READ_REQUEST, True, 0),
              f"a Read Request was expected, not {segment}")
        check(segment.qn == 1, f"queue number: {segment}")
        check(len(segment.payload) == READ_HEADER, f"a Read Request header of {len(segment.payload)} octets")
        (self.sink_stag, self.sink_to, self.size, self.source_stag, self.source_to) = struct.unpack(
            ">IQIIQ", segment.payload)

    def __repr__(self):
        return (f"Read of {self.size} octets from {self.source_stag:#x}:{self.source_to:#x} "
                f"to {self.sink_stag:#x}:{self.sink_to:#x}")


class atomic_fields:
    """The Atomic Request header of a received segment (RFC 7306 figure 4). What a FetchAdd does not use must be as
    section 5.2.1 says."""

    def __init__(self, segment):
        check((segment.opcode, segment.last, segment.mo) == (ATOMIC_REQUEST, True, 0),
              f"an Atomic Request was expected, not {segment}")
        check(segment.qn == 1, f"queue number: {segment}")
        check(len(segment.payload) == ATOMIC_HEADER, f"an Atomic Request header of {len(segment.payload)} octets")
        (first, self.identifier, self.stag, self.to, self.data, self.mask, self.compare,
         self.compare_mask) = struct.unpack(">IIIQQQQQ", segment.payload)
        check(first >> 4 == 0, f"reserved bits set in the Atomic Request header: {first:#x}")
        self.aopcode = first & 15
        check(self.aopcode in (FETCH_ADD, COMPARE_SWAP), f"AOpCode {self.aopcode}")
        check(self.aopcode != FETCH_ADD or (self.compare, self.compare_mask) == (0, ONES),
              f"{self}: Compare Data and Compare Mask of a FetchAdd")

    def __repr__(self):
        return (f"AOpCode {self.aopcode} identifier {self.identifier:#x} at {self.stag:#x}:{self.to:#x} "
                f"data {self.data:#x} mask {self.mask:#x} compare {self.compare:#x} mask {self.compare_mask:#x}")


class answer_fields:
    """The Atomic Response header of a received segment (RFC 7306 figure 6)."""

    def __init__(self, segment):
        check((segment.opcode, segment.last, segment.mo) == (ATOMIC_RESPONSE, True, 0),
              f"an Atomic Response was expected, not {segment}")
        check(segment.qn == 3, f"queue number: {segment}")
        check(len(segment.payload) == ATOMIC_ANSWER, f"an Atomic Response header of {len(segment.payload)} octets")
        self.msn = segment.msn
        self.identifier, self.value = struct.unpack(">IQ", segment.payload)

    def __repr__(self):
        return f"Atomic Response MSN {self.msn} identifier {self.identifier:#x} value {self.value:#x}"


def immediate_octets(segment, se=False):
    """The octets of the Immediate Data (with SE) that a received segment must be (RFC 7306 figure 7)."""
    check(segment.opcode == (IMMEDIATE_SE if se else IMMEDIATE),
          f"Immediate Data {'with SE ' if se else ''}was expected, not {segment}")
    check((segment.qn, segment.mo, segment.last) == (0, 0, True), f"DDP header: {segment}")
    check(len(segment.payload) == IMMEDIATE_SIZE, f"Immediate Data of {len(segment.payload)} octets")
    return segment.payload
