# SPDX-License-Identifier: MIT
"""`uiw run --capture FILE`: what connections carry, as tshark opens it, over TCP and over shared memory, without rights."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, perftest, pings
from support.dissected import Dissected, judge, numbers
from support.harness import check, row

NOBODY = 65534


def rping(bench, server=(), client=(), address="127.0.0.1", **more):
    """rping under these options of uiw run, with messages longer than an FPDU. Returns the port."""
    port = bench.port()
    pings.pair(bench, "-C", 20, "-S", 65535, "-V", port=port, host=address,
               server_more={"options": server, **more}, client_more={"options": client, **more})
    return port


def captured(bench, name):
    harness.need_program("tshark", "capinfos")
    return Dissected(bench, os.path.join(bench.tmp, name))


def check_one_connection(capture, port, opens):
    """The handshake, one connection, and the end of both directions; `opens`: it was captured where the call was made."""
    frames = capture.dissect(port, ("tcp.stream", "tcp.flags.syn", "tcp.flags.ack", "tcp.flags.fin", "tcp.srcport",
                                    "frame.packet_flags_direction"))
    check({frame["tcp.stream"] for frame in frames} == {frames[0]["tcp.stream"]}, "more than one connection")
    flags = [(frame["tcp.flags.syn"], frame["tcp.flags.ack"]) for frame in frames[:4]]
    yes, no = ("1", "0") if flags[0][0] in "10" else ("True", "False")
    check(flags[:3] == [(yes, no), (yes, yes), (no, yes)], f"the handshake is {flags}")
    ends = {frame["tcp.srcport"] for frame in frames if frame["tcp.flags.fin"] == yes}
    check(len(ends) == 2, f"FIN of {ends}")
    outbound = {frame["tcp.srcport"] for frame in frames if numbers(frame["frame.packet_flags_direction"]) == [2]}
    check((str(port) not in outbound) == opens and len(outbound) == 1, f"sent by {outbound}")
    flawed = capture.show(port, '_ws.expert.severity >= "Warning"')
    check(not flawed, f"tshark warns:\n{flawed[:2000]}")


def both_ends(bench, crc, way, address="127.0.0.1", markers="off"):
    options = ("--crc", crc, "--same-host", way, "--markers", markers)
    port = rping(bench, (*options, "--capture", "server.pcapng"), (*options, "--capture", "client.pcapng"), address)
    for name in ("server", "client"):
        capture = captured(bench, f"{name}.pcapng")
        check_one_connection(capture, port, name == "client")
        judge(capture, port, {0, 1, 2, 3}, crc=crc == "on")


for _crc in ("on", "off"):
    for _way, _name in (("auto", "shared memory"), ("tcp", "TCP")):
        for _address in ("127.0.0.1", "::1"):
            harness.add_row(f"rping, a file for each end: {_name}, CRC {_crc}, {_address}",
                            lambda bench, crc=_crc, way=_way, address=_address: both_ends(bench, crc, way, address))


@row("both ends and a second run in one file: each connection once")
def one_file(bench):
    options = ("--capture", "both.pcapng", "--crc", "on")
    first, second = rping(bench, options, options), rping(bench, options, options)
    capture = captured(bench, "both.pcapng")
    for port in (first, second):
        frames = capture.dissect(port, ("tcp.stream",))
        check(len({frame["tcp.stream"] for frame in frames}) == 1, "not one connection")
        flawed = capture.show(port, '_ws.expert.severity >= "Warning"')
        check(not flawed, f"tshark warns:\n{flawed[:2000]}")
        judge(capture, port, {0, 1, 2, 3})
    about = bench.command(["capinfos", capture.file]).stdout
    check("Capture application: uiw " in about and "Strict time order:   True" in about, about)


@row("what a killed program has left of a packet goes, and the next run's connection follows")
def part_of_packet(bench):
    options = ("--capture", "part.pcapng", "--crc", "on")
    first = rping(bench, options, options)
    capture = captured(bench, "part.pcapng")
    os.truncate(capture.file, os.path.getsize(capture.file) - 8)
    about = bench.command(["capinfos", capture.file], status=None)
    check("cut short" in about.stdout + about.stderr, about.stdout + about.stderr)
    second = rping(bench, options, options)
    about = bench.command(["capinfos", capture.file])
    check("cut short" not in about.stdout + about.stderr, about.stdout + about.stderr)
    for port in (first, second):
        judge(capture, port, {0, 1, 2, 3})


@row("connections without rdma_cm, and many of them at once")
def perftest_rows(bench):
    for way, options in (((), ()), (("-R",), ("-q", 8))):
        name = f"perftest{len(way)}.pcapng"
        server, _ = perftest.talk(bench, "ib_write_bw", "-s", 70000, "-n", 20, *options, way=way,
                                  options=("--capture", name, "--crc", "on"))
        capture = captured(bench, name)
        text = bench.command(["tshark", "-n", "-r", capture.file, "-T", "fields", "-e", "tcp.stream", "-e", "tcp.port"]).stdout
        frames = [line.split() for line in text.splitlines()]
        streams = {frame[0] for frame in frames}
        check(len(streams) == (8 if options else 1) + len(way), f"{len(streams)} connections")
        ports = [set(frame[1].split(",")) for frame in frames]
        common = set.intersection(*ports) if way else ports[0]
        port = server.argv[server.argv.index("-p") + 1] if way else sorted(common)[0]
        judge(capture, port, {0, 3} if way else {0})


@row("an ordinary user, and a file that is not there when the setting comes by the environment")
def environment(bench):
    harness.need_root()
    harness.need_program("setpriv")
    os.chmod(bench.tmp, 0o777)
    os.chmod(bench.runtime, 0o777)
    path = os.path.join(bench.tmp, "user.pcapng")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    port = rping(bench, wrap=user, env={"UIW_CAPTURE": path, "UIW_CRC": "on"})
    check(os.stat(path).st_uid == NOBODY, "the file has another owner")
    check(os.stat(path).st_mode & 0o777 == 0o600, "others can read it")
    judge(captured(bench, "user.pcapng"), port, {0, 1, 2, 3})


def refused(bench, path, reason):
    ended = bench.run(["true"], status=125, options=("--capture", path))
    check(f"the capture {os.path.join(bench.tmp, path)} cannot be written: {reason}" in ended.stderr, ended.stderr)


@row("files that cannot be written or are something else: uiw run says so and leaves them alone")
def unusable(bench):
    refused(bench, "nowhere/file.pcapng", "No such file or directory; choose another file")
    other = pathlib.Path(bench.tmp, "other")
    other.write_text("not a capture")
    refused(bench, "other", "it is there, and not a capture of this release of uiw; choose another file")
    check(other.read_text() == "not a capture", "the file was changed")
    os.mkfifo(os.path.join(bench.tmp, "fifo"))
    refused(bench, "fifo", "it is there, and not a capture of this release of uiw; choose another file")
    refused(bench, bench.tmp, "Is a directory; choose another file")


@row("a limit of the size of files: the capture ends, the program does not")
def size_limit(bench):
    harness.need_program("prlimit")
    port = rping(bench, ("--capture", "short.pcapng"), wrap=["prlimit", "--fsize=100000"])
    capture = captured(bench, "short.pcapng")
    size = os.path.getsize(capture.file)
    check(20000 < size <= 100000, f"{size} octets")
    check("uiw: the capture" in bench.processes[0].stderr, "nothing is said")
    check(capture.dissect(port), "what fits cannot be opened")
    about = bench.command(["capinfos", capture.file])
    check("cut short" not in about.stdout + about.stderr, "the file ends inside a packet")


if __name__ == "__main__":
    sys.exit(harness.main())
