# SPDX-License-Identifier: MIT
"""What a queue pair of type UD receives: datagrams of the format of docs/datagrams.md, and no others."""

import pathlib
import random
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import datagram, wire
from peer.datagram import (HEADER, MULTICAST, OVERHEAD, SEND, SEND_IMM, SEND_SE, SEND_SE_IMM, DatagramPeer,
                           DatagramSession, sealed)
from peer.sut import ERR, INIT, RESET, RTR, RTS, check, harness, main, row

SIZES = (0, 1, 2, 3, 4, 5, 31, 100, 1000, 1431, 1472, 4095, 4096)  # of messages
TEXT, FORGED = b"as it should be", b"to be dropped"


def messages(bench, address):
    session = DatagramSession(bench, address)
    session.sut.memory("sentinel", 4096, "l", seed=3)
    number = 0
    for rdmap in (SEND, SEND_SE, SEND_IMM, SEND_SE_IMM):
        for size in SIZES:
            number += 1
            session.receive(number)
            session.deliver(wire.pattern(number, size), number, rdmap=rdmap,
                            inv=0x01020300 + number if rdmap in (SEND_IMM, SEND_SE_IMM) else 0)
    session.sut.memories["sentinel"].untouched()
    session.sut.nothing(0.05)


for _address in ("127.0.0.1", "::1"):
    row(f"messages of every kind and size, {_address}", address=_address)(messages)


@row("what a receiver ignores: MSN, Invalidate STag of a Send, reserved bits of DDP and RDMAP")
def ignored(bench):
    session = DatagramSession(bench)
    cases = [{"msn": 0}, {"msn": 0xFFFFFFFF}, {"msn": 7}, {"msn": 7}, {"inv": 0x12345678}, *(
        {"ddp": datagram.DDP | bit} for bit in (4, 8, 16, 32, 60)), *(
        {"rdmap": kind | bits} for kind in (SEND, SEND_SE) for bits in (0x10, 0x20, 0x30))]
    for number, case in enumerate(cases, 1):
        session.receive(number)
        inv = case.pop("inv", 0)
        session.peer.send(session.good(TEXT, inv=inv, **case), session.port)
        session.arrives(TEXT, number)


@row("a solicited message wakes a program that waits for those alone")
def solicited(bench):
    session = DatagramSession(bench)
    session.sut.command("notify solicited")
    for number in (1, 2, 3):
        session.receive(number)
    # The CQ was armed for any completion first, and the weaker request does not undo that: the first one tells.
    session.deliver(TEXT, 1)
    session.sut.asleep()
    session.peer.send(session.good(TEXT), session.port)
    session.drained()
    session.sut.nothing()
    session.peer.send(session.good(TEXT, rdmap=SEND_SE), session.port)
    session.arrives(TEXT, 2)
    session.arrives(TEXT, 3)


@row("a receive of several elements, which end inside of the header and of the message")
def elements(bench):
    session = DatagramSession(bench)
    session.sut.recv("u", 1, "in:0:17", "in:1000:0", "in:2000:30", "in:3000:100")
    session.peer.send(session.good(wire.pattern(5, 60)), session.port)
    wc = session.sut.completion(1)
    check(wc.length == 100, f"{wc}")
    octets = session.inbox.dump(0, 17) + session.inbox.dump(2000, 30) + session.inbox.dump(3000, 53)
    check(octets[40:] == wire.pattern(5, 60), "other octets than were sent")
    session.check_grh(octets[:40])


# ---- what is dropped -----------------------------------------------------------------------------------------------


def dropped(session, forged, send=None):
    """None of the datagrams is delivered: those that are good, sent behind them, get the receives that were posted. UDP
    on one host keeps the order. What is forged has another payload than TEXT."""
    send = send or session.peer.send
    session.receive(1)
    session.receive(2)
    session.inbox.fill(29)
    for number in range(0, len(forged), 32):
        for octets in forged[number:number + 32]:
            send(octets, session.port)
        check(session.drained() == 0, "the socket of uiw was full")
    session.deliver(TEXT, 1)
    session.deliver(TEXT, 2)
    check(not session.sut.asyncs, f"async events {session.sut.asyncs}")
    for number in (1, 2):
        session.inbox.sut.command(f"poke in {number * 8192} {wire.pattern(29 + number * 8192, 55).hex()}")
    session.inbox.untouched()


def forgery(title, *build):
    """A row: each function gives from the session a list of datagrams that must be dropped."""

    def run(bench):
        session = DatagramSession(bench)
        dropped(session, [octets for make in build for octets in make(session)])

    row("dropped: " + title)(run)


def changed(**fields):
    """Good ones but for one field, which has these values, with a CRC that is right."""
    return lambda session: [session.good(FORGED, **{name: value}) for name, values in fields.items()
                            for value in values]


def cut(session):
    whole = session.good(b"")
    long = session.good(FORGED)
    return [*(whole[:size] for size in range(OVERHEAD)), *(sealed(whole[:size]) for size in range(HEADER)),
            *(long[:size] for size in range(len(long)))]


def flipped(session):
    """Each bit in turn, with the CRC of what was there before."""
    whole = session.good(FORGED)
    return [whole[:bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1:]
            for bit in range(8 * len(whole))]


forgery("a key that is another", changed(key=(b"uiwD", b"\0\0\0\0", b"dwiu", b"MPA ", b"uiw\0")))
forgery("a version that is another", changed(version=(0, 2, 0x81, 0xFF)))
forgery("reserved octets that are not zero", changed(reserved=(b"\1\0\0", b"\0\1\0", b"\0\0\1", b"\xff\xff\xff")))
forgery("too short, or cut off at every length", cut)
forgery("octets behind the CRC", lambda s: [s.good(FORGED) + bytes(size) for size in (1, 2, 3, 4, 100)])
forgery("a wrong CRC", changed(damage=(1, 0x80000000, 0xFFFFFFFF)),
        lambda s: [s.good(FORGED)[:-4] + bytes(4), s.good(FORGED)[:-4] + s.good(FORGED)[:-5:-1]])
forgery("each bit of a good one changed", flipped)
forgery("a DDP header that is another", changed(
    ddp=(0x01, 0x40, 0x42, 0x43, 0xC1, 0x81, 0x00, 0xFF), qn=(1, 2, 3, 0xFFFFFFFF, 1 << 24),
    mo=(1, 4, 1 << 31, 0xFFFFFFFF)))
forgery("an RDMAP header that is another", changed(
    rdmap=tuple(octet for octet in range(256) if octet >> 6 != 1 or octet & 15 not in (3, 5, 14, 15))))
forgery("another Q_Key", changed(qkey=(0, DatagramSession.QKEY + 1, DatagramSession.QKEY ^ 1 << 31, 0xFFFFFFFF,
                                       int.from_bytes(DatagramSession.QKEY.to_bytes(4, "big"), "little"))))
forgery("a destination that is no queue pair of type UD, or has more than 24 bits", lambda s: [
    s.good(FORGED, destination=number) for number in (
        0, 1, s.qp ^ 1, s.qp ^ 0xFF, MULTICAST, s.qp | 1 << 24, s.qp | 0xFF << 24, 0xFFFFFFFF, s.qp << 8 & 0xFFFFFFFF,
        s.port)])
forgery("a source that is not of the port it comes from, is multicast's, or has more than 24 bits", lambda s: [
    s.good(FORGED, source=number) for number in (
        0, s.qp, s.peer.qp ^ 1 << 8, s.peer.qp ^ 1 << 23, MULTICAST, s.peer.qp | 1 << 24, s.peer.qp | 0xFF << 24,
        0xFFFFFFFF, s.peer.port)])


@row("dropped: from a port that is another than its source's, the sender's own queue pair included")
def spoofed(bench):
    session = DatagramSession(bench)
    other = DatagramPeer(bench)
    dropped(session, [session.good(FORGED), session.good(FORGED, source=session.qp)], other.send)
    session.receive(3)
    other.send(session.good(TEXT, source=other.qp), session.port)
    session.arrives(TEXT, 3, source=other.qp)


@row("dropped: for a queue pair with a connection")
def connected(bench):
    session = DatagramSession(bench)
    session.sut.command(f"resolve call 127.0.0.1 {bench.port()}")
    number = int(session.sut.command("qp call"), 0)
    session.peer.send(session.good(FORGED, destination=number), number >> 8)
    dropped(session, [session.good(FORGED, destination=number)])


@row("dropped: sent to an address of another device")
def other_device(bench):
    session = DatagramSession(bench)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            raise harness.Skip("this host has one address only") from None
        address = probe.getsockname()[0]
    away = DatagramPeer(bench, address)
    dropped(session, [session.good(FORGED, source=away.qp)], away.send)


@row("dropped: without a receive, and none waits for the next")
def no_receive(bench):
    session = DatagramSession(bench)
    for number in range(100):
        session.peer.send(session.good(wire.pattern(number, 100)), session.port)
    session.drained()
    session.receive(1)
    session.sut.nothing(0.05)
    session.deliver(TEXT, 1)


@row("dropped: in a state that does not receive; RTR receives, ERR and RESET do not")
def states(bench):
    session = DatagramSession(bench)
    session.sut.command("ud v")
    other = int(session.sut.command("ud w"), 0)

    def away(number=None):
        session.peer.send(session.good(TEXT, destination=number or session.qp), session.port)
        session.drained()
        session.sut.nothing(0.02)

    away(other)
    session.step("w", INIT)
    session.receive(5, name="w")
    away(other)
    session.step("w", RTR)
    session.peer.send(session.good(TEXT, destination=other), other >> 8)
    session.arrives(TEXT, 5, name_qp=other)
    session.step("u", ERR)
    away()
    session.step("u", RESET)
    away()
    session.step("u", INIT, RTR, RTS)
    session.receive(1)
    session.deliver(TEXT, 1)


@row("dropped: for a queue pair that was destroyed")
def destroyed(bench):
    session = DatagramSession(bench)
    gone = session.make("v")
    session.receive(5, name="v")
    session.sut.command("ud_destroy v")
    session.peer.send(session.good(FORGED, destination=gone), gone >> 8)
    dropped(session, [session.good(FORGED, destination=gone)])


@row("dropped: a message longer than the next receive, which stays")
def too_long(bench):
    session = DatagramSession(bench)
    session.sut.recv("u", 1, "in:8192:139")
    session.receive(2)
    session.inbox.fill(29)
    session.peer.send(session.good(bytes(100)), session.port)
    check(session.drained() == 0, "the socket of uiw was full")
    session.sut.nothing(0.02)
    session.inbox.untouched()
    session.deliver(wire.pattern(1, 99), 1)
    session.deliver(wire.pattern(2, 100), 2)


@row("dropped: longer than the MTU of the device, up to the longest datagram of UDP")
def oversize(bench):
    session = DatagramSession(bench)
    dropped(session, [session.good(bytes(size)) for size in (4097, 5000, 9000, 16384, 65507 - OVERHEAD)])


# ---- floods --------------------------------------------------------------------------------------------------------


def noise(session):
    """Octets by chance, some behind a header that is right."""
    chance = random.Random(14)
    made = []
    for _ in range(400):
        octets = chance.randbytes(chance.randrange(0, 1400))
        made += [octets, sealed(octets), sealed(session.good()[:chance.randrange(0, HEADER)] + octets)]
    return made


forgery("octets by chance", noise)


def flood(bench, build):
    """The memory of the program stays as it is, and what is good passes afterwards."""
    session = DatagramSession(bench)
    octets = build(session)
    address = (session.peer.address, session.port)
    burst = 32

    def round_of(count):
        for _ in range(count):
            for _ in range(burst):
                session.peer.socket.sendto(octets, address)
            session.drained()

    round_of(20)
    before, full = session.anonymous_memory(), session.drained()
    round_of(600)
    for _ in range(20000):  # and as fast as it goes
        session.peer.socket.sendto(octets, address)
    full = session.drained() - full
    check(full < 20000, "uiw has read nothing of the flood")
    after = session.anonymous_memory()
    # ThreadSanitizer takes memory for what it has seen; the other builds watch over this.
    with open(f"{bench.build}/CMakeCache.txt") as cache:
        if "UIW_SANITIZE:STRING=thread" not in cache.read():
            check(after - before <= 256, f"{before} KiB have become {after} KiB")
    session.sut.nothing(0.02)
    for number in (1, 2):
        session.receive(number)
        session.deliver(TEXT, number)


for _title, _build in (("no receive", lambda s: s.good(bytes(1400))),
                       ("another Q_Key", lambda s: s.good(bytes(1400), qkey=1)),
                       ("a wrong CRC", lambda s: s.good(bytes(1400), damage=1)),
                       ("another version", lambda s: s.good(bytes(1400), version=2)),
                       ("a source that is not the sender's", lambda s: s.good(bytes(1400), source=s.qp)),
                       ("one octet", lambda s: b"u"),
                       ("no queue pair", lambda s: s.good(bytes(1400), destination=s.qp ^ 0xFF))):
    row(f"flood: {_title}", build=_build)(flood)


if __name__ == "__main__":
    sys.exit(main())
