# SPDX-License-Identifier: MIT
"""A second opinion: tshark dissects what passed between uiw and the peer, and finds nothing wrong with uiw's octets.

The capture is made from what the peer's socket carried, one FPDU or start-up frame a TCP segment, so that no right to
capture is needed."""

import os
import pathlib
import struct
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from peer import wire
from peer.sut import Responder, Session, Sut, check, harness, main, row
from peer.wire import (ATOMIC_REQUEST, ATOMIC_RESPONSE, IMMEDIATE, IMMEDIATE_SE, READ_RESPONSE, SEND, WRITE, pattern)

FIELDS = ("frame.number", "tcp.srcport", "iwarp_mpa.req", "iwarp_mpa.rep", "iwarp_mpa.rev", "iwarp_mpa.ulpdulength",
          "iwarp_ddp.tagged_flag", "iwarp_ddp.last_flag", "iwarp_ddp.qn", "iwarp_ddp.msn", "iwarp_ddp.mo",
          "iwarp_rdma.opcode", "iwarp_rdma.version", "iwarp_ddp.dv")
PEER_PORT, UIW_PORT = 40000, 50000


def write_pcap(path, record):
    """record: (sent by the peer, octets). IPv4 and TCP without checksums, LINKTYPE_RAW."""

    def packet(ours, flags, sequence, acknowledge, octets):
        source, target = (PEER_PORT, UIW_PORT) if ours else (UIW_PORT, PEER_PORT)
        tcp = struct.pack(">HHIIBBHHH", source, target, sequence, acknowledge, 0x50, flags, 65535, 0, 0)
        address = (b"\x0a\0\0\1", b"\x0a\0\0\2")
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(octets), 0, 0x4000, 64, 6, 0)
        return ip + (address[0] + address[1] if ours else address[1] + address[0]) + tcp + octets

    sequence = {True: 1001, False: 5001}
    packets = [packet(True, 0x02, 1000, 0, b""), packet(False, 0x12, 5000, 1001, b""),
               packet(True, 0x10, 1001, 5001, b"")]
    for ours, octets in record:
        packets.append(packet(ours, 0x18, sequence[ours], sequence[not ours], octets))
        sequence[ours] += len(octets)
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535 + 100, 101))
        for number, octets in enumerate(packets):
            file.write(struct.pack("<IIII", 1, number * 100, len(octets), len(octets)) + octets)


def judge(bench, peer, expected):
    """expected: opcodes that uiw must be seen to have sent. Returns the command line of tshark on the capture."""
    harness.need_program("tshark")
    path = os.path.join(bench.tmp, "session.pcap")
    write_pcap(path, peer.record)
    base = ["tshark", "-n", "-r", path, "-o", "tcp.try_heuristic_first:TRUE", "-o", "tcp.check_checksum:FALSE"]
    for guess in ("rpcordma", "smb_direct", "iser"):  # they take any Send for theirs
        base += ["--disable-protocol", guess]
    flawed = bench.command([*base, "-Y", "_ws.malformed || _ws.expert.severity >= \"Warning\" || iwarp_mpa.bad_length",
                            "-V"], timeout=60).stdout
    check(not flawed.strip(), f"tshark complains:\n{flawed[-3000:]}")
    words = [*base, "-T", "fields", "-E", "separator=|"]
    for field in FIELDS:
        words += ["-e", field]
    seen, frames = set(), 0
    lines = bench.command(words, timeout=60).stdout.splitlines()
    for line in lines:
        field = dict(zip(FIELDS, line.split("|")))
        if not (field["iwarp_mpa.ulpdulength"] or field["iwarp_mpa.req"] or field["iwarp_mpa.rep"]):
            continue
        frames += 1
        if field["iwarp_mpa.ulpdulength"]:
            check(int(field["iwarp_ddp.dv"]) == 1 and int(field["iwarp_rdma.version"]) == 1, f"versions: {line}")
            if int(field["tcp.srcport"]) == UIW_PORT:
                seen.add(int(field["iwarp_rdma.opcode"], 0))
    check(frames == len(peer.record), f"{len(peer.record)} frames passed, tshark sees {frames}")
    check(seen == set(expected), f"uiw sent opcodes {sorted(expected)}, tshark sees {sorted(seen)}")
    text = bench.command([*base, "-O", "iwarp_mpa"], timeout=60).stdout
    check("Bad CRC32" not in text, "tshark finds a wrong CRC")
    if peer.crc:
        fpdus = sum(not octets.startswith(b"MPA ID") for _, octets in peer.record)
        check(text.count("Good CRC32") == fpdus, f"{text.count('Good CRC32')} right CRCs in {fpdus} FPDUs")
    return base


def prepare(session):
    session.sut.memory("m", 65536, "lrw", seed=5)
    session.sut.memory("in", 65536, "l", seed=6)


def operations(bench, crc, revision, initiator, mulpdu, markers=False):
    harness.need_program("tshark")
    session = Session(bench, initiator=initiator, before=prepare, crc=crc, revision=revision,
                      env={"UIW_MPA_REVISION": str(revision), "UIW_MULPDU": mulpdu,
                           "UIW_MARKERS": "on" if markers else "off"}, reserved=wire.MARKERS if markers else 0)
    sut, peer, conn = session.sut, session.peer, session.conn
    memory = sut.memories["m"]
    if not initiator:
        session.alive()
    for number, (op, flags) in enumerate((("send", "-"), ("send", "s"), ("send_inv", "-"), ("send_inv", "s"),
                                          ("write", "-"))):
        for size in (0, 1, 3000):
            sut.post(conn, number, op, f"m:0:{size}", rkey=0x1234, addr=0x5678, flags=flags)
            opcode = {"send-": SEND, "sends": wire.SEND_SE, "send_inv-": wire.SEND_INV, "send_invs": wire.SEND_SE_INV,
                      "write-": WRITE}[op + flags]
            check(len(peer.message(opcode)[1]) == size, op)
            sut.completion(number)
    sut.post(conn, 50, "read", "in:0:3000", rkey=0x1234, addr=0x5678)
    request = wire.read_fields(peer.segment())
    peer.send_message(READ_RESPONSE, pattern(1, 3000), 1000, stag=request.sink_stag, to=request.sink_to)
    sut.completion(50)
    peer.fpdu(wire.read_request(session.read_msn, 1, 2, 5000, memory.rkey, memory.addr))
    peer.message(READ_RESPONSE)
    sut.recv(conn, 60, "in:0:1000")
    session.send(pattern(3, 1000), chunk=300)
    sut.completion(60)
    peer.fpdu(wire.tagged(WRITE, 1, 2, b"to nowhere"))
    peer.terminates({0x1100})
    session.down()
    judge(bench, peer, set(range(8)))


for _crc in (True, False):
    for _revision in (1, 2):
        for _initiator in (True, False):
            row(f"every operation and a Terminate, MPA revision {_revision}, CRC {'on' if _crc else 'off'}, "
                f"uiw {'calls' if _initiator else 'is called'}", crc=_crc, revision=_revision, initiator=_initiator,
                mulpdu="1400")(operations)
# tshark takes a marker right behind an FPDU for a part of that FPDU, and then waits for it (RFC 5044 section 4.3: it
# belongs to the next one). With this MULPDU no FPDU ends there.
for _crc in (True, False):
    row(f"every operation and a Terminate, markers in both directions, CRC {'on' if _crc else 'off'}", crc=_crc,
        revision=2, initiator=False, mulpdu="1300", markers=True)(operations)


def terminates(bench, build, errors):
    harness.need_program("tshark")
    session = Session(bench, before=prepare)
    session.alive()
    session.peer.fpdu(build(session.sut.memories["m"]))
    session.peer.terminates(errors)
    judge(bench, session.peer, {READ_RESPONSE, wire.TERMINATE})


row("Terminate with a tagged DDP header", errors={0x1101},
    build=lambda m: wire.tagged(WRITE, m.rkey, m.addr + m.size, b"x"))(terminates)
row("Terminate with an untagged DDP header", errors={0x1202, 0x1203},
    build=lambda m: wire.untagged(SEND, 0, 9, 0, b"x"))(terminates)
row("Terminate with the Read Request header", errors={0x0101},
    build=lambda m: wire.read_request(2, 1, 2, 10, m.rkey, m.addr + m.size))(terminates)


ATOMIC_FIELDS = tuple("iwarp_rdma.atomic." + name for name in (
    "reserved", "opcode", "request_identifier", "remote_stag", "remote_tagged_offset", "add_data", "add_mask",
    "swap_data", "swap_mask", "compare_data", "compare_mask", "original_request_identifier",
    "original_remote_data_value"))


def seen(bench, base, opcodes):
    """What uiw sent with these opcodes, as tshark tells it: (name, {field: number}) each."""
    fields = ("iwarp_rdma.opcode", "iwarp_ddp.qn", "iwarp_ddp.msn", "iwarp_ddp.mo", "iwarp_ddp.last_flag",
              "iwarp_rdma.inval_stag", *ATOMIC_FIELDS)
    words = [*base, "-Y", f"tcp.srcport == {UIW_PORT} && iwarp_rdma.opcode", "-T", "fields", "-E", "separator=|",
             "-e", "_ws.col.Info"]
    for field in fields:
        words += ["-e", field]
    found = []
    for line in bench.command(words, timeout=60).stdout.splitlines():
        name, *values = line.split("|")
        number = {field.rsplit(".", 1)[1] if field in ATOMIC_FIELDS else field: int(value, 0)
                  for field, value in zip(fields, values) if value}
        if number["iwarp_rdma.opcode"] in opcodes:
            found.append((name, number))
    return found


def agree(found, name, **wanted):
    """The next message that tshark has seen: its name, and its fields."""
    check(found, f"tshark sees no {name}")
    info, fields = found.pop(0)
    # tshark 4.0 has no name for Immediate Data.
    opcode = fields["iwarp_rdma.opcode"]
    check(f" {name} [" in info or (opcode in (IMMEDIATE, IMMEDIATE_SE) and f" Unknown {opcode} [" in info),
          f"tshark calls it {info!r}, not {name}")
    qn, msn = wanted.pop("qn"), wanted.pop("msn")
    check((fields["iwarp_ddp.qn"], fields["iwarp_ddp.msn"], fields["iwarp_ddp.mo"]) == (qn, msn, 0),
          f"{name}: tshark sees {fields}, not queue {qn} MSN {msn}")
    for field, value in wanted.items():
        check(fields.get(field) == value, f"{name}: tshark sees {field} {fields.get(field)}, not {value}")
    return fields


def extensions(bench, crc, initiator):
    harness.need_program("tshark")

    def before(session):
        prepare(session)
        session.sut.memory("at", 64, "lrwa")

    session = Session(bench, initiator=initiator, before=before, crc=crc)
    sut, peer, conn = session.sut, session.peer, session.conn
    memory = sut.memories["at"]
    memory.put(0, 0x0102030405060708)
    session.fetch_add(0xABCD, memory.rkey, memory.addr, 0x10, 1 << 31)
    session.original(0xABCD)
    session.compare_swap(0xABCE, memory.rkey, memory.addr, 5, 6, 7, 8)
    session.original(0xABCE)
    responder = Responder(peer)
    far = 0xFEDCBA9876543210
    sut.post(conn, 1, "fetch_add", "in:0:8", rkey=0x1234, addr=far, add=(1 << 64) - 2)
    first = responder.hear(ATOMIC_REQUEST).identifier
    sut.post(conn, 2, "compare_swap", "in:8:8", rkey=0x1235, addr=far + 8, compare=0x1122334455667788, swap=9)
    second = responder.hear(ATOMIC_REQUEST).identifier
    for number in (1, 2):
        responder.answer(5)
        sut.completion(number)
    for number, flags in ((3, "-"), (4, "s")):
        sut.post(conn, number, "write_imm", "m:0:100", rkey=1, addr=2, imm=0xA1B2C3D4, flags=flags)
        check(len(peer.message(WRITE)[1]) == 100, "Write")
        wire.immediate_octets(peer.segment(), flags == "s")
        sut.completion(number)
    for se in (False, True):
        sut.recv(conn, 5)
        session.immediate(wire.verbs_immediate(7), se)
        sut.completion(5)
    session.fetch_add(1, memory.rkey, memory.addr + 1, 0)
    peer.terminates({0x0207})
    session.down()
    opcodes = {IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE}
    found = seen(bench, judge(bench, peer, opcodes | {WRITE, wire.TERMINATE}), opcodes)
    agree(found, "Atomic Response", qn=3, msn=1, original_request_identifier=0xABCD,
          original_remote_data_value=0x0102030405060708)
    agree(found, "Atomic Response", qn=3, msn=2, original_request_identifier=0xABCE,
          original_remote_data_value=0x0102030405060718)
    agree(found, "Atomic Request", qn=1, msn=1, reserved=0, opcode=wire.FETCH_ADD, request_identifier=first,
          remote_stag=0x1234, remote_tagged_offset=far, add_data=wire.ONES - 1, add_mask=0, compare_data=0,
          compare_mask=wire.ONES)
    agree(found, "Atomic Request", qn=1, msn=2, reserved=0, opcode=wire.COMPARE_SWAP, request_identifier=second,
          remote_stag=0x1235, remote_tagged_offset=far + 8, swap_data=9, swap_mask=wire.ONES,
          compare_data=0x1122334455667788, compare_mask=wire.ONES)
    agree(found, "Immediate Data", qn=0, msn=1)
    agree(found, "Immediate Data with SE", qn=0, msn=2)
    check(not found, f"tshark sees more: {found}")


for _crc in (True, False):
    for _initiator in (True, False):
        row(f"atomics and Immediate Data, CRC {'on' if _crc else 'off'}, uiw {'calls' if _initiator else 'is called'}",
            crc=_crc, initiator=_initiator)(extensions)

@row("a hello, and Send with immediate, whose opcodes tshark does not know")
def send_immediate(bench):
    harness.need_program("tshark")
    session, sut, peer = Session(bench, initiator=True, before=prepare, uiw=True)
    for number, (opcode, flags) in enumerate(((wire.SEND_IMM, "-"), (wire.SEND_SE_IMM, "s")), 1):
        sut.post("call", number, "send_imm", "m:0:3000", imm=0xA1B2C3D4, flags=flags)
        check(len(peer.message(opcode)[1]) == 3000, "message")
        sut.completion(number)
        sut.recv("call", 10 + number, "in:0:3000")
        session.send(pattern(3, 3000), opcode, 1000, inv=number)
        sut.completion(10 + number)
    judge(bench, peer, {wire.WRITE, wire.READ_RESPONSE, wire.SEND_IMM, wire.SEND_SE_IMM})


row("Terminate of an Atomic Request: a DDP header, no RDMA header", errors={0x0102},
    build=lambda m: wire.fetch_add(2, 5, m.rkey, m.addr, 1))(terminates)
row("Terminate of Immediate Data", errors={0x1202, 0x1203}, build=lambda m: wire.immediate(9, bytes(8)))(terminates)


@row("a rejection")
def rejection(bench):
    harness.need_program("tshark")
    sut = Sut(bench)
    peer = wire.Peer.call(sut.listen())
    bench.closers.append(peer.close)
    peer.send(wire.startup(wire.REQUEST, wire.CRC | wire.ENHANCED, 2, wire.enhanced(1, 1, b"may I")))
    sut.command(f"reject {sut.event('CONNECT_REQUEST').conn} {b'no'.hex()}")
    peer.startup()
    judge(bench, peer, set())


if __name__ == "__main__":
    sys.exit(main())
