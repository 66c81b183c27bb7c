# SPDX-License-Identifier: MIT
"""What goes over the wire, as tshark sees it: every frame well-formed iWARP, every CRC correct.

The sessions run in a network namespace of their own, so the capture holds nothing else. Every octet of every TCP
stream must belong to a start-up frame or to an FPDU that tshark dissects.
"""

import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest
from support.harness import check, wait_until

FPDU_FIXED = 2 + 4  # ULPDU length and CRC
STARTUP_FIXED = 20
SEPARATOR = "|"
FIELDS = ("frame.number", "tcp.stream", "tcp.srcport", "tcp.seq", "tcp.len", "iwarp_mpa.req", "iwarp_mpa.rep",
          "iwarp_mpa.rev", "iwarp_mpa.pdlength", "iwarp_mpa.ulpdulength",
          "iwarp_mpa.crc_flag", "iwarp_mpa.marker_flag", "iwarp_ddp.dv", "iwarp_rdma.version", "iwarp_rdma.opcode")
OPCODES = {0: "RDMA Write", 1: "RDMA Read Request", 2: "RDMA Read Response", 3: "Send",
           8: "Immediate Data", 9: "Immediate Data with Solicited Event", 10: "Atomic Request", 11: "Atomic Response"}


# What two processes share in memory is on no wire.
harness.Bench.settings["UIW_SAME_HOST"] = "tcp"

# These guess that the payload of a Send is theirs, and call it malformed when it is not. Nothing below them guesses.
GUESSERS = [word for name in ("rpcordma", "smb_direct", "iser", "nvme-rdma") for word in ("--disable-protocol", name)]

# Processors that send at once may be captured in another order.
TCP_OPTIONS = ["-o", "tcp.desegment_tcp_streams:TRUE", "-o", "tcp.reassemble_out_of_order:TRUE",
               "-o", "tcp.try_heuristic_first:TRUE"]


class Capture:
    """dumpcap on lo of a namespace."""

    def __init__(self, bench):
        harness.need_program("tshark", "dumpcap")
        self.bench = bench
        self.namespace = bench.namespace("captured")
        self.file = os.path.join(bench.tmp, "session.pcap")
        open(self.file, "wb").close()
        self.dumpcap = bench.start(
            ["dumpcap", "-q", "-P", "-B", "128", "-i", "lo", "-f", "tcp", "-w", self.file], uiw=False,
            namespace=self.namespace)
        # It captures once it has seen one of these calls to a port that nobody listens on.
        knock = ("import socket, time\nwhile True:\n    with socket.socket() as s: s.connect_ex(('127.0.0.1', 9))\n"
                 "    time.sleep(0.02)")
        knocker = bench.start([sys.executable, "-c", knock], uiw=False, namespace=self.namespace)

        def sees():
            if not self.dumpcap.running():
                raise harness.Skip("dumpcap cannot capture here: " + self.dumpcap.stderr.strip())
            return os.path.getsize(self.file) > 1000

        wait_until(sees, 20, "dumpcap captures")
        knocker.end()

    def stop(self):
        # All that was sent is in the file once its size rests.
        last = -1
        while os.path.getsize(self.file) != last:
            last = os.path.getsize(self.file)
            self.bench.command(["sleep", "0.5"])
        self.dumpcap.kill(2)
        self.dumpcap.wait(20)
        dropped = re.search(r"dropped on interface[^:]*: \d+/(\d+)", self.dumpcap.stderr)
        if dropped and int(dropped[1]):
            raise harness.Failure(f"the machine was too slow: dumpcap dropped {dropped[1]} packets")

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


def rping(bench, address, revision, mulpdu=None):
    capture = Capture(bench)
    port = bench.port()
    env = {"UIW_CRC": "on"}
    if revision == 1:
        env["UIW_MPA_REVISION"] = "1"
    if mulpdu:
        env["UIW_MULPDU"] = mulpdu
    bench.pair(["rping", "-s", "-S", 65535, "-a", address, "-p", port],
               ["rping", "-c", "-a", address, "-p", port, "-C", 50, "-S", 60000, "-V"], port, env=env,
               namespace=capture.namespace)
    capture.stop()
    judge(capture, port, {0, 1, 2, 3}, revision=revision)


harness.add_row("rping, CRC on", lambda bench: rping(bench, "127.0.0.1", None))
harness.add_row("rping, CRC on, IPv6", lambda bench: rping(bench, "::1", None))
harness.add_row("rping, CRC on, MPA revision 1", lambda bench: rping(bench, "127.0.0.1", 1))
harness.add_row("rping, CRC on, small FPDUs", lambda bench: rping(bench, "127.0.0.1", None, "512"))


def perf(bench, program, opcode, *options):
    capture = Capture(bench)
    server, _ = perftest.talk(bench, program, *options, env={"UIW_CRC": "on"}, namespace=capture.namespace)
    capture.stop()
    judge(capture, server.argv[server.argv.index("-p") + 1], opcode)


for _program, _opcodes in (("ib_send_bw", {3}), ("ib_write_bw", {0, 3}), ("ib_read_bw", {1, 2, 3})):
    for _options in (("-s", 1, "-n", 100), ("-s", 65537, "-n", 50), ("-q", 4, "-s", 4097, "-n", 50)):
        harness.add_row(f"{_program} -R {' '.join(map(str, _options))}, CRC on",
                        lambda bench, program=_program, opcodes=_opcodes, options=_options:
                        perf(bench, program, opcodes, *options))


@harness.row("patterns of many sizes, CRC on")
def patterns(bench):
    capture = Capture(bench)
    program, port = bench.helper("uiw_patterns"), bench.port()
    bench.pair([program, "server", "127.0.0.1", port, "--few"],
               [program, "client", "127.0.0.1", port, "--few"], port, timeout=20, env={"UIW_CRC": "on"},
               namespace=capture.namespace)
    capture.stop()
    judge(capture, port, {0, 1, 2, 3})


# ---- RFC 7306 --------------------------------------------------------------------------------------------------

ATOMIC = "iwarp_rdma.atomic."
ALL_BITS = (1 << 64) - 1


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


@harness.row("atomics: named so, each field right, each answer to its request")
def atomics(bench):
    adds, rounds = 40, 5
    capture = Capture(bench)
    program, port, memory = bench.helper("uiw_counters"), bench.port(), f"{bench.tmp}/memory"
    bench.pair([program, "server", "127.0.0.1", port, memory, 1],
               [program, "client", "127.0.0.1", port, 1, adds, rounds, 8], port, env={"UIW_CRC": "on"},
               namespace=capture.namespace)
    capture.stop()
    judge(capture, port, {0, 1, 2, 3, 10, 11})
    text = capture.show(port, layer="iwarp_ddp_rdmap")
    for name in ("Atomic Request", "Atomic Response", "FetchAdd", "CmpSwap"):
        check(name in text, f"tshark does not say {name}")
    names = ("reserved", "opcode", "request_identifier", "remote_stag", "remote_tagged_offset", "add_data", "add_mask",
             "swap_data", "swap_mask", "compare_data", "compare_mask", "original_request_identifier",
             "original_remote_data_value")
    seen = {name: [] for name in names}
    for frame in in_order(capture, port, [ATOMIC + name for name in names]):
        for name in names:
            seen[name] += numbers(frame[ATOMIC + name])
    requests = len(seen["opcode"])
    swaps = seen["opcode"].count(2)
    check(seen["opcode"] == [0] * adds + [2] * swaps and swaps >= 2 * rounds, f"operations {seen['opcode']}")
    check(set(seen["reserved"]) == {0}, "reserved bits are set")
    check(len(set(seen["remote_stag"])) == 1, f"STags {set(seen['remote_stag'])}")
    places = seen["remote_tagged_offset"]
    check(set(places[:adds]) == {places[0]} and set(places[adds:]) == {places[0] + 64}, f"places {set(places)}")
    check(seen["add_data"] == [1] * adds and seen["add_mask"] == [0] * adds, "what is added")
    check(seen["swap_mask"] == [ALL_BITS] * swaps, "swap masks")
    check(seen["compare_data"][:adds] == [0] * adds and seen["compare_mask"] == [ALL_BITS] * requests, "compare masks")
    check(seen["original_request_identifier"] == seen["request_identifier"], "answers are not those to the requests")
    values = seen["original_remote_data_value"][:adds]
    check(len(values) == adds and values == sorted(set(values)), f"values {values} of a counter that only grows")


@harness.row("RDMA Write with immediate: Immediate Data behind each Write, with the right octets")
def immediates(bench):
    count = 200
    capture = Capture(bench)
    program, port = bench.helper("uiw_immediate_ring"), bench.port()
    bench.pair([program, "server", "127.0.0.1", port, count], [program, "client", "127.0.0.1", port, count], port,
               env={"UIW_CRC": "on"}, namespace=capture.namespace)
    capture.stop()
    judge(capture, port, {0, 8, 9})
    # tshark 4.0 has no name for Immediate Data, and does not show its octets: those are read here.
    sequence, opcodes, lengths = [], [], []
    for frame in in_order(capture, port, ("iwarp_rdma.opcode", "iwarp_mpa.ulpdulength", "iwarp_ddp.qn",
                                          "iwarp_ddp.msn")):
        if frame["tcp.srcport"] == str(port):
            continue
        opcodes += numbers(frame["iwarp_rdma.opcode"])
        lengths += numbers(frame["iwarp_mpa.ulpdulength"])
        sequence += zip(numbers(frame["iwarp_ddp.qn"]), numbers(frame["iwarp_ddp.msn"]))
    check(sequence == [(0, msn) for msn in range(1, count + 1)], f"queue numbers and MSNs {sequence}")
    sent = ulpdus(capture, port)
    check([len(ulpdu) for ulpdu in sent] == lengths, "tshark sees other FPDUs")
    found = [(before[1] & 15, ulpdu) for before, ulpdu in zip(sent, sent[1:]) if ulpdu[1] & 15 in (8, 9)]
    check(len(found) == opcodes.count(8) + opcodes.count(9) == count, f"{len(found)} Immediate Data messages")
    check({opcode for opcode, _ in found} == {0}, "something stands between a Write and its Immediate Data")
    wanted = [(number * 2654435761 + 12345) % (1 << 32) for number in range(count)]
    check([ulpdu[18:] for _, ulpdu in found] == [value.to_bytes(4) + bytes(4) for value in wanted], "other octets")


if __name__ == "__main__":
    sys.exit(harness.main())
