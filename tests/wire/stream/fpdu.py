# SPDX-License-Identifier: MIT
"""Framing (RFC 5044 sections 4 and 5): every segmentation of the octet stream, CRC, pad octets, lengths, MULPDU."""

import pathlib
import socket
import sys
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import ERR, FLUSHED, Session, check, main, row
from peer.wire import SEND, WRITE, fpdu, pattern


def prepare(session):
    session.sut.memory("m", 65536, "lrw", seed=17)
    session.sut.memory("in", 65536, "l", seed=29)


def session_of(bench, **more):
    return Session(bench, before=prepare, **more)


def script(session, first_msn, first_read):
    """A stretch of every operation: octets, and what must have come of them."""
    memory = session.sut.memories["m"]
    octets = b"".join(fpdu(ulpdu, session.crc) for ulpdu in (
        wire.tagged(WRITE, memory.rkey, memory.addr + 100, pattern(1, 700), False),
        wire.tagged(WRITE, memory.rkey, memory.addr + 800, pattern(2, 1)),
        wire.untagged(SEND, 0, first_msn, 0, pattern(3, 501), False),
        wire.untagged(SEND, 0, first_msn, 501, pattern(4, 2)),
        wire.untagged(SEND, 0, first_msn + 1),
        wire.tagged(WRITE, memory.rkey, memory.addr + 2000),
        wire.read_request(first_read, 5, 6, 33, memory.rkey, memory.addr + 790),
        wire.untagged(wire.SEND_SE, 0, first_msn + 2, 0, b"end")))

    def judge():
        for number, length in enumerate((503, 0, 3)):
            wc = session.sut.completion(first_msn + number)
            check(wc.length == length, f"{wc}: {wc.length} octets")
        check(session.sut.memories["in"].dump(0, 503) == pattern(3, 501) + pattern(4, 2), "the first Send")
        check(session.sut.memories["in"].dump(2000, 3) == b"end", "the last Send")
        check(memory.dump(100, 701) == pattern(1, 700) + pattern(2, 1), "the Write")
        memory.untouched((100, 801))
        first, payload = session.peer.message(wire.READ_RESPONSE)
        check(payload == (pattern(1, 700) + pattern(2, 1) + pattern(17 + 801, 22))[690:723], "the Read")
        memory.fill(17)

    for number in range(3):
        session.sut.recv(session.conn, first_msn + number, f"in:{number * 1000}:1000")
    return octets, judge


def segmentation(bench, crc):
    session, sut, peer = session_of(bench, crc=crc)
    msn = 1
    for turn, piece in enumerate((None, 1, 2, 3, 4, 5, 7, 13, 64, 509, 1021), 1):
        octets, judge = script(session, msn, turn)
        peer.send(octets, piece)
        judge()
        msn += 3
    session.hang_up()


row("every segmentation of a stretch of all operations", crc=True)(segmentation)
row("every segmentation of a stretch of all operations, CRC off", crc=False)(segmentation)


@row("each octet in a TCP segment of its own")
def octet_by_octet(bench):
    session, sut, peer = session_of(bench)
    octets, judge = script(session, 1, 1)
    peer.send(octets[:400], 1, 0.0005)
    peer.send(octets[400:], 37, 0.0005)
    judge()


@row("cut at every octet of header, pad and CRC")
def every_cut(bench):
    session, sut, peer = session_of(bench)
    memory = sut.memories["m"]
    frame = fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"abcde"))
    for cut in range(1, len(frame)):
        sut.command(f"poke m 0 {bytes(5).hex()}")
        peer.send(frame[:cut])
        session.sut.command("hash m 0 8")  # gives uiw time to see the cut
        check(memory.dump(0, 5) == bytes(5), f"cut at {cut}: placed before the CRC was there")
        peer.send(frame[cut:])
        session.alive()
        check(memory.dump(0, 5) == b"abcde", f"cut at {cut}")


@row("a message of several MiB")
def bulk(bench):
    session, sut, peer = session_of(bench, crc=False)
    big = sut.memory("big", 8 << 20, "lrw", seed=1)
    data = pattern(99, (8 << 20) - 3)
    peer.send_message(WRITE, data, 65000, stag=big.rkey, to=big.addr + 1)
    session.alive()
    check(big.hash(1, len(data)) == zlib.crc32(data), "8 MiB written")
    peer.fpdu(wire.read_request(session.read_msn, 1, 2, len(data), big.rkey, big.addr + 1))
    check(peer.message(wire.READ_RESPONSE)[1] == data, "8 MiB read")


# ---- CRC -------------------------------------------------------------------------------------------------------------


def bad_crc(bench, where, piece=None):
    """Nothing of the FPDU is placed or delivered; Terminate LLP, MPA, 0x02 without headers; all is flushed."""
    session, sut, peer = session_of(bench)
    memory = sut.memories["m"]
    for number in (1, 2, 3):
        sut.recv(session.conn, number, "in:0:1000")
    session.send(b"good")
    sut.completion(1)
    check(sut.memories["in"].dump(0, 4) == b"good", "the Send before")
    sut.memories["in"].fill(29)
    frame = bytearray(fpdu(where[0](memory)))
    at = where[1] if where[1] >= 0 else len(frame) + where[1]
    frame[at] ^= where[2]
    peer.send(bytes(frame), piece)
    term = peer.terminated()
    check(term.error == 0x2002, f"{term}")
    check(not (term.m or term.d or term.r), f"{term}: an LLP error carries no headers")
    check(peer.gone() == "fin", "reset where the Terminate should be delivered")
    session.down()
    sut.completion(2, FLUSHED)
    sut.completion(3, FLUSHED)
    session.qp_event()
    memory.untouched()
    sut.memories["in"].untouched()


def _write(memory):
    return wire.tagged(WRITE, memory.rkey, memory.addr, pattern(200, 101))


def _send(_):
    return wire.untagged(SEND, 0, 2, 0, pattern(200, 101))


def _read(memory):
    return wire.read_request(1, 1, 2, 100, memory.rkey, memory.addr)


for _name, _build in (("Write", _write), ("Send", _send), ("Read Request", _read)):
    row(f"CRC: a bit of the CRC wrong: {_name}", where=(_build, -1, 0x80))(bad_crc)
    row(f"CRC: a bit of the last header octet wrong: {_name}", where=(_build, 15, 0x01))(bad_crc)
    row(f"CRC: a bit of the payload wrong: {_name}", where=(_build, 25, 0x10))(bad_crc)
    row(f"CRC: octet by octet: {_name}", where=(_build, 25, 0x10), piece=1)(bad_crc)
row("CRC: a bit of the pad wrong", where=(_write, -5, 0x10))(bad_crc)
row("CRC: a bit of the STag wrong", where=(_write, 5, 0x10))(bad_crc)
row("CRC: a bit of the DDP version wrong", where=(_write, 2, 0x02))(bad_crc)


@row("CRC: the octets of the CRC in the other order are wrong")
def crc_order(bench):
    session, sut, peer = session_of(bench)
    memory = sut.memories["m"]
    frame = fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"abcd"))
    peer.send(frame[:-4] + frame[-4:][::-1])
    check(peer.terminated().error == 0x2002, "passes")
    memory.untouched()


@row("CRC: good FPDUs before the bad one in the same TCP segment are placed, those behind it are not")
def crc_between(bench):
    session, sut, peer = session_of(bench)
    memory = sut.memories["m"]
    sut.recv(session.conn, 1, "in:0:1000")
    peer.send(fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"one"))
              + fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + 10, b"two"), damage=4)
              + fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + 20, b"three"))
              + fpdu(wire.untagged(SEND, 0, 1, 0, b"four")))
    check(peer.terminated().error == 0x2002, "the wrong CRC")
    peer.gone()
    session.down()
    sut.completion(1, FLUSHED)
    check(memory.dump(0, 3) == b"one", "the FPDU before")
    memory.untouched((0, 3))
    sut.memories["in"].untouched()


@row("CRC off: the field may hold anything")
def crc_ignored(bench):
    session, sut, peer = session_of(bench, crc=False)
    memory = sut.memories["m"]
    for number, damage in enumerate((0, 1, 0xFFFFFFFF, 0x80000000)):
        peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr + number, bytes([number])), damage=damage)
    session.alive()
    check(memory.dump(0, 4) == bytes(range(4)), "Writes")


@row("a pad that is not zero is ignored where the CRC is right")
def pad_in(bench):
    session, sut, peer = session_of(bench)
    memory = sut.memories["m"]
    for length in range(4):
        peer.fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, pattern(60, length)), pad=b"\xAA\xBB\xCC")
    session.alive()
    memory.untouched((0, 3))


# ---- what uiw sends --------------------------------------------------------------------------------------------------


@row("uiw sends: pad octets zero, length field right, for ULPDUs of every length modulo 4", crc=True)
@row("uiw sends: pad octets zero, length field right, for ULPDUs of every length modulo 4, CRC off", crc=False)
def pads_out(bench, crc):
    session = Session(bench, initiator=True, before=prepare, crc=crc)
    for number in range(9):
        session.sut.post("call", number, "write", f"m:0:{number}", rkey=1, addr=1)
        ulpdu, pad, trailer = session.peer.fpdu_raw()
        check(len(ulpdu) == 14 + number, f"ULPDU of {len(ulpdu)} octets")
        check((2 + len(ulpdu) + len(pad)) % 4 == 0, "alignment")
        check(crc or trailer == bytes(4), f"CRC field {trailer.hex()} with CRC off")


def mulpdu(bench, setting):
    session = Session(bench, initiator=True, before=prepare, env={"UIW_MULPDU": str(setting)}, crc=False)
    for number, (op, header) in enumerate((("write", 14), ("send", 18))):
        session.sut.post("call", number, op, "m:0:60000", rkey=1, addr=1)
        total, lengths = 0, []
        while total < 60000:
            ulpdu = session.peer.fpdu_raw()[0]
            segment = wire.Segment(ulpdu)
            lengths.append(len(ulpdu))
            total += len(segment.payload)
            check(segment.last == (total == 60000), f"{segment}")
        check(max(lengths) <= setting, f"a ULPDU of {max(lengths)} octets, UIW_MULPDU {setting}")
        # Segments are well filled; a sender may prefer round lengths, and segments of about the same length.
        check(len(lengths) <= -(-60000 // (setting * 3 // 4)), f"ULPDUs of {lengths} octets")
    session.peer.fpdu(wire.read_request(1, 1, 2, 20000, session.sut.memories["m"].rkey, session.sut.memories["m"].addr))
    total = 0
    while total < 20000:
        ulpdu = session.peer.fpdu_raw()[0]
        check(len(ulpdu) <= setting, f"a Read Response segment of {len(ulpdu)} octets")
        total += len(ulpdu) - 14


for _setting in (128, 129, 130, 131, 512, 1440, 9000, 32768, 64768):
    row(f"uiw sends: UIW_MULPDU {_setting}", setting=_setting)(mulpdu)


def follows_mss(bench, mss, responder):
    """MULPDU = EMSS - (6 + EMSS mod 4) at most, so that an FPDU fits one TCP segment; and not much less."""
    session = Session(bench, initiator=not responder, before=prepare, mss=mss, crc=False)
    effective = session.peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    effective = min(effective, mss)
    if responder:
        session.alive()
    session.sut.post(session.conn, 1, "write", "m:0:30000", rkey=1, addr=1)
    lengths, total = [], 0
    while total < 30000:
        ulpdu = session.peer.fpdu_raw()[0]
        lengths.append(len(ulpdu))
        total += len(ulpdu) - 14
    most = effective - (6 + effective % 4)
    check(max(lengths) <= most, f"ULPDUs of up to {max(lengths)} octets, EMSS {effective}")
    check(max(lengths) >= most - 64, f"ULPDUs of only {max(lengths)} octets, EMSS {effective}")


for _mss in (536, 1000, 1460):
    row(f"uiw sends: MULPDU follows a TCP MSS of {_mss}, as initiator", mss=_mss, responder=False)(follows_mss)
    row(f"uiw sends: MULPDU follows a TCP MSS of {_mss}, as responder", mss=_mss, responder=True)(follows_mss)


@row("uiw sends: no ULPDU has more than 64768 octets, also to another uiw")
def largest(bench):
    """RFC 5044 section 3."""
    session = Session(bench, initiator=True, before=prepare, crc=False, uiw=True)
    session.sut.post("call", 1, "write", "m:0:65400", rkey=1, addr=1)
    lengths = [len(session.peer.fpdu_raw()[0]) for _ in range(2)]
    check(max(lengths) <= 64768 and sum(lengths) == 65400 + 2 * wire.TAGGED_HEADER, f"ULPDUs of {lengths} octets")


def long_fpdus(bench, **more):
    """With an MSS of 1000, Writes come in FPDUs of up to 64 KiB to a peer that takes them, evenly split."""
    session = Session(bench, before=prepare, mss=1000, crc=False, **more)
    session.alive()
    for number, (size, expected) in enumerate(((60000, [60000]), (65536, [32768, 32768]))):
        session.sut.post(session.conn, number, "write", f"m:0:{size}", rkey=1, addr=1)
        lengths = []
        while sum(lengths) < size:
            lengths.append(len(session.peer.fpdu_raw()[0]) - 14)
        check(lengths == expected, f"FPDUs with {lengths} octets")


row("uiw sends: FPDUs longer than a TCP segment to a siw that offers it", reserved=wire.LONG_FPDUS)(long_fpdus)
for _initiator in (True, False):
    row(f"uiw sends: FPDUs longer than a TCP segment to another uiw that it {'calls' if _initiator else 'answers'}",
        uiw=True, initiator=_initiator)(long_fpdus)


def cut_short(bench, cut, how):
    """The stream ends in the middle of an FPDU: nothing of it is placed, the consumer learns of the end."""
    for _ in range(5):
        session, sut, peer = session_of(bench)
        memory = sut.memories["m"]
        sut.recv(session.conn, 1, "in:0:100")
        peer.send(fpdu(wire.tagged(WRITE, memory.rkey, memory.addr, b"abcdefg"))[:cut])
        if how == "FIN":
            peer.finish()
        else:
            peer.close(reset=how == "reset")
        session.down(5)
        sut.completion(1, FLUSHED)
        check(sut.state(session.conn) == ERR, "QP state")
        memory.untouched()
        sut.quit()


for _cut in (1, 2, 15, 16, 20, 24):
    for _how in ("FIN", "close", "reset"):
        row(f"the stream ends in an FPDU: {_cut} octets of it, then {_how}", cut=_cut, how=_how)(cut_short)


if __name__ == "__main__":
    sys.exit(main())
