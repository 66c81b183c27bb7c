# SPDX-License-Identifier: MIT
"""What the machine says of sockets and processes, and how a test waits for it, fails or is skipped."""

import os
import shutil
import time

MARK = "APPS_TEST_OF"  # set in the environment of every program, so that strays can be found


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


def _sockets(port, state, pid, tables=("tcp", "tcp6")):
    """How many sockets, of TCP by default, with this local port are in this state in the network namespace of pid."""
    count = 0
    for table in tables:
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


def receiving(port, pid="self"):
    """Whether somebody has this UDP port in the network namespace of pid."""
    return _sockets(port, "07", pid, ("udp", "udp6")) > 0


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
