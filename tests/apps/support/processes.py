# SPDX-License-Identifier: MIT
"""Programs that a bench has started, and network namespaces, which are held by such a program. Both end with the bench."""

import ctypes
import os
import re
import signal
import subprocess
import time

from support.machine import Failure, check, listening, process_table, wait_until

OUTPUT_LINES = 60  # of each output stream, shown on failure
RPING_ENDS = "rdma_get_cm_event: Bad file descriptor\n"
# What rping says first where a call of its own or its connection has failed.
RPING_FAILED = re.compile(r"^(rdma_(?!get_cm_event)\w+: |cma event|cma detected)", re.MULTILINE)
# Behind all that rping has said, `uiw run --check` says what it has found.
CHECK_SAYS = re.compile(r"^uiw check: .*\n", re.MULTILINE)
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def rping_ended_late(stderr):
    """Whether an rping that has this to say, and the exit status 255, has done all that it was asked for.

    At its end rping closes the event channel while another of its threads may be about to ask it for the next event; where
    the close comes first, on any adapter, that thread ends the program so.
    """
    return CHECK_SAYS.sub("", stderr).endswith(RPING_ENDS) and not RPING_FAILED.search(stderr)


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
        if status == 255 and "rping" in self.argv and rping_ended_late(self.stderr):
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
