# SPDX-License-Identifier: MIT
"""A guest under QEMU's emulation with Debian's kernel: boots it, runs commands there, ends it.

Its root is that of this host, read-only, so that it has the same programs. It has two interfaces, which are tap devices
in a network namespace of the guest's own: eth0 (10.71.0.2, and .1 for the host) and eth1 (10.72.0.2), with rxe0 and siw0
where its kernel has these.
Programs of the host take part with Guest.on_host(). All of it goes with the process that has made it."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
BOOT_TIME = 240  # seconds; it takes 17 on an idle machine

# Makes the devices and becomes QEMU, so that the namespace lives as long as that.
START = """
ip link set lo up
for n in 0 1; do
  ip tuntap add mode tap name tap$n && ip address add 10.7$((n + 1)).0.1/24 dev tap$n && ip link set tap$n up || exit
done
exec "$@"
"""


def end_with_parent(number=signal.SIGKILL):
    import ctypes
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


class Result:
    def __init__(self, status, output, errors):
        self.status, self.output, self.errors = status, output, errors


class Guest:
    """Commands may run at the same time, from several threads."""

    def __init__(self, files, parameters=""):
        """With more parameters of the kernel (admin-guide/kernel-parameters)."""
        self.shared = pathlib.Path(tempfile.mkdtemp(prefix="uiw-guest-"))
        shutil.copy(HERE / "agent", self.shared)
        ours, its = socket.socketpair()
        self.lock = threading.Condition()
        self.number = 0
        self.statuses = {}
        self.over = False
        nic = [part for n in (0, 1) for part in
               ("-netdev", f"tap,id=n{n},ifname=tap{n},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=n{n},mac=52:54:00:00:00:0{n + 1}")]
        shares = [part for tag, path, more in (("host", "/", ",readonly=on,multidevs=remap"), ("shared", self.shared, ""))
                  for part in ("-fsdev", f"local,id={tag},path={path},security_model=none{more}",
                               "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")]
        qemu = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
                "-kernel", files.kernel, "-initrd", files.folder / "initramfs.cpio",
                "-append", f"console=ttyS0 quiet mitigations=off panic=-1 {parameters}",
                "-serial", f"file:{self.shared / 'console'}",
                "-chardev", f"socket,id=agent,fd={its.fileno()}", "-serial", "chardev:agent", *nic, *shares]
        self.qemu = subprocess.Popen(["unshare", "--net", "sh", "-c", START, "sh", *map(str, qemu)],
                                     pass_fds=[its.fileno()], preexec_fn=end_with_parent, stdin=subprocess.DEVNULL,
                                     stdout=open(self.shared / "qemu", "w"), stderr=subprocess.STDOUT)
        its.close()
        self.lines = ours.makefile("rw")
        ours.settimeout(BOOT_TIME)
        try:
            if self.lines.readline().strip() != "ready":
                raise RuntimeError("it ended before it was ready")
        except Exception as error:
            said = "".join(path.read_text() for name in ("qemu", "console") if (path := self.shared / name).exists())
            self.end()
            raise RuntimeError(f"the guest has not booted: {error}\n{said[-3000:]}") from error
        ours.settimeout(None)
        threading.Thread(target=self.hear, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def hear(self):
        for line in self.lines:
            number, status = line.split()
            with self.lock:
                self.statuses[int(number)] = int(status)
                self.lock.notify_all()
        with self.lock:
            self.over = True
            self.lock.notify_all()

    def begin(self, command):
        """Starts a command of the shell, which is one line; the number for finish()."""
        with self.lock:
            self.number += 1
            self.lines.write(f"{self.number} {command}\n")
            self.lines.flush()
            return self.number

    def finish(self, number, seconds):
        with self.lock:
            if not self.lock.wait_for(lambda: self.over or number in self.statuses, seconds):
                raise RuntimeError(f"the guest's command {number} has not ended in {seconds} s")
            if number not in self.statuses:
                raise RuntimeError("the guest has ended:\n" + (self.shared / "console").read_text()[-3000:])
            status = self.statuses.pop(number)
        return Result(status, *((self.shared / f"{number}.{end}").read_text(errors="replace") for end in ("out", "err")))

    def said(self, number):
        """What a command has printed until now."""
        path = self.shared / f"{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, command, seconds=120):
        return self.finish(self.begin(f"timeout {seconds} {command}"), seconds + 60)

    def on_host(self, command, **options):
        """A program of the host in the network of the guest; as subprocess.Popen. It gets SIGTERM when this process ends,
        which timeout(1) hands on."""
        inside = ["nsenter", f"--net=/proc/{self.qemu.pid}/ns/net", *map(str, command)]
        return subprocess.Popen(inside, text=True, preexec_fn=lambda: end_with_parent(signal.SIGTERM), **options)

    def end(self):
        if self.qemu.poll() is None:
            self.qemu.kill()
        self.qemu.wait()
        shutil.rmtree(self.shared, ignore_errors=True)
