# SPDX-License-Identifier: MIT
"""What the tests of stock programs share: start programs under uiw, wait for events, end them, leave nothing.

A test file is a list of rows, functions marked with @row, and ends with harness.main(). Rows run one after the
other; each gets a fresh Bench. Exit status of a test: 0 all rows passed, 77 every row was skipped, 1 otherwise.

A Bench owns what a row creates: a temporary directory, reserved TCP ports, processes (each the leader of a session
of its own) and network namespaces (held by a process, without a name, so that they go with it). All of it goes on
every way out: success, failure, SIGTERM, SIGINT, the deadline. Should the test itself be killed with SIGKILL, its
processes and namespaces go with it by PR_SET_PDEATHSIG.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import traceback

from support import dissected
from support.machine import (MARK, Failure, Skip, check, command_line, established, listening, marked_processes,
                             need_program, need_root, wait_until)
from support.processes import Namespace, Process, describe

STRAYS_GO = 3  # seconds that a program's children may outlive it, as python's forkserver does without uiw too


class Bench:
    settings = {}  # environment of every program of a test

    def __init__(self, build, title):
        self.build = os.path.abspath(build)
        self.uiw = os.path.join(self.build, "tools", "uiw")
        self.preload = os.path.join(self.build, "kernel-abi", "libuiw-preload.so")
        self.mark = f"{os.getpid()}-{random.randrange(1 << 32):08x}"
        self.title = title
        self.tmp = tempfile.mkdtemp(prefix="uiw-apps-")
        self.logs = os.path.join(self.tmp, "logs")
        self.runtime = os.path.join(self.tmp, "runtime")
        os.mkdir(self.logs)
        os.mkdir(self.runtime)
        os.chmod(self.tmp, 0o755)
        self.processes = []
        self.claims = []
        self.ports = []

    # Programs.

    def helper(self, name):
        """A test program of our own, built beside this test."""
        for folder in ("tests/apps", "bin", "tests"):
            path = os.path.join(self.build, folder, name)
            if os.access(path, os.X_OK):
                return path
        raise Skip(f"{name} is not built in {self.build}")

    def environment(self, extra=None):
        env = {key: value for key, value in os.environ.items() if not key.startswith("UIW_") and key != "LD_PRELOAD"}
        env[MARK] = self.mark
        env["TMPDIR"] = self.tmp
        env["LC_ALL"] = "C"
        env["UIW_RUNTIME_DIR"] = self.runtime
        env.update(self.settings)
        for key, value in (extra or {}).items():
            if value is None:
                env.pop(key, None)
            else:
                env[key] = value
        return env

    def start(self, argv, uiw=True, env=None, cwd=None, stdin=None, namespace=None, wrap=None, options=()):
        """Starts a program, under `uiw run` unless told otherwise.

        wrap: words to put in front of all (setpriv, env -i, valgrind outside of uiw).
        """
        words = list(argv)
        if uiw:
            words = [self.uiw, "run", *options, "--", *words]
        if wrap:
            words = list(wrap) + words
        if namespace:
            words = namespace.wrap(words)
        process = Process(self, words, self.environment(env), cwd or self.tmp, stdin, len(self.processes))
        self.processes.append(process)
        return process

    def run(self, argv, timeout=20, status=0, **more):
        """Runs a program to its end. status: the one that is expected, None for any."""
        process = self.start(argv, **more)
        ended = process.wait(timeout)
        if status is not None:
            check(ended == status, f"ended with {describe(ended)}, not {describe(status)}: {process.name()}")
        return process

    def command(self, argv, timeout=30, status=0):
        """Runs a tool of the machine, without uiw."""
        return self.run(argv, timeout, status, uiw=False)

    def pair(self, server, client, port, timeout=20, server_ends=True, server_more=None, client_more=None,
             server_status=(0,), client_status=(0,), **more):
        """A server, and when it listens a client. Both must end with 0; a server that never ends is ended.

        server_status, client_status: what they may end with, where a program itself is at odds with its success.
        """
        first = self.start(server, **{**more, **(server_more or {})})
        first.wait_listen(port)
        second = self.start(client, **{**more, **(client_more or {})})
        end = time.monotonic() + timeout
        while second.running() and time.monotonic() < end:
            if first.status():  # the client has a while to notice it and end too
                end = min(end, time.monotonic() + 10)
            time.sleep(0.002)
        check(first.status() in (None, *server_status), f"ended with {describe(first.status())}: {first.name()}")
        check(not second.running(), f"still running after {timeout:g} s: {second.name()}")
        check(second.status() in client_status, f"ended with {describe(second.status())}: {second.name()}")
        if server_ends:
            check(first.wait(10) in server_status, f"ended with {describe(first.status())}: {first.name()}")
        else:
            check(first.running(), f"ended with {describe(first.status())}: {first.name()}")
            first.end()
        return first, second

    # Ports.

    def ports_in_a_row(self, count):
        """Such ports, of which each is the next after the one before."""
        for _ in range(1000):
            first = self.port()
            if count == 1 or all(self._claim(first + i) for i in range(1, count)):
                return list(range(first, first + count))
        raise Failure(f"no {count} free TCP ports in a row")

    def port(self):
        """A TCP port that nobody uses and no other test will take until this bench closes."""
        candidates = list(range(20000, 32000))
        random.shuffle(candidates)
        for port in candidates:
            if self._claim(port):
                return port
        raise Failure("no free TCP port")

    def _claim(self, port):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0uiw-apps-port-{port}")
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind((address, port))
        except OSError:
            claim.close()
            return False
        self.claims.append(claim)
        self.ports.append(port)
        return True

    # Namespaces.

    def namespace(self, name="ns"):
        need_root()
        need_program("unshare", "nsenter", "ip")
        try:
            return Namespace(self, name)
        except Failure as failure:
            raise Skip(f"no network namespaces here: {failure}") from None

    def two_hosts(self, mtu=1500):
        """Two namespaces joined by veth: 10.77.0.1 and .2, fd77::1 and ::2, fe80::1 and ::2."""
        left, right = self.namespace("left"), self.namespace("right")
        self.command(["ip", "link", "add", "v0", "mtu", str(mtu), "netns", str(left.pid), "type", "veth",
                      "peer", "name", "v0", "mtu", str(mtu), "netns", str(right.pid)])
        self.address_hosts(left, right)
        return left, right

    @staticmethod
    def address_hosts(left, right):
        for number, side in ((1, left), (2, right)):
            side.ip("address", "add", f"10.77.0.{number}/24", "dev", "v0")
            # The kernel's own link-local address would come a while later, and move the GIDs to other indices.
            side.ip("link", "set", "v0", "addrgenmode", "none")
            for prefix in ("fd77", "fe80"):
                side.ip("-6", "address", "add", f"{prefix}::{number}/64", "dev", "v0", "nodad")
            side.ip("link", "set", "v0", "up")

    def introduce_hosts(self, left, right):
        """Each host knows the link-layer address of the other. On a line that delays or loses frames, to ask for it may take
        longer than programs give rdma_resolve_addr."""
        for side, number, other in ((left, 2, right), (right, 1, left)):
            link = self.command(other.wrap(["cat", "/sys/class/net/v0/address"])).stdout.strip()
            for address in f"10.77.0.{number}", f"fd77::{number}", f"fe80::{number}":
                side.ip("neighbour", "replace", address, "lladdr", link, "dev", "v0", "nud", "permanent")

    # The end.

    def strays(self):
        """Processes that live though the program they came of has ended."""
        return [(process, pid) for process in self.processes if process.status() is not None
                for pid in process.family()]

    def leftovers(self):
        """Ends what still runs and tells what should not have been there."""
        complaints = []
        try:
            wait_until(lambda: not self.strays(), STRAYS_GO, "strays gone")
        except Failure:
            pass
        for process in self.processes:
            status = process.status()
            if status is not None and status < 0 and not process.may_die:
                complaints.append(f"died of {describe(status)}: {process.name()}")
            if status is not None:
                strays = process.family()
                if strays:
                    complaints.append(f"left processes behind: {process.name()}: "
                                      + ", ".join(command_line(pid) for pid in strays))
            process.end()
        try:  # some may have left the session of their program
            wait_until(lambda: not marked_processes(self.mark), STRAYS_GO, "strays gone")
        except Failure:
            pass
        for pid in marked_processes(self.mark):
            complaints.append(f"process {pid} stayed behind: {command_line(pid)}")
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        for port in self.ports:
            try:
                wait_until(lambda port=port: not listening(port), 2, f"port {port} free again")
            except Failure:
                complaints.append(f"port {port} is still in LISTEN")
        return complaints

    def close(self):
        for process in self.processes:
            process.end()
        for claim in self.claims:
            claim.close()
        shutil.rmtree(self.tmp, ignore_errors=True)
        if os.path.exists(self.tmp):  # a read-only directory in it
            subprocess.run(["chmod", "-R", "u+rwX", self.tmp], check=False)
            shutil.rmtree(self.tmp, ignore_errors=True)

    def report(self):
        """What ran: in full what failed and what came last, the rest by name."""
        lines = []
        for process in self.processes:
            if process.status() == 0 and process not in self.processes[-4:]:
                lines.append(f"  $ {process.name()[:200]}\n    exit status 0")
            else:
                lines.append(process.report())
        return "\n".join(lines)


# ---- rows ------------------------------------------------------------------------------------------------------

_rows = []
_known = []


def one_line(run, *words):
    """uiw says one line, with all of the words. Returns it."""
    said = [line for line in run.stderr.splitlines() if line.startswith("uiw")]
    check(len(said) == 1, f"uiw says {len(said)} lines")
    for word in words:
        check(str(word) in said[0], f"'{word}' is not in: {said[0]}")
    check("ERROR: ld.so" not in run.stderr, "the loader complains")
    return said[0]


def row(title, **arguments):
    """Marks a function of one Bench, and of the keyword arguments given here, as a row of the test."""

    def mark(function):
        _rows.append((title, lambda bench: function(bench, **arguments)))
        return function

    return mark


def add_row(title, function):
    _rows.append((title, function))


def borrow(register, *titles):
    """Of the rows that another test registers, those with these titles. Returns what register() does."""
    before = len(_rows)
    known_before = len(_known)
    result = register()
    found = dict(_rows[before:])
    del _rows[before:], _known[known_before:]
    for title in titles:
        _rows.append((title, found[title]))
    return result


def known(title, reason, function):
    """A row that cannot pass, and why: each run names it, --known runs it."""
    _known.append((title, reason, function))


class Stopped(BaseException):
    """A signal asked the test to stop."""


def _stop(number, _frame):
    raise Stopped(signal.Signals(number).name)


def _arguments():
    parser = argparse.ArgumentParser(description="One test of stock RDMA programs over uiw.")
    parser.add_argument("--build", default=os.environ.get("UIW_BUILD", "build"), help="build directory of uiw")
    parser.add_argument("--deadline", type=float, default=300, help="seconds for the whole test")
    parser.add_argument("--row", default="", help="run only rows whose title contains this")
    parser.add_argument("--known", action="store_true", help="run only the rows that are known not to pass")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE",
                        help="a variable of every program's environment")
    parser.add_argument("--captures", action="store_true",
                        help="let tshark judge what uiw sends over TCP and shared memory")
    parser.add_argument("--list", action="store_true", help="print the titles of the rows")
    return parser.parse_args()


def _on_signals(handler):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, handler)


def _judge(function, bench):
    """Runs a row: its verdict, why, and the signal that stopped it or None."""
    try:
        function(bench)
        complaints = bench.leftovers()
        return ("FAIL", "\n".join(complaints), None) if complaints else ("ok", "", None)
    except Skip as skip:
        return "skip", str(skip), None
    except Failure as failure:
        return "FAIL", str(failure), None
    except Stopped as stop:
        return "FAIL", f"stopped by {stop}", str(stop)
    except Exception:
        return "FAIL", traceback.format_exc(), None


def judge_captured(build, file):
    """Prints what tshark says of the segments that uiw has sent in all rows, and returns whether it found them well."""
    if not os.path.exists(file):
        return True
    # What a program that was killed has left of a packet goes when the file is opened again.
    opened = subprocess.run([os.path.join(build, "tools", "uiw"), "run", "--capture", file, "--", "true"])
    try:
        check(opened.returncode == 0, "the capture cannot be opened again")
        counts, flawed = dissected.judge_sent(file)
    except Failure as failure:
        counts, flawed = "no verdict", [str(failure)]
    print(f"{'FAIL' if flawed else 'ok  '}  tshark: {counts}" + "".join(f"\n{flaw}" for flaw in flawed), flush=True)
    return not flawed


def main():
    arguments = _arguments()
    if arguments.list:
        print("\n".join([title for title, _ in _rows] + [f"{title} (known: {reason})" for title, reason, _ in _known]))
        return 0

    Bench.settings = {**Bench.settings, **dict(one.split("=", 1) for one in arguments.setting)}
    _on_signals(_stop)
    signal.setitimer(signal.ITIMER_REAL, arguments.deadline)

    if not os.access(os.path.join(arguments.build, "tools", "uiw"), os.X_OK):
        print(f"no {arguments.build}/tools/uiw: build uiw first, or say --build")
        return 1

    passed, failed, skipped = 0, [], 0
    stopped = None
    captures = None
    if arguments.captures and shutil.which("tshark"):
        captures = tempfile.TemporaryDirectory(prefix="uiw-captures-")
        Bench.settings["UIW_CAPTURE"] = os.path.join(captures.name, "all.pcapng")
    for title, function in [(title, function) for title, _, function in _known] if arguments.known else _rows:
        if arguments.row not in title:
            continue
        bench = Bench(arguments.build, title)
        began = time.monotonic()
        try:
            verdict, reason, stopped = _judge(function, bench)
            took = time.monotonic() - began
            print(f"{verdict:4}  {title} ({took:.1f} s)" + (f": {reason}" if reason else ""), flush=True)
            if verdict == "FAIL":
                print(bench.report(), flush=True)
        finally:
            # A second signal must not cut the cleaning short.
            _on_signals(signal.SIG_IGN)
            bench.close()
            _on_signals(_stop)
        if verdict == "ok":
            passed += 1
        elif verdict == "skip":
            skipped += 1
        else:
            failed.append(title)
        if stopped:
            break
    if captures:
        if not stopped and not judge_captured(arguments.build, Bench.settings["UIW_CAPTURE"]):
            failed.append("what tshark says")
        captures.cleanup()
    left = [] if arguments.known else [entry for entry in _known if arguments.row in entry[0]]
    for title, reason, _ in left:
        print(f"known {title}: not run: {reason}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped"
          + (f", {len(left)} known not to pass" if left else "")
          + ("" if not failed else ": " + "; ".join(failed)))
    if failed:
        return 1
    return 77 if skipped and not passed else 0
