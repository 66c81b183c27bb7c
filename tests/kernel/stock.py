# SPDX-License-Identifier: MIT
"""Stock programs on the wire between uiw and the kernel's siw, each in both directions."""

import collections
import contextlib
import filecmp
import pathlib
import tempfile

from places import Kernel, Uiw

# What a program is called with to serve and to call; S stands for the server's address, D for the device. `says` is what
# the caller prints if all went well, and how often; rping's exit status is 0 even if the connection breaks. `to_siw`:
# whether it is called on uiw with its server on siw, too.
Program = collections.namedtuple("Program", "name port server caller says to_siw", defaults=(("", 0), True))


def perftest(name, *options):
    both = [name, "-R", "-F", "-d", "D", "-n", "300", *options]
    return Program(" ".join([name, *options]), 18515, both, [*both, "S"])


def rsockets(name, *options, **more):
    both = [name, "-p", "7480", *options]
    return Program(" ".join([name, *options]), 7480, [*both, "-b", "S"], [*both, "-s", "S"], **more)


RPING = Program("rping", 7174, ["rping", "-s", "-a", "S", "-C", "20", "-V", "-S", "5000"],
                ["rping", "-c", "-a", "S", "-C", "20", "-v", "-V", "-S", "5000"], ("ping data", 20))
WITHOUT_END = Program("rping", 7174, ["rping", "-s", "-a", "S"], ["rping", "-c", "-a", "S"])
CONNECTIONS = ("ucmatose", "-p", "7473", "-c", "10", "-C", "20", "-S", "10000")
UCMATOSE = Program("ucmatose", 7473, [*CONNECTIONS, "-b", "S"], [*CONNECTIONS, "-s", "S"])
PROGRAMS = (
    RPING,
    UCMATOSE,
    rsockets("rstream", "-S", "20000", "-C", "50", "-I", "5"),
    # On a busy machine siw's server ends by a reset in one of ten runs, and the last messages are lost with it. rrecv(),
    # which is not told of the end of a connection, then waits for ever.
    rsockets("rstream", "-S", "20000", "-C", "50", "-T", "b", "-T", "v", to_siw=False),
    rsockets("riostream", "-S", "20000", "-C", "50", "-I", "5"),
    *(perftest(f"ib_{verb}_bw", "-s", "65536") for verb in ("send", "write", "read")),
    *(perftest(f"ib_{verb}_lat", "-s", "100") for verb in ("send", "write", "read")),
    perftest("ib_read_bw", "-s", "3000", "-e"),
    perftest("ib_send_lat", "-s", "3000", "-e"),
    perftest("ib_write_bw", "-s", "3000", "-q", "4"),
)


def filled(words, server, place):
    return [{"S": server.address, "D": place.device}.get(word, word) for word in words]


@contextlib.contextmanager
def talking(program, server, caller, options=()):
    """Both ends under way; whatever goes wrong, neither stays."""
    serves = server.begin(*filled(program.server, server, server), options=options)
    try:
        try:
            server.await_port(program.port)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {' '.join(program.server)} has said:\n{server.said(serves)}") from error
        yield serves, caller.begin(*filled(program.caller, server, caller), options=options)
    except BaseException:
        for place in (server, caller):
            place.kill(program.server[0])
        raise


class Talks:
    def __init__(self, guest, build, say):
        self.kernel, self.uiw = Kernel(guest, "siw"), Uiw(guest, "siw", build)
        self.guest, self.say = guest, say
        self.good, self.count = True, 0

    def judge(self, title, right, *outputs):
        self.count += 1
        if not right:
            self.good = False
            self.say(f"{title}: failed")
            for output in outputs:
                self.say("    " + "\n    ".join(output.splitlines()[-12:]))

    def directions(self):
        return ((self.uiw, self.kernel, "uiw calls siw"), (self.kernel, self.uiw, "siw calls uiw"))

    def stock(self, program, more="", options=(), succeeds=True):
        for caller, server, way in self.directions():
            if server is self.kernel and not program.to_siw:
                continue
            with talking(program, server, caller, options) as (serves, calls):
                status, called_output = caller.finish(calls)
                if status != 0:
                    server.kill(program.server[0])
                server_status, output = server.finish(serves)
            text, times = program.says
            done = status == 0 and server_status == 0 and (times == 0 or called_output.count(text) == times)
            # rping says -1 of what has not come about; its server may be killed, but neither may crash.
            refused = (0 < status < 124 or status == 255) and server_status not in (-6, -11, 134, 139)
            right = done if succeeds else refused
            self.judge(f"{program.name}{more}, {way}: exit status {status} and {server_status}", right, called_output, output)

    @contextlib.contextmanager
    def parameter(self, name, value):
        """Of siw."""
        file = f"/sys/module/siw/parameters/{name}"
        before = self.kernel.run_here("sh", "-c", f"cat {file} && echo {value} >{file}")
        if before[0] != 0:
            raise RuntimeError(f"siw's parameter {name} could not be set: {before[1]}")
        try:
            yield
        finally:
            self.kernel.run_here("sh", "-c", f"echo {before[1].strip()} >{file}")

    def copy(self):
        """rcopy, whose files are compared."""
        with tempfile.TemporaryDirectory(prefix="uiw-rcopy-") as folder:
            for caller, server, way in self.directions():
                source = "/usr/bin/openssl" if pathlib.Path("/usr/bin/openssl").exists() else "/bin/busybox"
                target = f"{folder}/copy" if server is self.uiw else "/tmp/copy"  # rcopy maps it, and 9p takes no maps
                serves = server.begin("rcopy")
                server.await_port(7427)  # rcopy serves until it is killed
                status, output = caller.run("rcopy", source, f"{server.address}:{target}")
                server.kill("rcopy")
                server.finish(serves)
                copied = pathlib.Path(target)
                if server is self.kernel:
                    server.run_here("cp", target, "/run/shared")
                    copied = self.guest.shared / "copy"
                right = status == 0 and copied.exists() and filecmp.cmp(source, copied, shallow=False)
                self.judge(f"rcopy, {way}: exit status {status}", right, output)

    def end(self, title, how, killed=None):
        """What ends the connection of two programs that would go on for ever; both are to end, and only that which is
        killed by a signal."""
        for caller, server, way in self.directions():
            with talking(WITHOUT_END, server, caller) as (serves, calls):
                server.await_port(WITHOUT_END.port, state="01")
                how(caller, server)
                status, output = caller.finish(calls)
                server_status, other = server.finish(serves)
            right = all(0 <= one < 124 or role == killed and one in (-9, 137)
                        for role, one in (("caller", status), ("server", server_status)))
            self.judge(f"{title}, {way}: exit status {status} and {server_status}", right, output, other)


def programs(guest, build, _provider, say):
    talks = Talks(guest, build, say)
    for program in PROGRAMS:
        talks.stock(program)
    talks.copy()
    return talks.good, talks.count


def settings(guest, build, _provider, say):
    """What the two ends agree on, or do not, when they connect (RFC 5044 section 7.1, RFC 6581)."""
    talks = Talks(guest, build, say)
    writes = perftest("ib_write_bw", "-s", "65536")
    for name, value in (("mpa_version", 1), ("peer_to_peer", 1), ("mpa_crc_required", 1), ("try_gso", 1), ("zcopy_tx", 0)):
        with talks.parameter(name, value):
            for program in (RPING, writes):
                talks.stock(program, f", siw with {name}={value}")
    # A server on siw has no Reads if its caller asks by revision 1, which does not say how many there may be; so no rping.
    for options, first in ((("--mpa-revision", "1"), UCMATOSE), (("--crc", "on"), RPING), (("--crc", "off"), RPING)):
        for program in (first, writes):
            talks.stock(program, f", uiw with {' '.join(options)}", options)
    with talks.parameter("mpa_crc_strict", 1):
        talks.stock(RPING, ", no end wants a CRC", ("--crc", "off"))
        talks.stock(RPING, ", only uiw wants a CRC", ("--crc", "on"), succeeds=False)
    talks.stock(RPING, ", uiw asks for markers", ("--markers", "on"), succeeds=False)
    with talks.parameter("mpa_version", 1), talks.parameter("mpa_crc_required", 1):
        talks.stock(UCMATOSE, ", revision 1 at both ends, with CRC", ("--mpa-revision", "1"))
    return talks.good, talks.count


def ends(guest, build, _provider, say):
    talks = Talks(guest, build, say)
    talks.end("the caller is killed", lambda caller, _server: caller.kill("rping"), "caller")
    talks.end("the server is killed", lambda _caller, server: server.kill("rping"), "server")
    talks.end("the connection is reset",
              lambda *_: talks.kernel.run_here("ss", "-K", "state", "established", f"( sport = {WITHOUT_END.port} or "
                                               f"dport = {WITHOUT_END.port} )"))
    return talks.good, talks.count
