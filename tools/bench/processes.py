# SPDX-License-Identifier: MIT
"""Runs programs, each with a deadline: one alone, or a server and its client, also in two network namespaces."""
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import time

START_LIMIT = 5  # seconds until a server listens and accepts its client
SLACK = 15       # seconds for set-up and tear-down around a measurement
# The environment of programs that must run without uiw, even if this program itself runs under uiw.
PLAIN = {"LD_PRELOAD": None, "LC_ALL": "C"}
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
MFD_CLOEXEC = 1


class Failure(Exception):
    """Why something could not be measured, in one line."""


class Interrupted(BaseException):
    """One of SIGNALS has come."""


def raise_interrupts():
    def interrupt(number, _):
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not disturb the clean-up
        raise Interrupted(number)
    for each in SIGNALS:
        signal.signal(each, interrupt)


@contextlib.contextmanager
def signals_held():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def memory_file(content=b""):
    """A file in memory, since there may be no directory that can be written."""
    file = os.fdopen(LIBC.memfd_create(b"uiw-bench", MFD_CLOEXEC), "r+b")
    file.write(content)
    file.seek(0)
    return file


class Child:
    """A running program. It is ended at the end of its `with`, and by the kernel if this process is killed."""

    def __init__(self, words, environment, where=(), stdin=subprocess.DEVNULL):
        self.name = words[0]
        self.file = memory_file()  # gets standard output and standard error; unlike a pipe it is never full
        changed = {**os.environ, **environment}
        parent = os.getpid()

        def begin():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)  # the parent has ended before prctl took effect
            for each in SIGNALS:
                signal.signal(each, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

        self.process = None
        try:
            with signals_held():  # no signal may come before self.process is set
                self.process = subprocess.Popen(
                    [*where, *words], stdin=stdin, stdout=self.file, stderr=subprocess.STDOUT, preexec_fn=begin,
                    env={name: value for name, value in changed.items() if value is not None})
        except OSError as error:
            raise Failure(f"{self.name} cannot be executed: {error.strerror}") from None
        except BaseException:  # an interrupt, which comes at the end of signals_held()
            if self.process:
                self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.file.close()

    def wait(self, limit):
        """Waits for `limit` seconds at most. Returns whether the program has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(limit)
        return self.process.returncode is not None

    def stop(self):
        with signals_held():
            if self.wait(0):
                return
            self.process.terminate()
            if not self.wait(1):
                self.process.kill()
                self.process.wait()

    def output(self):
        # Reads with pread(), since a seek would change the position at which the program writes.
        descriptor = self.file.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def said(self):
        """The last line of its output, to be put behind a message."""
        lines = self.output().strip().splitlines()
        return ": " + lines[-1].strip() if lines else ""

    def ending(self):
        status = self.process.returncode
        how = f"ended with status {status}" if status >= 0 else f"was ended by signal {signal.Signals(-status).name}"
        return f"{self.name} {how}{self.said()}"

    def finish(self, who, duration):
        """Waits for the program's end. Returns whether its status is 0; raises Failure if it does not end in time."""
        if not self.wait(duration + SLACK):
            self.stop()
            raise Failure(f"{who}{self.name} did not end within {duration + SLACK} s{self.said()}")
        return self.process.returncode == 0


def run_program(words, environment, duration, where=(), stdin=subprocess.DEVNULL):
    """Runs a program and returns its output. It may take some seconds longer than `duration`."""
    with Child(words, environment, where, stdin) as child:
        if not child.finish("", duration):
            raise Failure(child.ending())
        return child.output()


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return str(probe.getsockname()[1])


def listens(process, port):
    """Whether something listens on the port in the network namespace of the process. Reads the kernel's tables: a test
    connection would be taken for the client by programs that serve only one (ib_*, iperf3 -1)."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{process}/net/{table}", encoding="ascii") as lines:
            if any(re.match(rf" *\d+: \w+:{int(port):04X} \w+:\w+ 0A ", line) for line in lines):
                return True
    return False


def run_pair(setup, server, client, port, environment, duration, server_ends=True):
    """Runs a client once its server listens on the port, and returns the client's output. With `server_ends` the
    server has some time to end by itself; afterwards, or without it, the server is ended."""
    deadline = time.monotonic() + START_LIMIT
    with Child(server, environment, setup.server_in) as serving:
        while not listens(serving.process.pid, port) and time.monotonic() < deadline:
            if serving.wait(0.02):
                raise Failure("server " + serving.ending())
        while True:
            with Child(client, environment, setup.client_in) as asking:
                if asking.finish("client ", duration):
                    output = asking.output()
                    break
                # A client that fails may have been too early, so it is started again until START_LIMIT is over.
                if time.monotonic() >= deadline or serving.wait(0.1):
                    serving.stop()
                    said = serving.said()
                    raise Failure("client " + asking.ending() + (f"; server{said}" if said else ""))
        if server_ends:
            serving.wait(2)
        return output


def in_namespace(path):
    return ["nsenter", f"--net={path}", "--"]


def hold_namespace(stack):
    """Makes a network namespace and returns its path. Only a child process in `stack` keeps the namespace alive, so
    that it goes when this process ends, in whatever way."""
    holder = stack.enter_context(Child(["unshare", "--net", "sleep", "infinity"], PLAIN))
    path = f"/proc/{holder.process.pid}/ns/net"
    deadline = time.monotonic() + START_LIMIT
    while not holder.wait(0.005) and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if os.readlink(path) != os.readlink("/proc/self/ns/net"):
                return path
    raise Failure("`unshare --net` made no network namespace" + holder.said())
