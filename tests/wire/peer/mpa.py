# SPDX-License-Identifier: MIT
"""MPA written down once more from RFC 5044 and RFC 6581: CRC32c, start-up frames, FPDUs, markers. As in wire.py, encoders
take what they are told, and Startup raises Failure."""

import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
from support.harness import check

# ---- CRC32c -----------------------------------------------------------------------------------------------------


def _crc_table():
    table = []
    for octet in range(256):
        for _ in range(8):
            octet = octet >> 1 ^ (0x82F63B78 if octet & 1 else 0)
        table.append(octet)
    return table


_CRC = _crc_table()


def crc32c(octets):
    crc = 0xFFFFFFFF
    table = _CRC
    for octet in octets:
        crc = table[(crc ^ octet) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283
assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720 B.4


# ---- MPA start-up ------------------------------------------------------------------------------------------------

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
# siw with its parameter try_gso takes FPDUs that are longer than a TCP segment; its reply has what the request had.
LONG_FPDUS = 0x08
PEER_TO_PEER, RTR_SEND = 0x8000, 0x4000  # with IRD
RTR_WRITE, RTR_READ = 0x8000, 0x4000  # with ORD
DEPTH = 0x3FFF


def startup(key, flags, revision, private=b"", length=None):
    return key + struct.pack(">BBH", flags, revision, len(private) if length is None else length) + private


def enhanced(ird, ord_, private=b""):
    return struct.pack(">HH", ird, ord_) + private


class Startup:
    """A start-up frame that was received. With ENHANCED in flags: ird and ord with their control bits."""

    def __init__(self, raw):
        self.raw = raw
        self.key = raw[:16]
        self.flags, self.revision, self.length = struct.unpack(">BBH", raw[16:20])
        self.private = raw[20:]
        self.ird = self.ord = None
        allowed = LONG_FPDUS if self.key == REPLY else 0
        check(self.flags & 0x0F & ~allowed == 0, f"reserved flags set in the start-up frame: {self.flags:#x}")
        check(self.length == len(self.private), "PD_Length and frame disagree")
        check(self.length <= 512, f"PD_Length {self.length}")
        check(self.revision in (1, 2), f"revision {self.revision}")
        if self.flags & ENHANCED:
            check(self.revision == 2, "S flag in revision 1")
            check(self.length >= 4, "S flag without enhanced header")
            self.ird, self.ord = struct.unpack(">HH", self.private[:4])
            self.private = self.private[4:]


# ---- FPDU --------------------------------------------------------------------------------------------------------


def fpdu(ulpdu, crc=True, damage=0, length=None, pad=b"\0\0\0"):
    """damage is XORed into the CRC field; length overrides ULPDU_Length."""
    body = struct.pack(">H", len(ulpdu) if length is None else length) + ulpdu
    body += pad[: -len(body) % 4]
    return body + struct.pack("<I", (crc32c(body) if crc else 0) ^ damage)


MARKER_SPACING = 512


def marker(pointer):
    return struct.pack(">HH", 0, pointer)


def marked_fpdu(at, ulpdu, crc=True, damage=0, wrong=0):
    """An FPDU behind `at` octets of a stream with markers (RFC 5044 section 4.3). damage is XORed into the CRC field,
    wrong into each FPDUPTR."""
    octets = b""
    length = None  # where ULPDU_Length stands

    def put(part):
        nonlocal octets, length
        while part:
            room = MARKER_SPACING - (at + len(octets)) % MARKER_SPACING
            if room == MARKER_SPACING:
                octets += marker((0 if length is None else len(octets) - length) ^ wrong)
                room -= 4
            if length is None:
                length = len(octets)
            octets += part[:room]
            part = part[room:]

    body = struct.pack(">H", len(ulpdu)) + ulpdu
    put(body + bytes(-len(body) % 4))
    put(bytes(4))
    return octets[:-4] + struct.pack("<I", (crc32c(octets[:-4]) if crc else 0) ^ damage)
