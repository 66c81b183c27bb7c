# SPDX-License-Identifier: MIT
"""Writes the seed corpora: one directory for each fuzzer, small files that are right, or nearly.

usage: seeds.py DIRECTORY
"""
import pathlib
import struct
import sys


def startup():
    def frame(key, flags, revision, data):
        return key + struct.pack(">BBH", flags, revision, len(data)) + data

    request, reply = b"MPA ID Req Frame", b"MPA ID Rep Frame"
    control = bytes([3, 4, 4])
    yield control + frame(request, 0x50, 2, struct.pack(">HH", 0x8004, 0xC004) + b"private")
    yield control + frame(request, 0x40, 1, b"")
    yield control + frame(request, 0x52, 2, struct.pack(">HH", 0x8004, 0x8004))
    yield control + frame(reply, 0x51, 2, struct.pack(">HH", 0x8004, 0x8004))
    yield control + frame(reply, 0x50, 2, struct.pack(">HH", 0x8004, 0x8004))
    yield control + frame(reply, 0x20, 1, b"no")
    yield control + frame(request, 0x90, 2, struct.pack(">HH", 0xBFFF, 0x3FFF))


def fpdu(ulpdu):
    body = struct.pack(">H", len(ulpdu)) + ulpdu
    return body + bytes(-len(body) % 4) + bytes(4)


def deframer():
    stream = b"".join(fpdu(bytes(range(n % 256)) * (1 + n // 256)) for n in (0, 1, 14, 18, 79, 80, 81, 200))
    for control in range(8):
        yield bytes([control, 7, 0, 3]) + stream


def rings():
    for ulpdus in ((0, 1, 14), (18, 79, 80), (81, 200)):
        stream = b"".join(fpdu(bytes(range(n))) for n in ulpdus)
        parts = [stream[at:at + 100] for at in range(0, len(stream), 100)]
        # The peer sends a part; this end receives, with a step of the peer's or none for each piece, and sends.
        yield b"".join(bytes([2, len(part)]) + part + bytes([0, 1, 1, 0, 1, 1]) for part in parts) + bytes([1, 200]) * 4
        yield b"".join(bytes([2, len(part)]) + part + bytes([0, 8, 0, 3, 2, 255, 255, 0]) for part in parts)


def tagged(opcode, stag, offset, payload, control=0xC1):
    return struct.pack(">BBIQ", control, 0x40 | opcode, stag, offset) + payload


def untagged(opcode, queue, msn, mo, payload, control=0x41, word=0):
    return struct.pack(">BBIIII", control, 0x40 | opcode, word, queue, msn, mo) + payload


def read_request(msn, size, offset=0xAA000000):
    return untagged(1, 1, msn, 0, struct.pack(">IQIIQ", 1, 0, size, 0xAA000000, offset))


def terminate(layer, kind, code, headers=b"", bits=0):
    return struct.pack(">BBH", layer << 4 | kind, code, bits) + headers


def receiver():
    def records(*items):
        return b"".join(struct.pack(">BH", what, len(ulpdu)) + ulpdu for what, ulpdu in items)

    for crc in (0, 1):
        head = bytes([crc, 5])
        yield head + records((1, untagged(3, 0, 1, 0, b"x" * 50, 0x01)), (1, untagged(3, 0, 1, 50, b"y" * 50)),
                             (1, untagged(6, 0, 2, 0, b"z", word=0xAA000000)))
        yield bytes([crc | 2, 5]) + records((1, untagged(0xF, 0, 1, 0, b"x" * 50, 0x01, word=7)),
                                            (0, untagged(0xF, 0, 1, 50, b"y" * 50, word=7)),
                                            (1, untagged(0x1F, 0, 2, 0, b"", word=8)))
        yield head + records((0, tagged(0, 0xAA000000, 0xAA000000, b"w" * 100)),
                             (4, tagged(0, 0xAA000000, 0xAA000000 + 156, b"w" * 100)))
        yield head + records((4, read_request(1, 256)), (4, read_request(2, 0)), (8 | 0x70, read_request(3, 10)))
        yield head + records((6, b""), (4, tagged(2, 0xAA000001, 0xAA000000, b"r" * 40, 0x81)),
                             (4, tagged(2, 0xAA000001, 0xAA000000 + 40, b"r" * 60)))
        yield head + records((0, untagged(7, 2, 1, 0, terminate(1, 1, 0, struct.pack(">H", 20) + tagged(0, 1, 0, b""),
                                                               0xC000))))


def terminates():
    yield terminate(0, 0, 0)
    yield terminate(2, 0, 2)
    yield terminate(1, 1, 1, struct.pack(">H", 99) + tagged(0, 1, 2, b""), 0xC000)
    yield terminate(0, 1, 2, struct.pack(">H", 46) + read_request(1, 2), 0xE000)
    yield terminate(0, 1, 0, bytes(28), 0x2000)


def cm_commands():
    answer, identifier = b"\xa5" * 8, b"\xa5" * 4

    def command(number, body, out=300):
        body += bytes(-len(body) % 4)
        octets = struct.pack("<IHH", number | 0x80, len(body), out) + body
        return bytes([len(octets) // 4]) + octets

    create = command(0, struct.pack("<Q", 7) + answer + struct.pack("<HB5x", 0x0106, 2))
    destroy = command(1, answer + identifier + bytes(4))
    loopback = struct.pack("<H", 2) + bytes([0, 0, 127, 0, 0, 1]) + bytes(8)
    bind_ip = command(2, answer + loopback + bytes(12) + identifier)
    resolve_ip = command(3, bytes(28) + loopback + bytes(12) + identifier + struct.pack("<I", 1000))
    bind = command(20, identifier + struct.pack("<HH", 16, 0) + loopback + bytes(112))
    listen = command(7, identifier + struct.pack("<I", 5))
    event = command(12, answer)
    query = command(5, answer + identifier + bytes(4))
    attributes = command(11, answer + identifier + struct.pack("<I", 1))
    option = command(14, answer + identifier + struct.pack("<IIII", 0, 1, 4, 0))
    migrate = command(18, answer + identifier + bytes(4))
    resolve = command(21, identifier + struct.pack("<IHHI", 1000, 16, 16, 0) + loopback + bytes(112) + loopback + bytes(112))
    for body in (create + destroy, create + bind + listen + event + destroy, create + resolve_ip + event + query,
                 create + resolve + event + attributes + option, create + bind_ip + migrate + destroy):
        # The first octet's lowest bit, which is a length here, says whether lengths are mended.
        yield body


def datagrams():
    for opcode, payload in ((0x43, b"hello"), (0x45, b""), (0x4F, b"x" * 100), (0x5F, b"y")):
        word = 0x01020304 if opcode & 8 else 0
        yield (b"\x01uiwd" + bytes([1, 0, 0, 0]) + struct.pack(">III", 0x123456, 0x654321, 0x1234567) +
               struct.pack(">BBIIII", 0x41, opcode, word, 0, 9, 0) + payload + bytes(4))
    for kind, number, data in ((1, 0, b"question"), (2, 0x123456, b""), (3, 0, b"no")):
        yield (b"\x03uiwl" + struct.pack(">BBHQII", 1, kind, len(data), 42, number, number) + data + bytes(4))


def netlink():
    def message(kind, flags, body=b"", port=0):
        return struct.pack("<IHHII", 16 + len(body), kind, flags, 7, port) + body

    def seed(request, host=b""):
        return struct.pack(">H", len(request)) + request + host

    dump, request = 0x301, 0x1
    host = message(0x1401, 2, struct.pack("<HHI", 8, 1, 0) + struct.pack("<HH", 11, 2) + b"siw_lo\0\0")
    done = message(3, 2, bytes(4))
    for command in (1, 5, 9, 15, 17):
        yield seed(message(0x1400 | command, dump))
        yield seed(message(0x1400 | command, dump), host + done)
        yield seed(message(0x1400 | command, request, struct.pack("<HHI", 8, 1, 0x10000)))
        yield seed(message(0x1400 | command, request, struct.pack("<HHIHHI", 8, 1, 0x10000, 8, 3, 1)))
    yield seed(message(0x140F, request, struct.pack("<HH", 13, 69) + b"rdma_cm\0\0\0\0"[:12]))


def port_mapper():
    for kind in range(4):
        for version, family in ((0, 4), (1, 6)):
            head = struct.pack(">BBHHHQ", version << 6 | kind << 4 | family, 0, 9, 4711, 40000, 0x0102030405060708)
            yield head + bytes(range(16)) + bytes(range(16, 32)) + (bytes(16) if kind == 0 else b"")


def settings():
    for number, text in enumerate(("auto", "on", "remote", "lo=mlx5_0,eth0", "1500", "10000", "2", "initiator", "4000-5000",
                                   "14791", "tcp", "8", "4096", "roce", "/run/uiw", "/var/log/uiw", "info")):
        yield bytes([number]) + text.encode()
    for path in ("/sys/class/infiniband/uiw_lo/ports/1/hw_counters/x", "/dev/infiniband//uverbs0",
                 "/sys/class/infiniband_verbs/./uverbs0/../abi_version", "class/infiniband/uiw_lo/ports/1/counters"):
        yield bytes([0]) + path.encode()


def uverbs():
    yield struct.pack("<IHHQ", 17, 4, 1, 0)  # CREATE_COMP_CHANNEL
    yield struct.pack("<IHHQ", 1, 4, 1, 0)
    yield struct.pack("<HHHHQII", 40, 16, 0, 1, 0, 0, 0) + struct.pack("<HHHHQ", 0, 0, 1, 0, 0)  # ASYNC_EVENT_ALLOC


def main():
    root = pathlib.Path(sys.argv[1])
    for name, seeds in (("startup", startup()), ("deframer", deframer()), ("rings", rings()),
                        ("receiver", receiver()),
                        ("terminate", terminates()), ("cm_commands", cm_commands()),
                        ("datagrams", datagrams()), ("netlink", netlink()), ("port_mapper", port_mapper()),
                        ("settings", settings()), ("uverbs", uverbs())):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (root / name / f"{number:02}").write_bytes(seed)


if __name__ == "__main__":
    main()
