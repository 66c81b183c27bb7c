# SPDX-License-Identifier: MIT
"""Start-up frames towards uiw as the responder, octet by octet (RFC 5044 section 7.1.1, RFC 6581 section 6): which flags
and lengths of a request it takes, what its replies and rejections are, and requests that stop."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer.called import accept, call, establish, listening, refused, works
from peer.sut import check, main, row
from peer.wire import CRC, ENHANCED, LONG_FPDUS, MARKERS, REJECT, REQUEST, enhanced, pattern, startup

MOST = 255  # octets of private data that rdma_cm has room for

# ---- private data ---------------------------------------------------------------------------------------------------


def length(bench, pd_length, revision):
    """PD_Length octets, of which four are IRD and ORD in revision 2. The program has what rdma_cm can carry."""
    sut, port = listening(bench, UIW_CRC="on")
    own = pattern(7, pd_length - (4 if revision == 2 else 0))
    flags = CRC | (ENHANCED if revision == 2 else 0)
    request = startup(REQUEST, flags, revision, enhanced(4, 4, own) if revision == 2 else own)
    peer, event = call(bench, sut, port, request)
    check(event.private == own[:MOST], f"PD_Length {pd_length}: {event.private.hex()}")
    # The octets behind the frame are where they should be.
    frame = establish(sut, peer, event, data=pattern(9, MOST).hex())
    check(frame.private == pattern(9, MOST) and frame.length == MOST + (4 if revision == 2 else 0), f"{frame.raw}")


for _length in (0, 1, 255, 256, 509, 511, 512):
    row(f"a request of revision 1 with PD_Length {_length}", pd_length=_length, revision=1)(length)
for _length in (4, 5, 259, 260, 509, 511, 512):
    row(f"a request of revision 2 with PD_Length {_length}", pd_length=_length, revision=2)(length)
row("refused: a request of revision 1 with PD_Length 513", frame=startup(REQUEST, CRC, 1, bytes(513)))(refused)
row("refused: a request of revision 2 with PD_Length 513", frame=startup(REQUEST, CRC | ENHANCED, 2, bytes(513)))(
    refused)
for _length in range(4):
    row(f"refused: the S flag and PD_Length {_length}", frame=startup(REQUEST, CRC | ENHANCED, 2, bytes(_length)))(
        refused)

# ---- flags ----------------------------------------------------------------------------------------------------------


def flagged(bench, flags, revision, answered, private=b"", **env):
    """The request is accepted; the reply's flags are these."""
    sut, port = listening(bench, **{"UIW_CRC": "off", **env})
    peer, event = call(bench, sut, port, startup(REQUEST, flags, revision, private), crc=bool(flags & CRC))
    check(event.private == (private[4:] if revision == 2 and flags & ENHANCED else private), f"{event.private}")
    accept(sut, event)
    frame = peer.startup()
    check((frame.flags, frame.revision) == (answered, revision), f"{frame.raw}, not flags {answered:#x}")
    sut.event("ESTABLISHED")
    peer.marked, peer.marks = bool(flags & MARKERS), bool(frame.flags & MARKERS)
    works(sut, peer, event.conn)


DEPTHS = enhanced(4, 4, b"data")
for _flags, _revision, _answered, _private in (
        (0xFF, 2, CRC | ENHANCED | LONG_FPDUS, DEPTHS), (0xDF, 2, CRC | ENHANCED | LONG_FPDUS, DEPTHS),
        (0xFF, 1, CRC | LONG_FPDUS, DEPTHS), (0xDF, 1, CRC | LONG_FPDUS, DEPTHS),
        (REJECT, 1, 0, b"data"), (REJECT | CRC, 1, CRC, b"data"), (REJECT | ENHANCED, 2, ENHANCED, DEPTHS),
        (MARKERS, 1, 0, b"data"), (MARKERS | CRC, 1, CRC, b""), (MARKERS | ENHANCED, 2, ENHANCED, DEPTHS),
        (ENHANCED, 1, 0, b"x"), (CRC | ENHANCED, 1, CRC, b""),
        (0x01, 1, 0, b""), (0x04, 1, 0, b""), (0x05 | CRC, 1, CRC, b""), (0x05 | ENHANCED, 2, ENHANCED, DEPTHS)):
    row(f"a request of revision {_revision} with flags {_flags:02x}, {len(_private)} octets", flags=_flags,
        revision=_revision, answered=_answered, private=_private)(flagged)
row("a request of revision 1 with flags 80 where uiw asks for markers too", flags=MARKERS, revision=1,
    answered=MARKERS, UIW_MARKERS="on")(flagged)

# ---- rejections -----------------------------------------------------------------------------------------------------


def rejects(bench, flags, revision, private, octets):
    sut, port = listening(bench, UIW_CRC="off")
    peer, event = call(bench, sut, port, startup(REQUEST, flags, revision, private))
    sut.command(f"reject {event.conn} {b'no'.hex()}")
    answer = peer.take(len(octets))
    check(answer == octets, f"{answer}, not {octets}")
    check(peer.gone() == "fin", "reset, so that the rejection may be lost")
    sut.nothing(0.05)


KEY = b"MPA ID Rep Frame"
for _name, _flags, _revision, _private, _octets in (
        ("revision 1", CRC, 1, b"", b"\x60\x01\x00\x02no"),
        ("revision 1, C clear", 0, 1, b"", b"\x20\x01\x00\x02no"),
        ("revision 1, all flags", 0xFF, 1, b"", b"\x60\x01\x00\x02no"),
        ("revision 2", CRC | ENHANCED, 2, enhanced(0xC004, 0xC004), b"\x70\x02\x00\x06\0\0\0\0no"),
        ("revision 2, C clear", ENHANCED, 2, enhanced(4, 4), b"\x30\x02\x00\x06\0\0\0\0no"),
        ("revision 2, all flags", 0xFF, 2, enhanced(4, 4), b"\x70\x02\x00\x06\0\0\0\0no"),
        ("revision 2 without S", CRC, 2, b"", b"\x60\x02\x00\x02no")):
    row(f"the octets of a rejection: {_name}", flags=_flags, revision=_revision, private=_private,
        octets=KEY + _octets)(rejects)

# ---- requests that stop ---------------------------------------------------------------------------------------------

VALID = startup(REQUEST, CRC | ENHANCED, 2, enhanced(4, 4, b"data"))
for _cut in (1, 16, 19, 20, 22, 23, 27):
    row(f"refused: {_cut} octets of a request of revision 2, then silence", frame=VALID[:_cut])(refused)
    row(f"refused: {_cut} octets of a request of revision 2, then FIN", frame=VALID[:_cut], finish=True)(refused)

if __name__ == "__main__":
    sys.exit(main())
