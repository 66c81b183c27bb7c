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
from support import dissected, harness, perftest, pings
from support.dissected import in_order, judge, numbers, ulpdus
from support.harness import check, wait_until

# What two processes share in memory is on no wire.
harness.Bench.settings["UIW_SAME_HOST"] = "tcp"


class Capture(dissected.Dissected):
    """dumpcap on lo of a namespace."""

    def __init__(self, bench):
        harness.need_program("tshark", "dumpcap")
        super().__init__(bench, os.path.join(bench.tmp, "session.pcap"))
        self.namespace = bench.namespace("captured")
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


def rping(bench, address, revision, mulpdu=None):
    capture = Capture(bench)
    port = bench.port()
    env = {"UIW_CRC": "on"}
    if revision == 1:
        env["UIW_MPA_REVISION"] = "1"
    if mulpdu:
        env["UIW_MULPDU"] = mulpdu
    pings.pair(bench, "-C", 50, "-S", 60000, "-V", port=port, host=address, env=env, namespace=capture.namespace)
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
