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
import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import traceback

MARK = "APPS_TEST_OF"  # set in the environment of every program, so that strays can be found
OUTPUT_LINES = 60  # of each output stream, shown on failure
STRAYS_GO = 3  # seconds that a program's children may outlive it, as python's forkserver does without uiw too
RPING_ENDS = "rdma_get_cm_event: Bad file descriptor\n"
_libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """The row fails, with this reason."""


class Skip(Exception):
    """The row cannot be run here, for this reason."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def wait_until(condition, timeout, what):
    """Waits until condition() is true; returns its value."""
    end = time.monotonic() + timeout
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Failure(f"not within {timeout:g} s: {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root")


def need_program(*names):
    for name in names:
        if shutil.which(name) is None and not os.access(f"/usr/sbin/{name}", os.X_OK):
            raise Skip(f"{name} is not installed")


# ---- what the machine says -------------------------------------------------------------------------------------


def _sockets(port, state, pid):
    """How many TCP sockets with this local port are in this state in the network namespace of pid."""
    count = 0
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as lines:
                next(lines)
                for line in lines:
                    column = line.split()
                    count += column[3] == state and int(column[1].rsplit(":", 1)[1], 16) == port
        except (OSError, StopIteration):
            pass
    return count


def listening(port, pid="self"):
    """Whether somebody listens on this TCP port in the network namespace of pid."""
    return _sockets(port, "0A", pid) > 0


def established(port, pid="self"):
    """How many connections to this TCP port stand, seen from the listener's side."""
    return _sockets(port, "01", pid)


def process_table():
    """pid -> (session, state) of every process."""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                column = stat.read().rsplit(")", 1)[1].split()
            table[int(entry)] = (int(column[3]), column[0])
        except OSError:
            pass
    return table


def marked_processes(mark):
    """Processes whose environment carries the mark of this bench."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as environ:
                    if wanted in environ.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
    return found


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def threads(pid):
    """The names of the threads of a process; uiw's begin with "uiw-" once a connection is made."""
    names = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/comm") as name:
                names.append(name.read().strip())
    except OSError:
        pass
    return names


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


# ---- processes -------------------------------------------------------------------------------------------------


class Process:
    """A running program, leader of its own session. Its output goes to files in the bench."""

    def __init__(self, bench, argv, env, cwd, stdin, number):
        self.bench = bench
        self.argv = [str(word) for word in argv]
        self.may_die = False  # set when the test itself ends it with a signal
        self.stdout_path = os.path.join(bench.logs, f"{number}.out")
        self.stderr_path = os.path.join(bench.logs, f"{number}.err")
        self.began = time.monotonic()
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.popen = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=out, stderr=err, env=env,
                cwd=cwd, start_new_session=True, preexec_fn=_die_with_parent)
        self.pid = self.popen.pid

    @property
    def stdout(self):
        with open(self.stdout_path, errors="replace") as text:
            return text.read()

    @property
    def stderr(self):
        with open(self.stderr_path, errors="replace") as text:
            return text.read()

    @property
    def output(self):
        return self.stdout + self.stderr

    def running(self):
        return self.popen.poll() is None

    def status(self):
        """The exit status, negative for a signal; None while it runs."""
        status = self.popen.poll()
        # At its end rping closes the event channel while another of its threads may be about to ask it for the next
        # event; where the close comes first, on any adapter, that thread ends the program so.
        if status == 255 and "rping" in self.argv and self.stderr.endswith(RPING_ENDS):
            return 0
        return status

    def wait(self, timeout):
        """Waits for the end; returns the status()."""
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"still running after {timeout:g} s: {self.name()}") from None
        return self.status()

    def succeed(self, timeout):
        status = self.wait(timeout)
        check(status == 0, f"ended with {describe(status)}: {self.name()}")
        return self

    def wait_listen(self, port, timeout=10):
        """Until the port is in LISTEN in the program's network namespace."""

        def heard():
            if listening(port, self.pid):
                return True
            if not self.running():
                raise Failure(f"ended with {describe(self.status())} before it listened on {port}: {self.name()}")
            return False

        wait_until(heard, timeout, f"port {port} in LISTEN by {self.name()}")
        return self

    def wait_output(self, pattern, timeout=10):
        """Until the output matches; returns the match."""
        expression = re.compile(pattern, re.M)

        def seen():
            match = expression.search(self.output)
            if not match and not self.running():
                match = expression.search(self.output)
                check(match, f"ended with {describe(self.status())} without saying /{pattern}/: {self.name()}")
            return match

        return wait_until(seen, timeout, f"/{pattern}/ in the output of {self.name()}")

    def kill(self, number=signal.SIGKILL):
        """Sends a signal to this process alone; its death is then no failure."""
        self.may_die = True
        if self.running():
            self.popen.send_signal(number)

    def family(self):
        """The processes of its session that live."""
        return [pid for pid, (session, state) in process_table().items()
                if session == self.pid and state not in "ZX"]

    def end(self):
        """Ends the session: SIGTERM, then SIGKILL."""
        if self.running():
            self.may_die = True
        for number, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 5)):
            stop = time.monotonic() + patience
            family = self.family()
            for pid in family:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
            while time.monotonic() < stop:
                self.popen.poll()
                if not self.family():
                    break
                time.sleep(0.005)
            if not self.family():
                break
        try:  # its threads may end a little later than what /proc calls the process
            self.popen.wait(2)
        except subprocess.TimeoutExpired:
            pass

    def name(self):
        words = self.argv
        if self.bench.uiw in words:
            words = words[words.index(self.bench.uiw):]
            words = ["uiw"] + words[1:]
        text = " ".join(words)
        return text if len(text) <= 300 else text[:300] + " ..."

    def report(self):
        text = " ".join(self.argv)
        lines = [f"  $ {text if len(text) <= 1000 else text[:1000] + ' ...'}", f"    {describe(self.status())}"]
        for title, path in (("stdout", self.stdout_path), ("stderr", self.stderr_path)):
            with open(path, errors="replace") as text:
                content = text.read().splitlines()
            if len(content) > OUTPUT_LINES:
                half = OUTPUT_LINES // 2
                content = content[:half] + [f"... {len(content) - 2 * half} lines ..."] + content[-half:]
            lines += [f"    {title}| {line[:400]}" for line in content]
        return "\n".join(lines)


def describe(status):
    if status is None:
        return "still running"
    if status < 0:
        try:
            return f"signal {signal.Signals(-status).name}"
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"


class Namespace:
    """A network namespace (with a /sys of its own), held by a process."""

    def __init__(self, bench, name):
        self.bench = bench
        self.name = name
        self.holder = bench.start(
            ["unshare", "--net", "--mount", "--propagation", "private", "--", "sh", "-c",
             "mount -t sysfs sysfs /sys && ip link set lo up && echo ready && exec sleep infinity"], uiw=False)
        self.holder.may_die = True
        self.holder.wait_output("^ready")
        self.pid = self.holder.pid

    def wrap(self, argv):
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--", *argv]

    def ip(self, *words):
        self.bench.command(self.wrap(["ip", *words]))

    def tc(self, *words):
        self.bench.command(self.wrap(["tc", *words]))


# ---- the bench -------------------------------------------------------------------------------------------------


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
             client_status=(0,), **more):
        """A server, and when it listens a client. Both must end with 0; a server that never ends is ended.

        client_status: what the client may end with, where a program itself is at odds with its success.
        """
        first = self.start(server, **{**more, **(server_more or {})})
        first.wait_listen(port)
        second = self.start(client, **{**more, **(client_more or {})})
        end = time.monotonic() + timeout
        while second.running() and time.monotonic() < end:
            if first.status():  # the client has a while to notice it and end too
                end = min(end, time.monotonic() + 10)
            time.sleep(0.002)
        check(not first.status(), f"ended with {describe(first.status())}: {first.name()}")
        check(not second.running(), f"still running after {timeout:g} s: {second.name()}")
        check(second.status() in client_status, f"ended with {describe(second.status())}: {second.name()}")
        if server_ends:
            first.succeed(10)
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
        """Two namespaces joined by veth: 10.77.0.1 and .2, fd77::1 and ::2."""
        left, right = self.namespace("left"), self.namespace("right")
        self.command(["ip", "link", "add", "v0", "mtu", str(mtu), "netns", str(left.pid), "type", "veth",
                      "peer", "name", "v0", "mtu", str(mtu), "netns", str(right.pid)])
        self.address_hosts(left, right)
        return left, right

    @staticmethod
    def address_hosts(left, right):
        for number, side in ((1, left), (2, right)):
            side.ip("address", "add", f"10.77.0.{number}/24", "dev", "v0")
            side.ip("-6", "address", "add", f"fd77::{number}/64", "dev", "v0", "nodad")
            side.ip("link", "set", "v0", "up")

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


def start_rping(bench, argv, **more):
    """Starts an rping client of a server with -P, and waits until it is connected.

    Such a server keeps one place for the request that came last: of two that come at once, it loses one, on any
    adapter, and rdma_create_qp then finds a QP at the other (EINVAL).
    """
    client = bench.start(["stdbuf", "-oL", argv[0], "-d", *argv[1:]], **more)
    client.wait_output("ESTABLISHED", 10)
    return client


# ---- rows ------------------------------------------------------------------------------------------------------

_rows = []
_known = []


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


def main():
    parser = argparse.ArgumentParser(description="One test of stock RDMA programs over uiw.")
    parser.add_argument("--build", default=os.environ.get("UIW_BUILD", "build"), help="build directory of uiw")
    parser.add_argument("--deadline", type=float, default=300, help="seconds for the whole test")
    parser.add_argument("--row", default="", help="run only rows whose title contains this")
    parser.add_argument("--known", action="store_true", help="run only the rows that are known not to pass")
    parser.add_argument("--list", action="store_true", help="print the titles of the rows")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join([title for title, _ in _rows] + [f"{title} (known: {reason})" for title, reason, _ in _known]))
        return 0

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, _stop)
    signal.setitimer(signal.ITIMER_REAL, arguments.deadline)

    if not os.access(os.path.join(arguments.build, "tools", "uiw"), os.X_OK):
        print(f"no {arguments.build}/tools/uiw: build uiw first, or say --build")
        return 1

    passed, failed, skipped = 0, [], 0
    stopped = None
    for title, function in [(title, function) for title, _, function in _known] if arguments.known else _rows:
        if arguments.row not in title:
            continue
        bench = Bench(arguments.build, title)
        began = time.monotonic()
        verdict, reason = "ok", ""
        try:
            try:
                function(bench)
                complaints = bench.leftovers()
                if complaints:
                    verdict, reason = "FAIL", "\n".join(complaints)
            except Skip as skip:
                verdict, reason = "skip", str(skip)
            except Failure as failure:
                verdict, reason = "FAIL", str(failure)
            except Stopped as stop:
                stopped = str(stop)
                verdict, reason = "FAIL", f"stopped by {stopped}"
            except Exception:
                verdict, reason = "FAIL", traceback.format_exc()
            took = time.monotonic() - began
            print(f"{verdict:4}  {title} ({took:.1f} s)" + (f": {reason}" if reason else ""), flush=True)
            if verdict == "FAIL":
                print(bench.report(), flush=True)
        finally:
            # A second signal must not cut the cleaning short.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
                signal.signal(number, signal.SIG_IGN)
            bench.close()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
                signal.signal(number, _stop)
        if verdict == "ok":
            passed += 1
        elif verdict == "skip":
            skipped += 1
        else:
            failed.append(title)
        if stopped:
            break
    left = [] if arguments.known else [entry for entry in _known if arguments.row in entry[0]]
    for title, reason, _ in left:
        print(f"known {title}: not run: {reason}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped"
          + (f", {len(left)} known not to pass" if left else "")
          + ("" if not failed else ": " + "; ".join(failed)))
    if failed:
        return 1
    return 77 if skipped and not passed else 0
