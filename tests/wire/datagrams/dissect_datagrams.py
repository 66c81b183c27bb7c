# SPDX-License-Identifier: MIT
"""tshark, with the dissector that is installed with uiw, reads what queue pairs of type UD and a peer of our own have
sent each other, and tells the fields that the peer's encoder and decoder know. The capture is made from what the peer's
socket carried, so that no right to capture is needed."""

import os
import pathlib
import socket
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import datagram, wire
from peer.datagram import SEND, SEND_IMM, SEND_SE, SEND_SE_IMM, DatagramSession, send
from peer.sut import check, harness, main, row
from peer.wire import crc32c

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools" / "wireshark" / "uiw_datagrams.lua"
FIELDS = ("key", "version", "reserved", "destination", "destination_port", "source", "source_port", "qkey", "ddp",
          "rdmap", "immediate", "invalidate_stag", "queue_number", "msn", "message_offset", "length", "payload", "crc",
          "crc.good", "multicast")
NAMES = {SEND: "Send", SEND_SE: "Send with Solicited Event", SEND_IMM: "Send with immediate",
         SEND_SE_IMM: "Send with immediate and Solicited Event"}
COMPLAINTS = ("uiwd.short", "uiwd.unexpected", "uiwd.other_port", "uiwd.crc.bad")


def packet(address, ports, octets):
    """IPv4 or IPv6 and UDP; without checksums where that is allowed."""
    size = 8 + len(octets)
    udp = struct.pack(">HHHH", *ports, size, 0) + octets
    if ":" in address:
        host = socket.inet_pton(socket.AF_INET6, address)
        summed = host + host + struct.pack(">II", size, 17) + udp + bytes(size % 2)
        total = sum(struct.unpack(f">{len(summed) // 2}H", summed))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        udp = udp[:6] + struct.pack(">H", total ^ 0xFFFF or 0xFFFF) + octets
        return struct.pack(">IHBB", 6 << 28, size, 17, 64) + host + host + udp
    host = socket.inet_aton(address)
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0x4000, 64, 17, 0) + host + host + udp


def write_pcap(path, packets, cut=None):
    """LINKTYPE_RAW. cut: octets of each packet that are captured."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 17, 101))
        for number, octets in enumerate(packets):
            kept = octets[:cut]
            file.write(struct.pack("<IIII", 1, number * 100, len(kept), len(octets)) + kept)


class Reading:
    """What tshark makes of packets."""

    def __init__(self, bench, packets, cut=None):
        harness.need_program("tshark")
        self.bench = bench
        path = os.path.join(bench.tmp, "datagrams.pcap")
        write_pcap(path, packets, cut)
        # An ephemeral port may be one that another protocol of Wireshark's claims.
        self.base = ["tshark", "-n", "-r", path, "-X", f"lua_script:{SCRIPT}", "-o", "udp.try_heuristic_first:TRUE",
                     "-o", "udp.check_checksum:FALSE", "-o", "ip.check_checksum:FALSE"]
        words = [*self.base, "-T", "fields", "-E", "separator=|", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]
        for field in (*(f"uiwd.{name}" for name in FIELDS), *COMPLAINTS):
            words += ["-e", field]
        ended = self.run(words)
        self.frames = [dict(zip(("protocol", "info", *FIELDS, *COMPLAINTS), line.split("|")))
                       for line in ended.splitlines()]
        check(len(self.frames) == len(packets), f"{len(packets)} packets, tshark sees {len(self.frames)}")

    def run(self, words):
        ended = self.bench.command(words, timeout=60)
        noise = [line for line in ended.stderr.splitlines() if line and not line.startswith("Running as user")]
        check(not noise, f"tshark says on stderr: {noise[:5]}")
        check("Lua Error" not in ended.stdout, f"the dissector fails: {ended.stdout[:2000]}")
        return ended.stdout

    def unflawed(self):
        text = self.run([*self.base, "-V", "-Y", '_ws.malformed || _ws.expert.severity >= "Warning"'])
        check(not text.strip(), f"tshark complains:\n{text[:3000]}")


def agree(frame, octets):
    """tshark's fields are those of the encoder of our own."""
    got = datagram.Datagram(octets)
    check(frame["protocol"] == "UIWD", f"protocol {frame['protocol']}")
    check(frame["info"].startswith(f"{NAMES[got.rdmap]} 0x{got.source:06x} -> 0x{got.destination:06x}, "
                                   f"Q_Key 0x{got.qkey:08x}, {len(got.payload)} octets"), f"info {frame['info']!r}")
    wanted = {"version": 1, "reserved": 0, "destination": got.destination, "destination_port": got.destination >> 8,
              "source": got.source, "source_port": got.source >> 8, "qkey": got.qkey, "ddp": got.ddp,
              "rdmap": got.rdmap, "queue_number": 0, "msn": got.msn, "message_offset": 0, "length": len(got.payload),
              "crc": struct.unpack("<I", octets[-4:])[0]}
    wanted["invalidate_stag" if got.immediate is None else "immediate"] = got.inv
    for name, value in wanted.items():
        check(frame[name] and int(frame[name], 0) == value, f"tshark sees {name} {frame[name]!r}, not {value:#x}")
    check(frame["key"] == "uiwd", f"key {frame['key']}")
    check(frame["immediate" if got.immediate is None else "invalidate_stag"] == "", f"{frame}")
    check(bytes.fromhex(frame["payload"].replace(":", "")) == got.payload, "payload")
    check(frame["crc.good"] in ("1", "True"), f"tshark finds a wrong CRC: {frame['crc.good']}")
    check(not any(frame[name] for name in COMPLAINTS), f"{frame}")


def both_ways(bench, address):
    harness.need_program("tshark")
    session = DatagramSession(bench, address)
    number = 0
    for rdmap, flags, more in ((SEND, "-", {}), (SEND_SE, "s", {}), (SEND_IMM, "-", {"imm": 0xA1B2C3D4}),
                               (SEND_SE_IMM, "s", {"imm": 0})):
        for size in (0, 1, 31, 1000, 4096):
            number += 1
            send(session, number, f"m:{number}:{size}", flags=flags, **more)
            check(len(session.peer.receive().payload) == size, "message")
            session.sut.completion(number)
            session.receive(number)
            session.deliver(wire.pattern(number, size), number, rdmap=rdmap, msn=number,
                            inv=number if rdmap in (SEND_IMM, SEND_SE_IMM) else 0)
    peer = session.peer
    packets = [packet(address, (peer.port, port) if ours else (port, peer.port), octets)
               for ours, port, octets in peer.record]
    reading = Reading(bench, packets)
    for frame, (_, _, octets) in zip(reading.frames, peer.record):
        agree(frame, octets)
    reading.unflawed()


for _address in ("127.0.0.1", "::1"):
    row(f"messages of every kind, both ways, {_address}", address=_address)(both_ways)


@row("what a receiver drops is marked, and what is right is not")
def marked(bench):
    source, destination = 0x9C40AA, 0xC35011
    ports = (source >> 8, destination >> 8)

    def one(**fields):
        field = {"destination": destination, "source": source, "qkey": 7, "payload": b"12345", **fields}
        return datagram.datagram(**field)

    cases = [(one(), set()), (one(ddp=0x7D), set()), (one(inv=5), set()), (one(payload=b""), set()),
             (one(rdmap=0x73), set()), (one(rdmap=0x7F), set()),
             (one(damage=1), {"uiwd.crc.bad"}), (one()[:41], {"uiwd.short"}), (one()[:4], {"uiwd.short"}),
             (one()[:-1], {"uiwd.crc.bad"}), (one(destination=destination ^ 0x100), {"uiwd.other_port"}),
             (one(source=source ^ 0x100), {"uiwd.other_port"})]
    for fields in ({"version": 2}, {"reserved": b"\0\0\1"}, {"ddp": 0x42}, {"ddp": 0xC1}, {"ddp": 1}, {"rdmap": 0x40},
                   {"rdmap": 0x03}, {"qn": 1}, {"mo": 1}, {"destination": destination | 1 << 24},
                   {"source": source | 1 << 31}):
        cases.append((one(**fields), {"uiwd.unexpected"}))
    reading = Reading(bench, [packet("127.0.0.1", ports, octets) for octets, _ in cases])
    for number, (frame, (octets, wanted)) in enumerate(zip(reading.frames, cases)):
        found = {name for name in COMPLAINTS if frame[name]}
        check(frame["protocol"] == "UIWD", f"case {number}: {frame}")
        check(found == wanted, f"case {number}, {octets.hex()}: {found or 'nothing'}, not {wanted or 'nothing'}")


@row("multicast's number, and a source that is multicast's")
def multicast(bench):
    octets = datagram.datagram(datagram.MULTICAST, 0x9C40AA, 7, b"12345")
    fake = datagram.datagram(0xC35011, datagram.MULTICAST, 7, b"12345")
    reading = Reading(bench, [packet("127.0.0.1", (0x9C40, 14791), octets), packet("127.0.0.1", (65535, 0xC350), fake),
                              packet("127.0.0.1", (0x9C40, 14792), octets)])
    first, second, third = reading.frames
    check(third["uiwd.other_port"], f"{third}")
    check(first["multicast"] in ("1", "True") and first["destination_port"] == "", f"{first}")
    check("-> multicast, " in first["info"], first["info"])
    check(not any(first[name] for name in COMPLAINTS), f"{first}")
    check(second["uiwd.unexpected"] and not second["multicast"], f"{second}")


def lookup_message(kind, data=b"", number=0, qkey=0, version=1, size=None, damage=0):
    body = struct.pack(">4sBBHQII", b"uiwl", version, kind, len(data) if size is None else size, 0x1122334455667788,
                       number, qkey) + data
    return body + struct.pack("<I", crc32c(body) ^ damage)


@row("look-ups of services: each field, and what a receiver drops")
def lookups(bench):
    good = [lookup_message(1, b"question"), lookup_message(2, b"answer", 0xC35011, 7), lookup_message(3, b"no"),
            lookup_message(1), lookup_message(1, bytes(255))]
    flawed = [(lookup_message(4), "unexpected"), (lookup_message(1, version=2), "unexpected"),
              (lookup_message(1, number=5), "unexpected"), (lookup_message(3, qkey=5), "unexpected"),
              (lookup_message(2, number=datagram.MULTICAST), "unexpected"), (lookup_message(1, b"12", size=3), "wrong_size"),
              (lookup_message(1, bytes(256)), "wrong_size"), (lookup_message(1)[:27], "wrong_size"), (b"uiwl", "wrong_size"),
              (lookup_message(1, damage=1), "crc.bad")]
    reading = Reading(bench, [packet("127.0.0.1", (40001, 50001), octets) for octets in
                              (*good, *(octets for octets, _ in flawed))])
    check(all(frame["protocol"] == "UIWL" for frame in reading.frames), f"{reading.frames}")
    check(reading.frames[1]["info"] == "Reply: queue pair 0xc35011, Q_Key 0x00000007", reading.frames[1]["info"])
    names = ("kind", "size", "request", "qp", "qkey", "private_data", "crc.good", "unexpected", "wrong_size", "crc.bad")
    words = [*reading.base, "-T", "fields", "-E", "separator=|"]
    for name in names:
        words += ["-e", f"uiwl.{name}"]
    frames = [dict(zip(names, line.split("|"))) for line in reading.run(words).splitlines()]
    for frame, octets in zip(frames, good):
        kind, size, request, number, qkey = struct.unpack(">BHQII", octets[5:24])
        got = tuple(int(frame[name], 0) for name in ("kind", "size", "request", "qp", "qkey"))
        check(got == (kind, size, request, number, qkey), f"{frame}, not {octets.hex()}")
        check(bytes.fromhex(frame["private_data"].replace(":", "")) == octets[24:-4], f"{frame}")
        check(frame["crc.good"] in ("1", "True") and not any(frame[name] for name in names[7:]), f"{frame}")
    for frame, (octets, fault) in zip(frames[len(good):], flawed):
        found = {name for name in names[7:] if frame[name]}
        check(found == {fault}, f"{octets.hex()}: {found or 'nothing'}, not {fault}")


@row("a capture that holds the beginning of each datagram only")
def cut(bench):
    whole = [datagram.datagram(0xC35011, 0x9C40AA, 7, wire.pattern(1, size)) for size in (0, 1, 500)]
    for kept in (29, 60, 66, 68, 70, 200):
        reading = Reading(bench, [packet("127.0.0.1", (0x9C40, 0xC350), octets) for octets in whole], kept)
        for frame, octets in zip(reading.frames, whole):
            captured = len(octets[:kept - 28])
            check(not frame["uiwd.crc.bad"], f"{kept}: {frame}")
            check(bool(frame["qkey"]) == (captured >= datagram.HEADER), f"{kept}: {frame}")
            check(captured == len(octets) or not frame["crc"], f"{kept}: {frame}")


@row("what only resembles one is left to others")
def others(bench):
    contents = (b"", b"u", b"uiw", b"UIWD" + bytes(60), bytes(80))
    for frame in Reading(bench, [packet("127.0.0.1", (40001, 50001), octets) for octets in contents]).frames:
        check(frame["protocol"] != "UIWD", f"{frame}")


@row("the dissector is installed where its documents say")
def installed(bench):
    target = os.path.join(bench.tmp, "root")
    bench.command(["cmake", "--install", bench.build, "--prefix", target], timeout=60)
    path = pathlib.Path(target, "share", "uiw", "wireshark", "uiw_datagrams.lua")
    check(path.read_bytes() == SCRIPT.read_bytes(), "another file is installed")
    text = (SCRIPT.parents[2] / "docs" / "datagrams.md").read_text(encoding="utf-8")
    check("share/uiw/wireshark/uiw_datagrams.lua" in text, "docs/datagrams.md does not name it")


if __name__ == "__main__":
    sys.exit(main())
