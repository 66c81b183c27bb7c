# SPDX-License-Identifier: MIT
"""What a queue pair of type UD sends: each octet is held against docs/datagrams.md."""

import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.datagram import SEND, SEND_IMM, SEND_SE, SEND_SE_IMM, DatagramPeer, DatagramSession, send
from peer.sut import FLUSHED, LOC_LEN_ERR, LOC_PROT_ERR, RTS, WC_SEND, check, main, row

QKEY = 0x55667788
KINDS = ((SEND, "-", {}), (SEND_SE, "s", {}), (SEND_IMM, "-", {"imm": 0xA1B2C3D4}), (SEND_SE_IMM, "s", {"imm": 1}))


def comes(session, payload, rdmap=SEND, imm=0, qkey=QKEY, source=None):
    """The next datagram is this one. Its MSN is one more than that of the one before it."""
    got = session.peer.receive()
    check((got.destination, got.source) == (session.peer.qp, source or session.qp), f"numbers: {got}")
    check(got.qkey == qkey, f"Q_Key: {got}")
    check((got.rdmap, got.inv) == (rdmap, imm), f"not control {rdmap:#x} and immediate data {imm:#x}: {got}")
    check(got.payload == payload, f"payload: {got}")
    before = getattr(session, "msn", None)
    check(before is None or got.msn == (before + 1) % (1 << 32), f"MSN {got.msn} behind {before}")
    session.msn = got.msn
    return got


def sent(session, wr_id):
    wc = session.sut.completion(wr_id)
    check(wc.opcode == WC_SEND, f"{wc}")


def messages(bench, address):
    session = DatagramSession(bench, address)
    number = 0
    for rdmap, flags, more in KINDS:
        for size in (0, 1, 2, 3, 4, 5, 31, 255, 256, 1000, 1431, 1472, 4095, 4096):
            for inline in ("i", "") if size <= 256 else ("",):
                number += 1
                send(session, number, f"m:{number}:{size}", flags=flags + inline, **more)
                comes(session, wire.pattern(11 + number, size), rdmap, **more)
                sent(session, number)
    session.peer.quiet()


for _address in ("127.0.0.1", "::1"):
    row(f"messages of every kind and size, {_address}", address=_address)(messages)


IPV6_FLOWINFO, IP_RECVTTL = 11, 12  # of Linux; Python does not name them


def header_fields(bench, address):
    session = DatagramSession(bench, address)
    own, ipv6 = session.peer.socket, ":" in address
    for option in ((socket.IPV6_RECVTCLASS, socket.IPV6_RECVHOPLIMIT, IPV6_FLOWINFO) if ipv6 else
                   (socket.IP_RECVTOS, IP_RECVTTL)):
        own.setsockopt(socket.IPPROTO_IPV6 if ipv6 else socket.IPPROTO_IP, option, 1)
    for number, (kind, hops, label) in enumerate(((0, 64, 0), (0xB8, 9, 0x12345), (0xFF, 1, 0xFFFFF), (4, 255, 1))):
        session.sut.command(f"ah b{number} {address} {address} class={kind} hops={hops} label={label}")
        # Several of one size, which the kernel may take as one, and one that goes another way between them.
        for handle in (f"b{number}", f"b{number}", "a", f"b{number}"):
            session.sut.command(f"ud_send u {number} cu {handle} {session.peer.qp:#x} {QKEY:#x} m:0:100")
        send(session, number, "m:0:100")
        sent(session, number)
        for want in ((kind, hops, label), (kind, hops, label), (0, 64, 0), (kind, hops, label), (0, 64, 0)):
            got = fields_of(own, ipv6)
            check(got == (want if ipv6 else want[:2]), f"traffic class, hop limit, flow label: {got}, not {want}")


def fields_of(own, ipv6):
    """Of the next datagram's IP header: traffic class, hop limit, and the flow label of IPv6."""
    own.settimeout(10)
    _, control, _, _ = own.recvmsg(1 << 16, 256)
    values = {kind: octets for _, kind, octets in control}
    if not ipv6:
        return values[socket.IP_TOS][0], int.from_bytes(values[socket.IP_TTL], sys.byteorder)
    flow = int.from_bytes(values.get(IPV6_FLOWINFO, bytes(4)), "big")
    return (*(int.from_bytes(values[kind], sys.byteorder) for kind in (socket.IPV6_TCLASS, socket.IPV6_HOPLIMIT)),
            flow & 0xFFFFF)


for _address in ("127.0.0.1", "::1"):
    row(f"the IP header has the traffic class, hop limit and flow label of the address handle, {_address}",
        address=_address)(header_fields)


@row("immediate data of zero, and with the highest bit, are immediate data")
def immediate(bench):
    session = DatagramSession(bench)
    for number, value in enumerate((0, 1, 0x80000000, 0xFFFFFFFF)):
        send(session, number, "m:0:8", imm=value)
        comes(session, wire.pattern(11, 8), SEND_IMM, value)
        sent(session, number)


@row("a message is gathered from several elements, of which some are empty")
def elements(bench):
    session = DatagramSession(bench)
    send(session, 1, "m:0:3", "m:100:0", "m:200:1000", "m:5000:1", "m:6000:96")
    comes(session, b"".join(wire.pattern(11 + at, size) for at, size in ((0, 3), (200, 1000), (5000, 1), (6000, 96))))
    sent(session, 1)


@row("a Q_Key with its highest bit set stands for the queue pair's own")
def controlled_qkey(bench):
    session = DatagramSession(bench)
    for number, (asked, wanted) in enumerate(((0x7FFFFFFF, 0x7FFFFFFF), (0, 0), (1 << 31, session.QKEY),
                                              (0xFFFFFFFF, session.QKEY))):
        send(session, number, "m:0:8", qkey=asked)
        comes(session, wire.pattern(11, 8), qkey=wanted)
        sent(session, number)


@row("a list goes out in its order, and the unsignaled ones complete silently")
def lists(bench):
    session = DatagramSession(bench)
    for start in range(0, 2000, 40):
        for number in range(start, start + 40):
            last = number == start + 39
            send(session, number, f"m:{number}:64", flags="-" if last else "cu")
        for number in range(start, start + 40):
            comes(session, wire.pattern(11 + number, 64))
        sent(session, start + 39)
    session.sut.nothing(0.02)


@row("each destination gets its own: two peers, and two queue pairs that send")
def destinations(bench):
    session = DatagramSession(bench)
    first, second = session.peer, DatagramPeer(bench)
    own = {"u": session.qp, "v": session.make("v")}
    for number in range(40):
        session.peer, name = (first, second)[number % 2], "uv"[number // 2 % 2]
        session.msn = None
        send(session, number, f"m:{number}:100", name=name)
        comes(session, wire.pattern(11 + number, 100), source=own[name])
        sent(session, number)
    first.quiet()
    second.quiet()


@row("a destination where nobody is harms nobody")
def nobody(bench):
    session = DatagramSession(bench)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for number in range(20):
        send(session, number, "m:0:100", destination=port << 8)
        sent(session, number)
        send(session, 100, "m:0:100")
        comes(session, wire.pattern(11, 100))
        sent(session, 100)
        session.msn = None


@row("work that cannot be sent stops the send queue, and nothing of it leaves")
def refused(bench):
    session = DatagramSession(bench)
    for sge, status in (("m:0:4097", LOC_LEN_ERR), ("m:65000:1000", LOC_PROT_ERR)):
        send(session, 1, "m:0:8", flags="c")
        send(session, 2, sge, flags="c")
        send(session, 3, "m:0:8")
        sent(session, 1)
        session.sut.completion(2, status)
        session.sut.completion(3, FLUSHED)
        comes(session, wire.pattern(11, 8))
        session.peer.quiet()
        session.step("u", RTS)
        session.msn = None
    send(session, 4, "m:0:8")
    comes(session, wire.pattern(11, 8))
    sent(session, 4)


@row("a thousand each way at a time")
def both_ways(bench):
    session = DatagramSession(bench)
    for turn in range(25):
        for number in range(40):
            session.receive(number)
        for number in range(40):
            session.peer.send(session.good(wire.pattern(turn + number, 500)), session.port)
            send(session, 1000 + number, f"m:{number}:500")
        done = [session.sut.completion() for _ in range(80)]
        check(sorted(wc.wr_id for wc in done) == [*range(40), *range(1000, 1040)], f"{done}")
        check([wc.wr_id for wc in done if wc.wr_id < 40] == list(range(40)), "receives out of order")
        for number in range(40):
            comes(session, wire.pattern(11 + number, 500))
            check(session.inbox.dump(number * 8192 + 40, 500) == wire.pattern(turn + number, 500), "octets")


if __name__ == "__main__":
    sys.exit(main())
