# SPDX-License-Identifier: MIT
"""The two places where a program can run: on the kernel's provider in the guest, and on uiw on this host, in the guest's
network. Both have the same functions, so that a test need not know which is which."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

VIEWS = {"rxe": ("roce", "10.71.0"), "siw": ("iwarp", "10.72.0")}
LIMIT = 180  # seconds, of any program


class Place:
    """What follows from begin(), said() and finish(), which the places have of their own."""

    def run(self, *command, **more):
        return self.finish(self.begin(*command, **more))

    def await_said(self, begun, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.said(begun):
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: no '{text}' within {seconds} s, but:\n{self.said(begun)[-500:]}")
            time.sleep(0.05)

    def await_port(self, port, state="0A"):
        """Until a TCP port is in a state, of those of /proc/net/tcp: 0A listens, 01 is connected."""
        found = f"grep -q ' [0-9A-F]*:{port:04X} [0-9A-F:]* {state} ' /proc/net/tcp"
        status, output = self.run_here("sh", "-c", f"for i in $(seq 150); do {found} && exit; sleep 0.1; done; exit 1")
        if status != 0:
            raise RuntimeError(f"{self.name}: port {port} is not in state {state}")


class Kernel(Place):
    def __init__(self, guest, provider):
        self.guest, self.name, self.device = guest, provider, f"{provider}0"
        self.address = f"{VIEWS[provider][1]}.2"

    def begin(self, *command, options=()):
        """Runs a command; `options` are for uiw, which is not here."""
        quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in command)
        return self.guest.begin(f"exec timeout {LIMIT} {quoted} 2>&1")

    run_here = Place.run

    def kill(self, name):
        """All programs of that name."""
        self.run("sh", "-c", f"kill -9 $(pidof {name})")

    def said(self, number):
        return self.guest.said(number)

    def finish(self, number):
        done = self.guest.finish(number, LIMIT + 60)
        return done.status, done.output


class Uiw(Place):
    def __init__(self, guest, provider, build):
        self.view, network = VIEWS[provider]
        self.guest, self.build, self.name = guest, build, f"uiw as {self.view}"
        self.device = f"uiw_tap{tuple(VIEWS).index(provider)}"
        self.address = f"{network}.1"

    def begin_here(self, *command):
        output = tempfile.NamedTemporaryFile("w+", prefix="uiw-guest-")
        process = self.guest.on_host(["timeout", "--kill-after=5", LIMIT, *command], stdout=output, stderr=subprocess.STDOUT,
                                     stdin=subprocess.DEVNULL)
        return process, output

    def run_here(self, *command):
        return self.finish(self.begin_here(*command))

    def begin(self, *command, options=()):
        return self.begin_here(f"{self.build}/tools/uiw", "run", "--transport", self.view, *options, "--", *command)

    def kill(self, name):
        """All programs of that name in the guest's network."""
        network = os.stat(f"/proc/{self.guest.qemu.pid}/ns/net").st_ino
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (folder / "comm").read_text().strip() == name and os.stat(folder / "ns/net").st_ino == network:
                    os.kill(int(folder.name), signal.SIGKILL)

    def said(self, begun):
        return pathlib.Path(begun[1].name).read_text(errors="replace")

    def finish(self, begun):
        process, output = begun
        with output:
            process.wait(LIMIT + 60)
            return process.returncode, self.said(begun)
