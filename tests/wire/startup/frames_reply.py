# SPDX-License-Identifier: MIT
"""Start-up frames towards uiw as the initiator, octet by octet (RFC 5044 section 7.1.1, RFC 6581 section 6): which flags,
lengths and rejections of a reply it takes, and what it does about a peer that knows only revision 1."""

import errno
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer.calling import Call, reply
from peer.sut import check, main, row
from peer.wire import CRC, ENHANCED, MARKERS, REJECT, REPLY, enhanced, pattern, startup

MOST = 255  # octets of private data that rdma_cm has room for

# ---- private data ---------------------------------------------------------------------------------------------------


def length(bench, pd_length, revision):
    call = Call(bench, UIW_MPA_REVISION=str(revision))
    own = pattern(7, pd_length - (4 if revision == 2 else 0))
    call.peer.send(reply(CRC | (ENHANCED if revision == 2 else 0), revision, data=own))
    event = call.established()
    check(event.private == own[:MOST], f"PD_Length {pd_length}: {event.private.hex()}")
    call.works()  # the octets behind the frame are where they should be


for _length in (0, 1, 255, 256, 509, 511, 512):
    row(f"a reply of revision 1 with PD_Length {_length}", pd_length=_length, revision=1)(length)
for _length in (4, 5, 259, 260, 509, 511, 512):
    row(f"a reply of revision 2 with PD_Length {_length}", pd_length=_length, revision=2)(length)


def rejection(bench, pd_length, revision):
    call = Call(bench, UIW_MPA_REVISION=str(revision))
    own = pattern(7, pd_length - (4 if revision == 2 else 0))
    call.peer.send(reply(CRC | REJECT | (ENHANCED if revision == 2 else 0), revision, data=own))
    event = call.failed()
    check((event.name, event.private) == ("REJECTED", own[:MOST]), f"PD_Length {pd_length}: {event}")
    call.peer.gone()


for _length in (256, 511, 512):
    row(f"a rejection of revision 1 with PD_Length {_length}", pd_length=_length, revision=1)(rejection)
    row(f"a rejection of revision 2 with PD_Length {_length}", pd_length=_length, revision=2)(rejection)


def invalid(bench, octets, revision=2):
    """The frame counts for nothing, and the stream is closed without an FPDU."""
    call = Call(bench, UIW_MPA_REVISION=str(revision))
    call.peer.send(octets)
    event = call.failed()
    check((event.name, event.status, event.private) == ("CONNECT_ERROR", -errno.EPROTO, b""), f"{event}")
    call.peer.gone()


row("a reply of revision 1 with PD_Length 513", octets=startup(REPLY, CRC, 1, bytes(513)), revision=1)(invalid)
row("a reply of revision 2 with PD_Length 513", octets=startup(REPLY, CRC | ENHANCED, 2, bytes(513)))(invalid)
for _length in range(4):
    row(f"a reply with the S flag and PD_Length {_length}", octets=startup(REPLY, CRC | ENHANCED, 2, bytes(_length)))(
        invalid)
row("revision 1 is asked, revision 2 answers", octets=reply(), revision=1)(invalid)
row("revision 1 is asked, revision 2 answers without S", octets=startup(REPLY, CRC, 2, b"data"), revision=1)(invalid)
row("revision 1 is asked, revision 2 rejects", octets=startup(REPLY, 0x60, 2, b"data"), revision=1)(invalid)

# ---- flags ----------------------------------------------------------------------------------------------------------


def flagged(bench, flags, revision, private, crc=True):
    """The reply is accepted, whatever its reserved flags are."""
    call = Call(bench, UIW_MPA_REVISION=str(revision), UIW_CRC="on" if crc else "off")
    call.peer.crc = crc or bool(flags & CRC)
    call.peer.marked = bool(flags & MARKERS)
    call.peer.send(startup(REPLY, flags, revision, private))
    data = private[4:] if revision == 2 and flags & ENHANCED else private
    event = call.established()
    check(event.private == data, f"{event.private}")
    call.works()


DEPTHS = enhanced(4, 4, b"data")
for _flags, _revision, _private in (
        (0xDF, 2, DEPTHS), (0xDF, 1, DEPTHS), (0x5F, 2, DEPTHS), (0x4F, 2, b"data"), (0x4F, 1, b"data"),
        (MARKERS | CRC, 1, b"data"), (MARKERS | CRC | ENHANCED, 2, DEPTHS), (CRC | ENHANCED, 1, b"x"),
        (CRC | ENHANCED, 1, b"")):
    row(f"a reply of revision {_revision} with flags {_flags:02x}, {len(_private)} octets", flags=_flags,
        revision=_revision, private=_private)(flagged)
for _flags in (0x00, 0x80, 0x0F):
    row(f"CRC off: a reply of revision 1 with flags {_flags:02x}", flags=_flags, revision=1, private=b"data",
        crc=False)(flagged)

# ---- rejections -----------------------------------------------------------------------------------------------------


def rejected(bench, octets, revision=2):
    call = Call(bench, UIW_MPA_REVISION=str(revision))
    call.peer.send(b"MPA ID Rep Frame" + octets)
    event = call.failed()
    check((event.name, event.status) == ("REJECTED", -errno.ECONNREFUSED), f"{event}")
    check(event.private == b"no", f"{event.private}")
    call.peer.gone()
    call.sut.nothing(0.05)


for _name, _octets, _revision in (
        ("60 01", b"\x60\x01\x00\x02no", 1), ("20 01, C clear", b"\x20\x01\x00\x02no", 1),
        ("7F 01, all flags but M; S is reserved", b"\x7f\x01\x00\x02no", 1),
        ("70 02", b"\x70\x02\x00\x06\0\0\0\0no", 2), ("30 02, C clear", b"\x30\x02\x00\x06\0\0\0\0no", 2),
        ("FF 02, all flags", b"\xff\x02\x00\x06\0\0\0\0no", 2),
        ("FF 02, with all flags of IRD and ORD", b"\xff\x02\x00\x06\xff\xff\xff\xffno", 2),
        ("60 02, without S", b"\x60\x02\x00\x02no", 2), ("20 02, without S, C clear", b"\x20\x02\x00\x02no", 2)):
    row(f"a rejection, {_name}", octets=_octets, revision=_revision)(rejected)

# ---- a peer that knows only revision 1 ------------------------------------------------------------------------------

TURNED_DOWN = {"60 01": startup(REPLY, 0x60, 1), "20 01": startup(REPLY, 0x20, 1),
               "60 01 with private data": startup(REPLY, 0x60, 1, b"old"),
               "30 01 0008": startup(REPLY, 0x30, 1, bytes(8)), "FF 01": startup(REPLY, 0xFF, 1, b"x")}


class Fallback(Call):
    """The peer has rejected revision 2, and holds the second request, which is of revision 1 and has the program's
    private data alone."""

    def __init__(self, bench, rejection, **env):
        super().__init__(bench, data=b"hello", UIW_CRC="on", **env)
        self.peer.send(rejection)
        self.peer.gone()
        self.answer()
        check(self.request.raw == b"MPA ID Req Frame\x40\x01\x00\x05hello", f"{self.request.raw}")
        self.sut.nothing(0.05)

    def no_third(self):
        self.heard.settimeout(0.3)
        try:
            self.heard.accept()
        except TimeoutError:
            return
        check(False, "uiw calls a third time")


def falls_back(bench, rejection):
    call = Fallback(bench, rejection)
    call.peer.send(reply(CRC, 1, data=b"world"))
    check(call.established().private == b"world", "private data")
    call.works()


for _name, _rejection in TURNED_DOWN.items():
    row(f"revision 2 is turned down by {_name}: called again with revision 1", rejection=_rejection)(falls_back)


def second_fails(bench, event, status, octets=b"", reset=False, finish=False):
    env = {"UIW_STARTUP_TIMEOUT": "1500"} if event == "UNREACHABLE" else {}
    call = Fallback(bench, TURNED_DOWN["30 01 0008"], **env)
    if octets:
        call.peer.send(octets)
    if finish:
        call.peer.finish()
    if reset:
        call.peer.close(reset=True)
    said = call.failed()
    check((said.name, said.status, said.private) == (event, status, b""), f"{said} {said.private}")
    if not reset:
        call.peer.gone()
    call.no_third()


row("after the fallback silence: UNREACHABLE", event="UNREACHABLE", status=-errno.ETIMEDOUT)(second_fails)
row("after the fallback half a reply: UNREACHABLE", event="UNREACHABLE", status=-errno.ETIMEDOUT,
    octets=reply(CRC, 1)[:18])(second_fails)
row("after the fallback a reset: REJECTED", event="REJECTED", status=-errno.ECONNRESET, reset=True)(second_fails)
row("after the fallback FIN: REJECTED", event="REJECTED", status=-errno.ECONNRESET, finish=True)(second_fails)
row("after the fallback a reply of revision 2: CONNECT_ERROR", event="CONNECT_ERROR", status=-errno.EPROTO,
    octets=reply())(second_fails)
row("after the fallback a rejection: REJECTED", event="REJECTED", status=-errno.ECONNREFUSED,
    octets=startup(REPLY, 0x60, 1))(second_fails)


@row("after the fallback nobody listens any more: REJECTED")
def second_refused(bench):
    call = Call(bench)
    call.heard.close()
    call.peer.send(startup(REPLY, 0x60, 1))
    event = call.failed()
    check((event.name, event.status) == ("REJECTED", -errno.ECONNREFUSED), f"{event}")


if __name__ == "__main__":
    sys.exit(main())
