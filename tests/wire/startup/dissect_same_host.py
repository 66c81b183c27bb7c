# SPDX-License-Identifier: MIT
"""tshark, with the dissector that is installed with uiw, marks where a connection leaves TCP for shared memory."""

import os
import pathlib
import socket
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer.sut import check, harness, main, row

NAME = "uiw_same_host.lua"
SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools" / "wireshark" / NAME
KEY = b"uiw shared rings"
NUMBER = bytes(range(1, 17))
GOES_OVER, REFUSED = "uiw: goes over to shared memory", "uiw: shared memory is refused"


def segment(number, octets):
    """A TCP segment of one direction of one connection, by IPv4."""
    host = socket.inet_aton("127.0.0.1")
    tcp = struct.pack(">HHIIBBHHH", 40001, 40002, number, 1, 5 << 4, 0x18, 65535, 0, 0) + octets
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + host + host + tcp


def reading(bench, contents):
    """What tshark makes of these octets, each in a segment of its own: (the column Info, number, refused)."""
    harness.need_program("tshark")
    path = os.path.join(bench.tmp, "segments.pcap")
    position = 1
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 17, 101))  # LINKTYPE_RAW
        for index, octets in enumerate(contents):
            packet = segment(position, octets)
            position += len(octets)
            file.write(struct.pack("<IIII", 1, index * 100, len(packet), len(packet)) + packet)
    ended = bench.command(["tshark", "-n", "-r", path, "-X", f"lua_script:{SCRIPT}", "-o", "tcp.check_checksum:FALSE", "-T",
                           "fields", "-E", "separator=|", "-e", "_ws.col.Info", "-e", "uiws.number", "-e", "uiws.refused"],
                          timeout=60)
    noise = [line for line in ended.stderr.splitlines() if line and not line.startswith("Running as user")]
    check(not noise, f"tshark says on stderr: {noise[:5]}")
    check("Lua Error" not in ended.stdout, f"the dissector fails: {ended.stdout[:2000]}")
    lines = [line.rsplit("|", 2) for line in ended.stdout.splitlines()]
    check(len(lines) == len(contents), f"{len(contents)} segments, tshark sees {len(lines)}")
    return [(info, number.replace(":", ""), refused) for info, number, refused in lines]


@row("the frames of both ends, behind the start-up of MPA")
def both_ends(bench):
    request = b"MPA ID Req Frame" + struct.pack(">BBH", 0x10, 2, 4) + struct.pack(">HH", 0x4001, 1)
    start, frame = reading(bench, [request, KEY + NUMBER])
    check(start[1:] == ("", "") and "uiw" not in start[0], f"the request: {start}")
    check(frame[0].endswith(GOES_OVER), f"column Info: {frame[0]}")
    check(frame[1] == NUMBER.hex() and frame[2] in ("0", "False"), f"{frame}")


@row("a frame with the first octets of an FPDU behind it, as where the memory is refused")
def refused(bench):
    frame, = reading(bench, [KEY + bytes(16) + bytes(20)])
    check(frame[0].endswith(REFUSED), f"column Info: {frame[0]}")
    check(frame[1] == bytes(16).hex() and frame[2] in ("1", "True"), f"{frame}")


@row("what only resembles a frame is not marked")
def others(bench):
    for frame in reading(bench, [KEY, KEY + NUMBER[:15], KEY.upper() + NUMBER, bytes(32), b"x" + KEY + NUMBER]):
        check(frame[1:] == ("", "") and "shared memory" not in frame[0], f"{frame}")


@row("the dissector is installed where its document says")
def installed(bench):
    target = os.path.join(bench.tmp, "root")
    bench.command(["cmake", "--install", bench.build, "--prefix", target], timeout=60)
    path = pathlib.Path(target, "share", "uiw", "wireshark", NAME)
    check(path.read_bytes() == SCRIPT.read_bytes(), "another file is installed")
    text = (SCRIPT.parents[2] / "docs" / "man" / "uiw.7.rst").read_text(encoding="utf-8")
    check(f"share/uiw/wireshark/{NAME}" in text, "uiw(7) does not name it")


if __name__ == "__main__":
    sys.exit(main())
