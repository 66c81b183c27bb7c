# SPDX-License-Identifier: MIT
"""rstream, riostream and rcopy: rsockets, alone and preloaded under an ordinary sockets program."""

import glob
import hashlib
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, row


def stream(bench, *options, program="rstream", address="127.0.0.1", source=None, timeout=15, lines=1, env=None,
           server_options=None, hangup=False):
    port = bench.port()
    # The client binds the port too, so its address must be another than the server's.
    client = [program, "-s", address, "-p", port, *options] + (["-b", source] if source else [])
    first, second = bench.pair([program, "-b", address, "-p", port, *(server_options or options)], client, port,
                               timeout=timeout, env=env, client_status=(0, 16) if hangup else (0,))
    for process in (first, second):
        check("failed" not in process.output, f"something failed: {process.name()}")
    for process in (first,) if second.status() else (first, second):
        results = re.findall(r"^\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+[\d.]+s\s+\S+\s+\S+$", process.stdout, re.M)
        check(len(results) >= lines, f"{len(results)} lines of results, not {lines}: {process.name()}")
    return first, second


QUICK = ("-S", 65536, "-C", 500)

row("rstream")(lambda bench: stream(bench, lines=8, timeout=40))
row("rstream -S, -C, -I")(lambda bench: stream(bench, "-S", 5000, "-C", 100, "-I", 10))
row("rstream, IPv6")(lambda bench: stream(bench, *QUICK, address="::1"))
row("rstream -b on the client: source address")(lambda bench: stream(bench, *QUICK, source="127.0.0.2"))
row("rstream -f ip")(lambda bench: stream(bench, "-f", "ip", *QUICK))
row("rstream -f ipv6")(lambda bench: stream(bench, "-f", "ipv6", *QUICK, address="::1"))
row("rstream -B 4096: small buffers")(lambda bench: stream(bench, "-B", 4096, *QUICK))
row("rstream -i 0")(lambda bench: stream(bench, "-i", 0, *QUICK))
row("rstream -k: keepalive")(lambda bench: stream(bench, "-k", 5, *QUICK))
# With the last data of a server that has gone, a client that polls may see POLLHUP: exit status 16.
for letter, word in (("a", "async"), ("b", "blocking"), ("n", "nonblocking"), ("r", "resolve"), ("v", "verify")):
    for option in (letter, word):
        row(f"rstream -T {option}")(
            lambda bench, option=option, hangup=letter == "a": stream(bench, "-T", option, *QUICK, hangup=hangup))
# rpoll on a listening rsocket may lose the race with librdmacm's own accept thread, and looks again after 5 s.
row("rstream -T a -T b -T v: blocking poll, data verified")(
    lambda bench: stream(bench, "-T", "a", "-T", "b", "-T", "v", *QUICK, hangup=True))
row("rstream -T b -T v -S 1000000")(lambda bench: stream(bench, "-T", "b", "-T", "v", "-S", 1000000, "-C", 100))
row("rstream -T s: plain TCP under uiw")(lambda bench: stream(bench, "-T", "s", *QUICK))
row("rstream -T f: plain TCP and fork under uiw")(
    lambda bench: stream(bench, "-T", "s", "-T", "b", *QUICK, server_options=("-T", "f", "-T", "b", *QUICK)))

row("riostream -S 4096 -C 100 -I 20")(
    lambda bench: stream(bench, "-S", 4096, "-C", 100, "-I", 20, program="riostream"))
# Both ends spin on memory in 200,000 round trips: on two processors each of these waits for a thread of the other end.
row("riostream")(lambda bench: stream(bench, program="riostream", lines=8, timeout=140))
for letter in "abnv":
    row(f"riostream -T {letter}")(
        lambda bench, letter=letter: stream(bench, "-T", letter, "-S", 65536, "-C", 100, program="riostream",
                                            hangup=letter == "a"))
row("riostream, IPv6")(lambda bench: stream(bench, "-S", 65536, "-C", 100, program="riostream", address="::1"))


def preloaded():
    found = glob.glob("/usr/lib/*/rsocket/librspreload.so*") + glob.glob("/usr/lib64/rsocket/librspreload.so*")
    if not found:
        raise harness.Skip("librspreload is not installed")
    return sorted(found)[0]


def preload(bench, server_options, env=None):
    """A plain sockets program made an rsockets one. librspreload falls back to TCP without a word, so we look for its
    connection in uiw's log."""
    port, log = bench.port(), os.path.join(bench.tmp, "log")
    options = ("-T", "b", "-T", "v", "-S", 65536)
    env = {"LD_PRELOAD": preloaded(), **(env or {})}
    server = bench.start(["rstream", "-b", "127.0.0.1", "-p", port, *server_options, *options, "-C", 8000], env=env)
    server.wait_listen(port)
    client = bench.start(["rstream", "-s", "127.0.0.1", "-p", port, "-T", "s", *options, "-C", 8000], env=env,
                         options=("--log", log))
    client.succeed(20)
    check("connected" in pathlib.Path(log).read_text(), "no connection in uiw's log: the client talked plain TCP")
    server.succeed(20)
    for process in (server, client):
        check("failed" not in process.output, f"something failed: {process.name()}")


row("librspreload under uiw run: an ordinary sockets program over RDMA")(lambda bench: preload(bench, ("-T", "s")))
# Its child binds an rsocket to the port on which the program's own TCP socket listens.
row("librspreload with RDMAV_FORK_SAFE: a forking server over RDMA")(
    lambda bench: preload(bench, ("-T", "f"), {"RDMAV_FORK_SAFE": "1"}))


# rping by rdma_cm, the others without; with datagrams, and over TCP and in shared memory.
for WORDS, ENV in ((("rping", "-C", 10), {}), (("rping", "-C", 10), {"UIW_SAME_HOST": "tcp"}),
                   (("ibv_rc_pingpong", "-d", "uiw_lo", "-g", 0, "-e"), {}),
                   (("ibv_ud_pingpong", "-d", "uiw_lo", "-g", 0, "-e"), {"UIW_TRANSPORT": "roce"})):
    def uses_the_kernels(bench, words=WORDS, env=ENV):
        port = bench.port()
        env = {"LD_PRELOAD": bench.helper("uiw_not_for_uiw.so"), **env}
        words = [*words, "-p", port]
        ends = (("-s", "-a", "127.0.0.1"), ("-c", "-a", "127.0.0.1")) if words[0] == "rping" else ((), ("127.0.0.1",))
        for process in bench.pair([*words, *ends[0]], [*words, *ends[1]], port, timeout=20, env=env):
            check("of a preloaded library" not in process.output, f"it does: {process.name()}")
    row(f"{' '.join(str(word) for word in WORDS)} {ENV}: uiw's own sockets pass by another preloaded library")(
        uses_the_kernels)


@row("rcopy of 200 MB: equal sha256")
def rcopy(bench):
    source, sink = os.path.join(bench.tmp, "source"), os.path.join(bench.tmp, "sink")
    digest = hashlib.sha256()
    with open(source, "wb") as file:
        for _ in range(200):
            block = os.urandom(1000 * 1000)
            digest.update(block)
            file.write(block)
    port = bench.port()
    _, client = bench.pair(["rcopy", "-p", port], ["rcopy", source, f"127.0.0.1:{sink}", "-p", port], port,
                           server_ends=False, timeout=40)
    check(re.search(r"200000000 bytes in", client.stdout), "not 200000000 bytes")
    with open(sink, "rb") as file:
        check(hashlib.file_digest(file, "sha256").digest() == digest.digest(), "the copy differs")


@row("rcopy of one byte, of 4095 and of 65537 bytes, one server")
def rcopy_small(bench):
    port = bench.port()
    bench.start(["rcopy", "-p", port]).wait_listen(port)
    for size in (1, 4095, 65537):
        source, sink = os.path.join(bench.tmp, f"source{size}"), os.path.join(bench.tmp, f"sink{size}")
        with open(source, "wb") as file:
            file.write(os.urandom(size))
        bench.run(["rcopy", source, f"127.0.0.1:{sink}", "-p", port], timeout=20)
        with open(source, "rb") as one, open(sink, "rb") as two:
            check(one.read() == two.read(), f"the copy of {size} bytes differs")


if __name__ == "__main__":
    sys.exit(harness.main())
