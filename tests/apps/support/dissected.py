# SPDX-License-Identifier: MIT
"""Captures as tshark sees them: every frame well-formed iWARP, every CRC correct.

Every octet of every TCP stream must belong to a start-up frame or to an FPDU that tshark dissects.
"""

import subprocess

from support.machine import check

FPDU_FIXED = 2 + 4  # ULPDU length and CRC
STARTUP_FIXED = 20
SEPARATOR = "|"
FIELDS = ("frame.number", "tcp.stream", "tcp.srcport", "tcp.seq", "tcp.len", "iwarp_mpa.req", "iwarp_mpa.rep",
          "iwarp_mpa.rev", "iwarp_mpa.pdlength", "iwarp_mpa.ulpdulength",
          "iwarp_mpa.crc_flag", "iwarp_mpa.marker_flag", "iwarp_ddp.dv", "iwarp_rdma.version", "iwarp_rdma.opcode")
OPCODES = {0: "RDMA Write", 1: "RDMA Read Request", 2: "RDMA Read Response", 3: "Send",
           8: "Immediate Data", 9: "Immediate Data with Solicited Event", 10: "Atomic Request", 11: "Atomic Response"}

# These guess that the payload of a Send is theirs, and call it malformed when it is not. Nothing below them guesses.
GUESSERS = [word for name in ("rpcordma", "smb_direct", "iser", "nvme-rdma") for word in ("--disable-protocol", name)]

# Processors that send at once may be captured in another order. The tree of a segment is as deep as it has FPDUs.
TCP_OPTIONS = ["-o", "tcp.desegment_tcp_streams:TRUE", "-o", "tcp.reassemble_out_of_order:TRUE",
               "-o", "tcp.try_heuristic_first:TRUE", "-o", "gui.max_tree_depth:5000"]


class Dissected:
    """The file of a capture."""

    def __init__(self, bench, file):
        self.bench = bench
        self.file = file

    def dissect(self, port, fields=FIELDS):
        """The frames of this port: a list of {field: text}."""
        words = ["tshark", "-n", *GUESSERS, "-r", self.file, "-Y", f"tcp.port=={port}",
                 *TCP_OPTIONS, "-T", "fields", "-E", f"separator={SEPARATOR}",
                 "-E", "occurrence=a"]
        for field in fields:
            words += ["-e", field]
        text = self.bench.command(words, timeout=30).stdout
        return [dict(zip(fields, line.split(SEPARATOR))) for line in text.splitlines()]

    def show(self, port, condition="tcp", layer="iwarp_mpa"):
        """The frames of this port that fulfil the condition, this layer in full, as text."""
        words = ["tshark", "-n", *GUESSERS, "-r", self.file, *TCP_OPTIONS, "-O", layer, "-Y",
                 f"tcp.port=={port} && ({condition})"]
        return self.bench.command(words, timeout=30).stdout


def numbers(text):
    return [int(word, 0) for word in text.split(",") if word]


def covered(ranges):
    """How many octets the ranges cover: what was sent again counts once, and dumpcap may see segments out of order."""
    count, reached = 0, 0
    for begin, end in sorted(ranges):
        count += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return count


def judge(capture, port, opcodes, crc=True, revision=None):
    """Every octet dissected, nothing malformed, versions and CRCs right, these opcodes seen."""
    flawed = capture.show(port, "_ws.malformed || iwarp_mpa.bad_length")
    check(not flawed, f"tshark calls these malformed:\n{flawed[:2000]}")
    # iwarp_mpa.crc_check is there for every CRC that tshark has checked; its text says what came of it.
    text = capture.show(port)
    wrong = [line for line in text.splitlines() if "CRC" in line and "Bad" in line]
    check(not wrong, f"tshark finds wrong CRCs: {wrong[:3]}")
    right = text.count("(Good CRC32)")
    segments, dissected, seen, fpdus = {}, {}, set(), 0
    for frame in capture.dissect(port):
        way = (frame["tcp.stream"], frame["tcp.srcport"])
        begin, length = int(frame["tcp.seq"]), int(frame["tcp.len"])
        if length:
            segments.setdefault(way, []).append((begin, begin + length))
        if frame["iwarp_mpa.req"] or frame["iwarp_mpa.rep"]:
            dissected[way] = dissected.get(way, 0) + STARTUP_FIXED + numbers(frame["iwarp_mpa.pdlength"])[0]
            check(frame["iwarp_mpa.marker_flag"] in ("0", "False"), "a start-up frame asks for markers")
            if revision:
                check(numbers(frame["iwarp_mpa.rev"]) == [revision], f"MPA revision {frame['iwarp_mpa.rev']}")
            if crc:
                check(frame["iwarp_mpa.crc_flag"] in ("1", "True"), "a start-up frame without the CRC flag")
        lengths = numbers(frame["iwarp_mpa.ulpdulength"])
        fpdus += len(lengths)
        for length in lengths:
            dissected[way] = dissected.get(way, 0) + FPDU_FIXED + length + -(2 + length) % 4
        check(set(numbers(frame["iwarp_ddp.dv"])) <= {1}, f"frame {frame['frame.number']}: DDP version")
        check(set(numbers(frame["iwarp_rdma.version"])) <= {1}, f"frame {frame['frame.number']}: RDMAP version")
        seen |= set(numbers(frame["iwarp_rdma.opcode"]))
    check(segments, "no traffic captured")
    for way, ranges in segments.items():
        count = covered(ranges)
        check(dissected.get(way, 0) == count,
              f"stream {way}: {count} octets sent, {dissected.get(way, 0)} of them dissected as MPA")
    check(fpdus > 0, "no FPDU seen")
    check(right == fpdus or not crc, f"{right} right CRCs in {fpdus} FPDUs")
    check(opcodes <= seen, f"RDMAP opcodes {sorted(seen)}; {[OPCODES[code] for code in opcodes - seen]} is missing")
    check(seen <= set(range(13)), f"unknown RDMAP opcodes: {sorted(seen)}")


def is_misread(frame):
    """Whether tshark has stopped at the terminated DDP header of a Terminate: whatever the layer, it expects the header of
    a tagged segment only where the error type is 1, and the longer one of an untagged segment otherwise."""
    return bool(frame["iwarp_rdma.term_etype_rdma"] and frame["iwarp_rdma.term_ddp_seg_len"]
                and not frame["iwarp_rdma.term_ddp_h"])


def tshark(file, *words):
    """What tshark prints of this file."""
    done = subprocess.run(["tshark", "-n", *GUESSERS, "-r", file, *TCP_OPTIONS, *words], capture_output=True, text=True)
    check(done.returncode == 0, f"tshark ended with {done.returncode}: {done.stderr}")
    return done.stdout


def judge_sent(file):
    """What tshark says of the segments that uiw has sent, by a file of UIW_CAPTURE: their counts in words, and a list of what
    is wrong. The peer of a test may send anything, and is not judged. tshark does not take for iWARP a segment in which no
    FPDU ends, nor a stream whose start-up frames come in pieces."""
    sent = "frame.packet_flags_direction == 2 && tcp.len > 0"
    fields = ("frame.number", "frame.protocols", "_ws.malformed", "iwarp_mpa.bad_length",
              "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_ddp_seg_len", "iwarp_rdma.term_ddp_h")
    columns = [word for field in fields for word in ("-e", field)]
    text = tshark(file, "-Y", sent, "-T", "fields", "-E", f"separator={SEPARATOR}", *columns)
    frames = [dict(zip(fields, line.split(SEPARATOR))) for line in text.splitlines()]
    flawed = [frame["frame.number"] for frame in frames
              if (frame["_ws.malformed"] or frame["iwarp_mpa.bad_length"]) and not is_misread(frame)]
    crc = tshark(file, "-Y", sent, "-O", "iwarp_mpa")
    right, wrong = crc.count("(Good CRC32)"), [line for line in crc.splitlines() if "Bad CRC32" in line]
    if flawed:
        shown = " || ".join(f"frame.number == {number}" for number in flawed[:5])
        wrong.append(tshark(file, "-Y", shown, "-O", "iwarp_mpa,iwarp_ddp_rdmap", "-x"))
    known = sum("iwarp" in frame["frame.protocols"] for frame in frames)
    if frames and not known:
        wrong.append("tshark takes no segment for iWARP")
    return f"{known} of {len(frames)} segments are iWARP, {right} right CRCs, {len(flawed)} segments are malformed", wrong


def in_order(capture, port, fields):
    """The frames of this port with these fields, those of each way in the order of their octets."""
    frames = capture.dissect(port, ("tcp.stream", "tcp.srcport", "tcp.seq", *fields))
    return sorted(frames, key=lambda frame: (int(frame["tcp.stream"]), frame["tcp.srcport"], int(frame["tcp.seq"])))


def ulpdus(capture, port):
    """What the client of this port has sent behind its start-up frame: each ULPDU, read without tshark."""
    octets = b""
    for frame in in_order(capture, port, ("tcp.payload",)):
        payload = bytes.fromhex(frame["tcp.payload"].replace(":", ""))
        if payload and frame["tcp.srcport"] != str(port):
            octets += payload[max(0, len(octets) + 1 - int(frame["tcp.seq"])):]
    at = STARTUP_FIXED + int.from_bytes(octets[18:20])
    found = []
    while at < len(octets):
        length = int.from_bytes(octets[at:at + 2])
        found.append(octets[at + 2:at + 2 + length])
        at += FPDU_FIXED + length + -(2 + length) % 4
    return found
